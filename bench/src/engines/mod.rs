//! Who is measured: the log of Tidewire, its whole tree, the bare loop, and the peers. Each file says which setting makes
//! its engine sync before it answers.

mod fjall;
mod kind;
mod okaywal;
mod peer;
mod raft;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocks;
mod site_log;
mod tide_log;
mod tide_site;
mod walrus;

pub use kind::Engine;
pub use peer::{Peer, open as open_peer};
pub use tide_log::{Opening, TideLog};
pub use tide_site::{Site, new_site};
