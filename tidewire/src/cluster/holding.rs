//! Which keys a tree holds, changed while the cluster runs.

use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::TreeName;
use tidewire_core::random::Random;
use tidewire_core::record::Interest;
use tidewire_core::tasks::Tasks;
use tidewire_shipper::ShipperHandle;

use super::handle::Cluster;
use super::links::Links;

impl Links {
    /// Has a tree hold these keys from now on; says whether it held others before. Its links rest meanwhile, both ways, and
    /// begin anew with what is held then: what a peer was told it would be sent, and what it was told to leave out, is
    /// true no more.
    ///
    /// # Errors
    /// As [`Applier::hold`](tidewire_applier::Applier::hold); the links begin anew in any case.
    pub(super) async fn hold(
        &self,
        tree: &TreeName,
        interest: Interest,
        tasks: &Tasks,
        random: &Random,
    ) -> Result<bool, Error> {
        let _one = self.changing.lock().await;
        let enrolled = self.state.lock().trees.get(tree).cloned().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("tree {tree} does not take part in the exchange"))
        })?;
        if enrolled.tree.interest() == interest {
            return Ok(false);
        }
        let shippers: Vec<ShipperHandle> = {
            let state = self.state.lock();
            let of_tree = state.shippers.iter().filter(|((_, name), _)| name == tree);
            of_tree.map(|(_, shipper)| shipper.clone()).collect()
        };
        futures::future::join_all(shippers.iter().map(ShipperHandle::stop)).await;
        self.state.lock().shippers.retain(|(_, name), _| name != tree);
        let held = enrolled.applier.hold(interest).await;
        if !self.is_stopping() {
            self.start_missing(tasks, random).await?;
        }
        held.map(|()| true)
    }
}

impl Cluster {
    /// One reason for each tree whose keys are on their way out.
    pub(super) fn dropping(&self) -> Vec<String> {
        let dropping = self.trees().into_iter().filter(|tree| tree.is_dropping());
        dropping
            .map(|tree| {
                let (name, held) = (&tree.identity().tree, tree.interest());
                format!("tree {name}: only {held} is held from now on, other keys are being dropped; its links rest until then")
            })
            .collect()
    }
}
