//! [`Cluster`]: one site, assembled. What the library hands out and the binary serves.
//!
//! Assembly reads like a recipe: lock the directory, open metadata and clock, replay the trees, then start the receiving
//! side, then the sending side. Stopping goes the other way round: intake, drain, sync, cursors, close.

#[cfg(feature = "server")]
mod api;
mod builder;
mod collecting;
mod consumers;
mod directory;
mod feeding;
mod flows;
mod handle;
mod health;
mod holding;
#[cfg(feature = "server")]
mod letters;
mod link_status;
mod links;
mod membership;
mod peering;
mod peers;
mod reload;
mod seeding;
#[cfg(feature = "server")]
mod sink_letters;
mod sinks;

pub use builder::ClusterBuilder;
pub use handle::Cluster;
pub use reload::Reloaded;
pub use sinks::SinkOptions;
