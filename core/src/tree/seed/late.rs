//! [`LateRows`]: why a seed is not taken that might bring back what is forgotten here.

use crate::id::Hlc;

/// Rows of a seed that may have been deleted here, by what was reaped since: nothing waited for their origin then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{rows} of its keys are not here and were written by {origin} or others that nothing here waited for, at or before \
     {reaped}: what was deleted up to then is forgotten here, and they might be brought back. On the cluster that gives \
     it, write anew those of them that are to stay and delete the others, then let the link begin again \
     (`tidewire peers restart`). Or let this cluster begin again with an empty tree under a new name"
)]
pub struct LateRows {
    /// Who wrote the first of them.
    pub origin: String,
    /// How many.
    pub rows: u64,
    /// Up to where the dead are forgotten here.
    pub reaped: Hlc,
}
