//! What a cluster is told: plain settings, the rules they keep, and the file they come from.
//!
//! [`ClusterConfig`] is for embedding and for the server alike. The server reads one from a TOML file with the
//! environment over it ([`load`]); an embedder builds one and the facade calls [`ClusterConfig::validate`]. Components
//! (disk, clock, transport) are never settings: they come through builders.

mod difference;
#[cfg(feature = "server")]
mod file;
#[cfg(feature = "server")]
mod print;
mod problem;
#[cfg(feature = "server")]
mod schema;
mod settings;
pub(crate) mod sink_types;
mod validate;
#[cfg(all(test, feature = "server"))]
mod wrong_files;

pub(crate) use difference::needs_restart;
#[cfg(feature = "server")]
pub use file::load;
#[cfg(feature = "server")]
pub use print::{example, show};
pub use problem::{ConfigError, Problem};
pub use settings::{
    ClusterConfig, Consistency, Delivery, Identity, LimitSettings, Listen, LogSettings, Merge, OnPoison,
    OnStall, Peer, SinkConfig, SinkStart, TreeConfig,
};
pub use tidewire_core::units::{ByteSize, HumanDuration};
pub use tidewire_shipper::Forward;
