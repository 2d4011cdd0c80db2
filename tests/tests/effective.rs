//! Whoever applies the changes of any site in their order ends with what its tree holds.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tidewire::{Change, Event, Start, Tree};
use tidewire_core::id::Version;
use tidewire_core::record::Kind;
use tidewire_core::tree::{ChangeView, LogView};
use tidewire_tests::{Plan, Site, World, seeds, virtual_time};

/// A value and its deadline; None where a tombstone was the last word.
type Said = Option<(Bytes, Option<u64>)>;

/// A destination that knows keys and values only, as a topic does.
#[derive(Default)]
struct Destination {
    seed: u64,
    rows: BTreeMap<Bytes, (Version, Said)>,
    changes: usize,
}

impl Destination {
    fn take(&mut self, key: Bytes, version: Version, said: Said) {
        let last = self.rows.insert(key.clone(), (version, said));
        let rises = last.is_none_or(|(last, _)| last < version);
        assert!(rises, "seed {}: {key:?} goes back to {version:?}", self.seed);
    }

    fn apply(&mut self, tree: &Tree, change: &Change) {
        self.changes += 1;
        let key = Bytes::copy_from_slice(&change.key);
        match change.kind {
            Kind::Set => {
                let value = (Bytes::copy_from_slice(&change.value), change.deadline_ms);
                self.take(key, change.version, Some(value));
            }
            Kind::DeleteRange => {
                for key in tree.removed(change, None, usize::MAX) {
                    self.take(key, change.version, None);
                }
            }
            // Maintenance is left out of changes.
            Kind::Delete | Kind::Mark => self.take(key, change.version, None),
        }
    }

    async fn of(seed: u64, tree: &Tree) -> Self {
        let mut destination = Self { seed, ..Self::default() };
        let end = tree.end().lsn;
        let mut changes = tree.changes(Start::Beginning);
        loop {
            match changes.next().await.expect("a log that is retained") {
                Event::Change(change) => destination.apply(tree, &change),
                Event::Resolved { cursor, .. } if cursor.lsn >= end => return destination,
                Event::Resolved { .. } => {}
            }
        }
    }
}

async fn compare(seed: u64, site: &Site) -> usize {
    let tree = site.tree().expect("it runs");
    let destination = Destination::of(seed, &tree).await;
    for (key, (version, value)) in &destination.rows {
        let found = tree.get(key);
        if let Some((value, _)) = value.as_ref().filter(|_| found.is_some()) {
            let found = found.expect("looked at");
            assert_eq!((found.version, &found.value), (*version, value), "seed {seed}: {key:?}");
            continue;
        }
        // Absent in the tree: the last word was a tombstone, or a value that has expired.
        let expires = value.as_ref().is_some_and(|(_, deadline)| deadline.is_some());
        assert!(found.is_none() && (value.is_none() || expires), "seed {seed}: {key:?} {value:?} {found:?}");
    }
    for row in tree.scan(b"", None, usize::MAX) {
        assert!(destination.rows.contains_key(&row.key), "seed {seed}: {row:?} was never told");
    }
    destination.changes
}

#[test]
fn f61_changes_of_one_hot_key_end_with_what_the_tree_holds_and_versions_rise() {
    let (mut told, mut logged) = (0, 0);
    for seed in seeds(40) {
        let plan = Plan {
            sites: 3,
            writers: 2,
            keys: 1 + seed % 3,
            duration: Duration::from_secs(2),
            fault_every: Duration::from_millis(200),
        };
        virtual_time(async {
            let mut world = World::new(seed, plan.sites);
            world.run_mixed(&plan).await;
            logged += world.histories().await.iter().map(|history| history.entries.len()).sum::<usize>();
            for site in &world.sites {
                told += compare(seed, site).await;
            }
            // What is known of losers is known after a kill too.
            for at in 0..3 {
                world.sites[at].crash().await;
                world.start(at).await;
                compare(seed, &world.sites[at]).await;
            }
        });
    }
    println!("{logged} records in the logs, {told} of them were effective where they lie");
    assert!(told < logged, "nothing lost on arrival, so nothing was shown");
}
