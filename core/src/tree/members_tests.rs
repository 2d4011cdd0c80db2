//! Claims about who counts as a writer of a tree.

use std::sync::Arc;

use super::super::tests::Site;
use super::*;
use crate::disk::MemDisk;
use crate::id::Incarnation;
use crate::tree::ApplyTarget;

fn id(name: &str) -> ClusterId {
    ClusterId::new(name).expect("a name")
}

fn names(tree: &Tree) -> Option<Vec<String>> {
    let mut names: Vec<String> = tree.members()?.values().map(ToString::to_string).collect();
    names.sort();
    Some(names)
}

#[tokio::test(start_paused = true)]
async fn f17_members_are_everybody_who_may_still_write_until_he_is_sealed() {
    let (disk, mut site) = (Arc::new(MemDisk::new()), Site::new("here", 1));
    let tree = site.open(disk.clone()).await.expect("opens");
    assert_eq!(names(&tree), None, "not declared: unknown, not nobody");
    tree.enroll(&id("known"), Incarnation::new(7)).await.expect("enrolled");
    let joined = [id("new"), id("known")].into();
    tree.declare_members(Members { joined, sealed: BTreeSet::new() });
    assert_eq!(names(&tree), Some(vec!["here".into(), "known".into(), "new".into()]));
    // An origin that is no peer any more may still have writes on their way over others.
    tree.declare_members(Members::default());
    assert_eq!(names(&tree), Some(vec!["here".into(), "known".into()]));
    let sealed = [id("known"), id("new")].into();
    tree.declare_members(Members { joined: [id("new")].into(), sealed });
    assert_eq!(names(&tree), Some(vec!["here".into()]));
}
