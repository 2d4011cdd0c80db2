//! The claims that every [`MetaStore`] must hold, to be run by a test of the implementation.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;

use super::contract::{MetaChange, MetaStore};
use crate::error::MetaErrorKind;

/// Runs all claims. `make` answers an empty store, anew at each call.
///
/// # Panics
/// When a claim does not hold.
pub async fn conformance(make: impl AsyncFn() -> Arc<dyn MetaStore>) {
    what_was_put_is_found_until_it_is_deleted(make().await.as_ref()).await;
    a_prefix_lists_its_keys_in_order(make().await.as_ref()).await;
    changes_happen_in_the_order_given(make().await.as_ref()).await;
    a_failed_expectation_leaves_nothing(make().await.as_ref()).await;
    expectations_are_checked_before_the_changes(make().await.as_ref()).await;
    transactions_at_the_same_time_happen_one_after_the_other(make().await.as_ref()).await;
    large_values_are_kept(make().await.as_ref()).await;
}

async fn commit(store: &dyn MetaStore, changes: impl Into<Vec<MetaChange>>) {
    store.commit(changes.into()).await.expect("the transaction happens");
}

async fn get(store: &dyn MetaStore, key: &str) -> Option<Bytes> {
    store.get(key).await.expect("the store is readable")
}

async fn keys(store: &dyn MetaStore, prefix: &str) -> Vec<String> {
    let found = store.list(prefix).await.expect("the store is readable");
    found.into_iter().map(|(key, _)| key).collect()
}

async fn what_was_put_is_found_until_it_is_deleted(store: &dyn MetaStore) {
    assert_eq!(get(store, "a").await, None);
    commit(store, [MetaChange::put("a", "1"), MetaChange::put("empty", "")]).await;
    assert_eq!(get(store, "a").await, Some("1".into()));
    assert_eq!(get(store, "empty").await, Some(Bytes::new()), "empty is not absent");
    commit(store, [MetaChange::put("a", "2"), MetaChange::delete("empty"), MetaChange::delete("none")]).await;
    assert_eq!(get(store, "a").await, Some("2".into()));
    assert_eq!(get(store, "empty").await, None);
    commit(store, []).await;
}

async fn a_prefix_lists_its_keys_in_order(store: &dyn MetaStore) {
    assert!(keys(store, "").await.is_empty());
    let all = ["cursor/a/x", "cursor/a", "cursor/a/", "cursor/ab", "cursor/a/\u{e9}", "tree/a", "a"];
    commit(store, all.map(|key| MetaChange::put(key, key))).await;
    assert_eq!(keys(store, "cursor/a/").await, ["cursor/a/", "cursor/a/x", "cursor/a/\u{e9}"]);
    assert_eq!(keys(store, "cursor/b").await, [""; 0]);
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    assert_eq!(keys(store, "").await, sorted);
    let found = store.list("tree/").await.expect("the store is readable");
    assert_eq!(found, [("tree/a".to_owned(), Bytes::from("tree/a"))]);
}

async fn changes_happen_in_the_order_given(store: &dyn MetaStore) {
    commit(store, [MetaChange::put("a", "1"), MetaChange::delete("a"), MetaChange::put("b", "1")]).await;
    commit(store, [MetaChange::delete("b"), MetaChange::put("b", "2"), MetaChange::put("b", "3")]).await;
    assert_eq!(get(store, "a").await, None);
    assert_eq!(get(store, "b").await, Some("3".into()));
}

async fn a_failed_expectation_leaves_nothing(store: &dyn MetaStore) {
    commit(store, [MetaChange::put("a", "1")]).await;
    let wrong = [
        MetaChange::expect("a", None),
        MetaChange::expect("a", Some("2".into())),
        MetaChange::expect("b", Some(Bytes::new())),
    ];
    for expectation in wrong {
        let changes = vec![MetaChange::put("c", "1"), MetaChange::delete("a"), expectation];
        let error = store.commit(changes).await.expect_err("it does not hold");
        assert_eq!(error.kind(), MetaErrorKind::Conflict);
        assert_eq!(keys(store, "").await, ["a"]);
    }
}

async fn expectations_are_checked_before_the_changes(store: &dyn MetaStore) {
    commit(store, [MetaChange::put("a", "1")]).await;
    let held = [
        MetaChange::put("a", "2"),
        MetaChange::expect("a", Some("1".into())),
        MetaChange::put("b", "1"),
        MetaChange::expect("b", None),
    ];
    commit(store, held).await;
    assert_eq!(get(store, "a").await, Some("2".into()));
}

async fn transactions_at_the_same_time_happen_one_after_the_other(store: &dyn MetaStore) {
    commit(store, [MetaChange::put("count", vec![0])]).await;
    let one = async |name: u8| {
        let mut conflicts = 0;
        loop {
            let seen = get(store, "count").await.expect("it is there");
            let raised = vec![seen[0] + 1];
            let changes = vec![
                MetaChange::expect("count", Some(seen)),
                MetaChange::put("count", raised),
                MetaChange::put(format!("done/{name}"), ""),
            ];
            match store.commit(changes).await {
                Ok(()) => return,
                Err(error) => assert_eq!(error.kind(), MetaErrorKind::Conflict),
            }
            conflicts += 1;
            assert!(conflicts < 100, "each round lets one succeed");
        }
    };
    join_all((0..20).map(one)).await;
    assert_eq!(get(store, "count").await, Some(vec![20].into()));
    assert_eq!(keys(store, "done/").await.len(), 20);
}

async fn large_values_are_kept(store: &dyn MetaStore) {
    let value = Bytes::from((0..300_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    commit(store, [MetaChange::put("large", value.clone())]).await;
    assert!(get(store, "large").await == Some(value));
}
