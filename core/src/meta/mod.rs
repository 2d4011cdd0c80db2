//! Small durable facts: the [`MetaStore`] seam, redb behind one thread, and stores for tests.
//!
//! Who the cluster is, the clock's ceiling, cursors, leases and registrations live here; never records. Every change is
//! one transaction that is durable when it returns, so whatever is reported from here may be relied upon. Keys are
//! paths of plain text: `clock/ceiling`, `cluster/id`, `tree/<name>/...`, `cursor/<tree>/<consumer>`,
//! `lease/<tree>/<sink>`, `origin/<tag in hex>`.

mod ceiling;
#[cfg(any(test, feature = "test-util"))]
mod conformance;
mod contract;
#[cfg(any(test, feature = "test-util"))]
mod faulty_meta;
#[cfg(any(test, feature = "test-util"))]
mod mem_meta;
mod redb_meta;
mod redb_worker;
#[cfg(test)]
mod tests;

pub use ceiling::StoredCeiling;
#[cfg(any(test, feature = "test-util"))]
pub use conformance::conformance;
pub use contract::{MetaChange, MetaStore};
#[cfg(any(test, feature = "test-util"))]
pub use faulty_meta::FaultyMeta;
#[cfg(any(test, feature = "test-util"))]
pub use mem_meta::MemMeta;
pub use redb_meta::RedbMeta;
