//! Claims about the rows of a snapshot between the opening of a tree and the moment when the last of them is unpacked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::rig::{Picture, SNAPSHOTS, without};
use crate::disk::MemDisk;
use crate::random::Random;
use crate::tree::tests::Site;
use crate::tree::{PutOptions, Tree};

#[tokio::test(start_paused = true)]
async fn rows_of_a_snapshot_are_what_they_were_before_while_and_after_they_are_unpacked() {
    let mut between = 0;
    for seed in 0..20 {
        let (mut site, disk, random) = (Site::new("a", seed), MemDisk::new(), Random::from_seed(seed));
        site.limits.snapshot_log_bytes = u64::MAX;
        site.limits.snapshot_chunk_bytes = 32 * 1024;
        let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let write = async |tree: &Tree, model: &mut BTreeMap<Vec<u8>, Vec<u8>>| {
            let key = format!("key-{:04}", random.below(3_000));
            if random.chance(0.1) {
                tree.delete(key.clone()).await.expect("deleted");
                model.remove(key.as_bytes());
                return;
            }
            // As long as what is there, or not; some that pack, some that do not.
            let mut value = vec![b'v'; if random.chance(0.5) { 300 } else { random.below(400) as usize }];
            let noise = value.len() * usize::from(random.chance(0.5));
            value[..noise].iter_mut().for_each(|byte| *byte = random.below(256) as u8);
            let options = match random.below(3) {
                0 => PutOptions { ttl: Some(Duration::from_secs(40_000)) },
                _ => PutOptions::default(),
            };
            tree.put_with(key.clone(), value.clone(), options).await.expect("put");
            model.insert(key.into_bytes(), value);
        };
        for _ in 0..1_500 {
            write(&tree, &mut model).await;
        }
        tree.snapshot().await.expect("written");
        let live = Picture::of(&tree);
        let disk = disk.kill();
        let replayed = site.open(Arc::new(without(&disk.copy(), SNAPSHOTS))).await.expect("opens");
        let tree = site.open(Arc::new(disk.clone())).await.expect("opens");
        let packed = tree.0.applied.state.read().packed();
        assert!(packed > 500, "seed {seed}: only {packed} rows are packed");
        assert_eq!(tree.size().state_bytes, replayed.size().state_bytes, "seed {seed}");
        if seed.is_multiple_of(2) {
            assert_eq!(Picture::of(&tree).entries, live.entries, "seed {seed}: all at once");
        }
        let mut rounds = 0;
        loop {
            let left = tree.0.applied.state.read().packed();
            if left == 0 {
                break;
            }
            rounds += 1;
            assert!(rounds < 1_000, "seed {seed}: some rows stay packed");
            between += u64::from(left < packed);
            tokio::time::sleep(Duration::from_micros(random.below(1_500))).await;
            for _ in 0..random.below(4) {
                write(&tree, &mut model).await;
                let key = format!("key-{:04}", random.below(3_000));
                let found = tree.get(&key).map(|found| found.value.to_vec());
                assert_eq!(found.as_ref(), model.get(key.as_bytes()), "seed {seed}: {key}");
            }
        }
        let rows = tree.scan(b"", None, usize::MAX);
        let rows: Vec<_> = rows.into_iter().map(|row| (row.key.to_vec(), row.value.to_vec())).collect();
        assert_eq!(rows, model.into_iter().collect::<Vec<_>>(), "seed {seed}");
    }
    assert!(between > 5, "only {between} looks while some were unpacked and some not: not in small steps");
}
