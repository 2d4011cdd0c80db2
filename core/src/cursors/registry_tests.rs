//! Claims about the registry of consumers, over a store in memory.

use super::*;
use crate::meta::{FaultyMeta, MemMeta};

fn cursor(incarnation: u64, lsn: u64) -> Cursor {
    Cursor { incarnation: Incarnation::new(incarnation), lsn: Lsn::new(lsn) }
}

async fn open(meta: &Arc<dyn MetaStore>) -> Registry {
    Registry::open(meta.clone(), &TreeName::new("t").expect("name")).await.expect("opens")
}

#[tokio::test]
async fn f33_a_registration_is_durable_before_it_is_answered_and_holds_everything_until_a_report() {
    let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::new());
    open(&meta).await.register("peer b").await.expect("registered");
    assert_eq!(open(&meta).await.stored(), [("peer b".to_owned(), None)]);
}

#[tokio::test]
async fn f11_a_report_counts_when_it_is_stored_and_not_before() {
    let faulty = FaultyMeta::new(Arc::new(MemMeta::new()));
    let meta: Arc<dyn MetaStore> = Arc::new(faulty.clone());
    let registry = open(&meta).await;
    registry.register("peer b").await.expect("registered");
    registry.report("peer b", cursor(1, 9));
    assert_eq!(registry.stored(), [("peer b".to_owned(), None)]);
    faulty.fail_next_commits(1);
    registry.flush().await.expect_err("not stored");
    assert_eq!(registry.stored(), [("peer b".to_owned(), None)]);
    registry.flush().await.expect("stored");
    assert_eq!(open(&meta).await.stored(), [("peer b".to_owned(), Some(cursor(1, 9)))]);
}

#[tokio::test]
async fn a_report_never_moves_back_but_a_new_incarnation_starts_anew() {
    let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::new());
    let registry = open(&meta).await;
    registry.report("stranger", cursor(1, 1));
    registry.register("peer b").await.expect("registered");
    for (reported, stored) in
        [(cursor(1, 9), cursor(1, 9)), (cursor(1, 4), cursor(1, 9)), (cursor(2, 3), cursor(2, 3))]
    {
        registry.report("peer b", reported);
        registry.flush().await.expect("stored");
        assert_eq!(registry.stored(), [("peer b".to_owned(), Some(stored))]);
    }
    registry.remove("peer b").await.expect("removed");
    assert_eq!(open(&meta).await.stored(), []);
}

fn window(floor: u64, head: u64) -> Window {
    Window { incarnation: Incarnation::new(1), floor: Lsn::new(floor), head: Lsn::new(head) }
}

#[tokio::test]
async fn f05_a_report_outside_the_log_is_no_pin() {
    let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::new());
    let registry = open(&meta).await.over(|| window(10, 20));
    registry.register("peer b").await.expect("registered");
    for (reported, outcome) in [
        (cursor(1, 21), ReportOutcome::Refused),
        (cursor(2, 15), ReportOutcome::Refused),
        (cursor(1, 9), ReportOutcome::FellOff),
    ] {
        assert_eq!(registry.report("peer b", reported), outcome);
        registry.flush().await.expect("nothing to store");
        assert_eq!(registry.stored(), [("peer b".to_owned(), None)]);
    }
    assert!(registry.consumers()[0].fell_off);
    assert_eq!(registry.report("peer b", cursor(1, 10)), ReportOutcome::Taken);
    assert!(!registry.consumers()[0].fell_off, "it was seeded anew");
    assert_eq!(registry.report("peer b", cursor(1, 20)), ReportOutcome::Taken);
    assert_eq!(registry.report("peer b", cursor(1, 12)), ReportOutcome::Unmoved);
    assert_eq!(registry.report("peer b", cursor(1, 3)), ReportOutcome::FellOff, "restored from a backup");
    assert!(registry.consumers()[0].fell_off);
    assert_eq!(registry.report("stranger", cursor(1, 12)), ReportOutcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn whoever_stores_is_woken_by_a_report_and_by_nothing_else() {
    let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::new());
    let registry = open(&meta).await;
    registry.register("a").await.expect("stored");
    let quiet = tokio::time::timeout(std::time::Duration::from_secs(3_600), registry.unstored());
    assert!(quiet.await.is_err(), "nothing was reported");
    for lsn in [3, 4] {
        let report = async { assert_eq!(registry.report("a", cursor(1, lsn)), ReportOutcome::Taken) };
        tokio::join!(registry.unstored(), report);
        registry.unstored().await;
        registry.flush().await.expect("stored");
        let quiet = tokio::time::timeout(std::time::Duration::from_secs(3_600), registry.unstored());
        assert!(quiet.await.is_err(), "all is stored");
    }
}

#[tokio::test]
async fn f33_a_registry_that_cannot_be_read_is_an_error_and_not_an_empty_one() {
    let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::new());
    let registry = open(&meta).await;
    registry.register("peer b").await.expect("registered");
    assert_eq!(registry.read_stored().await.expect("readable").len(), 1);
    let key = "cursor/t/peer b".to_owned();
    meta.commit(vec![MetaChange::Delete { key: key.clone() }]).await.expect("deleted");
    registry.read_stored().await.expect_err("a consumer is missing");
    meta.commit(vec![MetaChange::put(key, Bytes::from_static(b"nonsense"))]).await.expect("put");
    registry.read_stored().await.expect_err("a position cannot be read");
    assert!(Registry::open(meta, &TreeName::new("t").expect("name")).await.is_err());
}

#[tokio::test]
async fn f33_whoever_registers_what_another_has_registered_meanwhile_takes_no_position_back() {
    let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::new());
    let registry = open(&meta).await;
    let pass = registry.begin_pass().await;
    let first = async {
        registry.register("peer b").await.expect("registered");
        registry.report("peer b", cursor(1, 9));
        registry.flush().await.expect("stored");
    };
    let second = async { registry.register("peer b").await.expect("registered") };
    let ends = async { drop(pass) };
    let ((), found, ()) = tokio::join!(first, second, ends);
    assert_eq!(found, Some(cursor(1, 9)));
    assert_eq!(open(&meta).await.stored(), [("peer b".to_owned(), Some(cursor(1, 9)))]);
}

#[tokio::test(start_paused = true)]
async fn f33_who_is_new_waits_for_the_end_of_a_pass_and_who_is_known_does_not() {
    let meta: Arc<dyn MetaStore> = Arc::new(MemMeta::new());
    let registry = open(&meta).await;
    registry.register("peer b").await.expect("registered");
    let pass = registry.begin_pass().await;
    let patience = std::time::Duration::from_secs(3_600);
    let known = tokio::time::timeout(patience, registry.register("peer b")).await;
    known.expect("at once").expect("registered");
    assert!(tokio::time::timeout(patience, registry.register("peer c")).await.is_err());
    assert_eq!(open(&meta).await.stored(), [("peer b".to_owned(), None)], "nothing is promised");
    drop(pass);
    registry.register("peer c").await.expect("registered");
    assert_eq!(open(&meta).await.stored().len(), 2);
}
