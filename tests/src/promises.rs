//! [`demand_promises_kept`]: what a site promises, and whether its log keeps it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewire_core::causal::VersionVector;
use tidewire_core::id::Lsn;
use tidewire_core::tree::{ApplyTarget, LogView};

use crate::watch::Watch;
use crate::world::World;

/// What a site promised when its log ended where.
type Promises = Arc<Mutex<Vec<(usize, Lsn, VersionVector)>>>;

/// Notes every promise of every site while `run` goes on, and then looks whether the logs kept them.
pub async fn demand_promises_kept(world: &mut World, run: impl AsyncFnOnce(&mut World)) {
    let promises = Promises::default();
    let noted = promises.clone();
    let watch = Watch::start(&world.sites, move |at, tree| {
        noted.lock().push((at, tree.end().lsn, tree.progress().frontier));
        Ok(())
    });
    run(world).await;
    world.demand_convergence(Duration::from_secs(120)).await;
    let (seed, looks) = (world.seed, watch.finish(world.seed).await);
    assert!(looks > 50, "seed {seed}: {looks} looks");
    let promises = promises.lock().clone();
    for (at, history) in world.histories().await.iter().enumerate() {
        for (_, end, frontier) in promises.iter().filter(|(site, ..)| *site == at) {
            let mut late = history.entries.iter().rev().take_while(|entry| entry.lsn >= *end);
            let broken = late.find(|entry| entry.version.hlc <= frontier.get(entry.version.origin));
            assert!(
                broken.is_none(),
                "seed {seed}: {at} at {end} promised {frontier:?}, then took {broken:?}"
            );
        }
    }
}
