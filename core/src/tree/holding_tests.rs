//! Claims about a tree that is to hold other keys while it is open.

use std::sync::Arc;

use super::tests::{Site, ready_groups};
use super::*;
use crate::disk::{DiskFaults, FaultyDisk, MemDisk};
use crate::error::ErrorKind;
use crate::record::Interest;

fn interest(prefixes: &[&'static str]) -> Interest {
    Interest::new(prefixes.iter().copied()).expect("prefixes")
}

fn keys(tree: &Tree) -> Vec<String> {
    let rows = tree.scan(b"", None, usize::MAX).into_iter();
    rows.map(|row| String::from_utf8_lossy(&row.key).into_owned()).collect()
}

/// A tree with writes of its own and of another one, which is the second that is answered.
async fn two(site: &mut Site, disk: &MemDisk) -> (Tree, Tree) {
    let giver = Site::new("b", 2).open(Arc::new(MemDisk::new())).await.expect("opens");
    let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
    for key in ["eu/1", "us/1"] {
        tree.put(format!("{key}a"), "v").await.expect("written");
        giver.put(format!("{key}b"), "v").await.expect("written");
    }
    let (to_tree, to_giver) = (ready_groups(&giver).await, ready_groups(&tree).await);
    for (one, other, groups) in [(&tree, &giver, to_tree), (&giver, &tree, to_giver)] {
        let TreeIdentity { cluster, incarnation, .. } = other.identity();
        one.enroll(cluster, *incarnation).await.expect("enrolled");
        one.apply(groups).await.expect("applied");
    }
    (tree, giver)
}

#[tokio::test(start_paused = true)]
async fn fewer_keys_leave_at_once_and_stay_away_and_what_comes_back_is_not_whole() {
    let (disk, mut site) = (MemDisk::new(), Site::new("a", 1));
    let (tree, _giver) = two(&mut site, &disk).await;
    assert_eq!(keys(&tree), ["eu/1a", "eu/1b", "us/1a", "us/1b"]);
    tree.hold(interest(&["eu/"])).await.expect("fewer");
    assert_eq!(keys(&tree), ["eu/1a", "eu/1b"]);
    assert_eq!((tree.whole(), tree.seed_wish()), (Some(interest(&["eu/"])), None));
    assert_eq!(tree.put("us/1a", "v").await.expect_err("not held").kind(), ErrorKind::Invalid);
    let digest = tree.digest().digest;
    site.interest = interest(&["eu/"]);
    let tree = site.open(Arc::new(disk.crash(7))).await.expect("opens");
    assert_eq!((tree.digest().digest, tree.seed_wish()), (digest, None), "the same as opened with it");

    tree.hold(Interest::all()).await.expect("more");
    assert_eq!(keys(&tree), ["eu/1a", "eu/1b"], "a seed brings the rest");
    assert!(tree.seed_wish().is_some() && tree.whole() == Some(interest(&["eu/"])));
    tree.put("us/2", "v").await.expect("held from now on");
    assert!(tree.get("us/2").is_some());
    assert!(tree.give_seed(&interest(&["eu/"])).is_ok() && tree.give_seed(&Interest::all()).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_crash_leaves_what_the_configuration_of_the_next_start_says() {
    for (fails_at, after) in (0..12).flat_map(|at| [(at, interest(&["eu/"])), (at, Interest::all())]) {
        let (disk, mut site) = (MemDisk::new(), Site::new("a", 1));
        let (tree, giver) = two(&mut site, &disk).await;
        if fails_at % 2 == 0 {
            tree.snapshot().await.expect("written");
        }
        // Cut short somewhere in it.
        {
            let mut holding = Box::pin(tree.hold(interest(&["eu/"])));
            for _ in 0..fails_at / 2 {
                if futures::poll!(&mut holding).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        site.interest = after.clone();
        let tree = site.open(Arc::new(disk.crash(fails_at))).await.expect("opens");
        let whole = tree.whole();
        if after.is_all() && tree.seed_wish().is_some() {
            // It had dropped them, or was about to.
            assert_eq!(whole, Some(interest(&["eu/"])));
            let mut reader = giver.give_seed(&Interest::all()).expect("given");
            let mut staging = tree.stage_seed().await.expect("staged");
            while let Some(piece) = reader.next().await.expect("read") {
                staging.write(piece).await.expect("staged");
            }
            staging.import().await.expect("taken");
        }
        assert_eq!(tree.whole(), Some(after.clone()));
        let held: Vec<_> = ["eu/1a", "eu/1b", "us/1a", "us/1b"]
            .into_iter()
            .filter(|key| after.contains(key.as_bytes()))
            .collect();
        let lost: Vec<_> = held.iter().filter(|key| !keys(&tree).contains(&(**key).to_owned())).collect();
        assert!(lost.is_empty() && keys(&tree).len() == held.len(), "{fails_at} {after}: {:?}", keys(&tree));
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_stored_changes_nothing() {
    let faults = DiskFaults::from_seed(3);
    let disk = FaultyDisk::over_memory(MemDisk::new(), faults.clone());
    let tree = Site::new("a", 1).open(Arc::new(disk)).await.expect("opens");
    tree.put("us/1", "v").await.expect("written");
    faults.fill();
    let error = tree.hold(interest(&["eu/"])).await.expect_err("no room");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(tree.interest().is_all() && tree.get("us/1").is_some() && tree.whole() == Some(Interest::all()));
    faults.heal();
    tree.hold(interest(&["eu/"])).await.expect("there is room");
    assert!(tree.get("us/1").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_seed_on_its_way_ends_with_the_change_on_either_side() {
    let (disk, mut site) = (MemDisk::new(), Site::new("a", 1));
    let (tree, giver) = two(&mut site, &disk).await;
    for number in 0..200 {
        giver.put(format!("us/{number}"), vec![1; 100]).await.expect("written");
    }
    let mut reader = giver.give_seed(&Interest::all()).expect("given");
    reader.next().await.expect("read").expect("the first bytes");
    giver.hold(interest(&["eu/"])).await.expect("fewer");
    let error =
        reader.next().await.map(drop).expect_err("what it lacks would be deleted by whoever takes it");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    giver.hold(Interest::all()).await.expect("more");
    assert!(reader.next().await.is_err(), "it does not have it again by that");

    let mut reader = giver.give_seed(&interest(&["eu/"])).expect("this part is whole");
    tree.hold(interest(&["eu/"])).await.expect("fewer");
    let mut staging = tree.stage_seed().await.expect("staged");
    while let Some(piece) = reader.next().await.expect("read") {
        staging.write(piece).await.expect("staged");
    }
    tree.hold(interest(&["eu/", "us/"])).await.expect("more");
    let error = staging.import().await.map(drop).expect_err("it would pass for the new keys too");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(tree.seed_wish().is_some() && tree.whole() == Some(interest(&["eu/"])));
}
