//! Takes pages from peer clusters into a tree: the receiving side of Tidewire replication.
//!
//! A [`Server`] accepts links and checks who calls; each link is a session that believes nothing a peer says; one
//! [`Applier`] per tree takes what all its links bring, lets through what is new, in order and causally complete, and
//! hands it to the tree as one group. Acknowledgements say what the tree has made durable, never more.
//!
//! What decides is pure: the door (`hello`, `boots`), the session, the gate and why to `pause`; `link`, `applier` and `server` only move
//! frames and wait. Everything that waits is bounded in bytes (`budget`).
//!
//! ```
//! # use std::sync::Arc;
//! # use tidewire_applier::{Applier, ApplierMetrics, ReceiveState, Server, ServerConfig, Settings};
//! # use tidewire_core::sink::News;
//! # use tidewire_core::tasks::{Tasks, Threads};
//! # use tidewire_core::transport::{MemNetwork, Transport};
//! # use tidewire_core::tree::{Consistency, MemTarget, MergeMode, TreeIdentity};
//! # use tidewire_core::{id::*, metrics::Metrics, random::Random};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (cluster, tree) = (ClusterId::new("eu-west")?, TreeName::new("orders")?);
//! # let tasks = Tasks::new(Threads::Inline);
//! # let (incarnation, partitions) = (Incarnation::new(1), 8);
//! # let (merge, consistency) = (MergeMode::LastWriterWins, Consistency::Causal);
//! # let identity =
//! #     TreeIdentity { cluster: cluster.clone(), tree, incarnation, partitions, merge, consistency };
//! # let orders = Arc::new(MemTarget::new(identity));
//! # let transport = MemNetwork::new(&Random::from_seed(1)).endpoint(&cluster);
//! let metrics = ApplierMetrics::new(&Metrics::default());
//! let applier = Applier::spawn(&tasks, orders, Settings::default(), &metrics)?;
//! let config = ServerConfig { cluster, boot: BootId::new(1), news: News::default() };
//! let server = Server::spawn(&tasks, transport.listen().await?, config);
//! server.enroll_tree(applier);
//! server.allow(&ClusterId::new("us-east")?, None);
//! assert_eq!(server.status()[0].state, ReceiveState::Connecting);
//! server.stop().await;
//! # tasks.join().await;
//! # Ok(())
//! # }
//! ```

mod applier;
mod batch;
mod boots;
mod budget;
mod canaries;
mod demand;
mod faults;
mod gate;
mod held;
mod hello;
mod judging;
mod late;
mod link;
mod metrics;
mod orders;
#[cfg(test)]
#[path = "../tests/origin.rs"]
mod origin;
mod pause;
mod port;
mod refusal;
mod seeding;
mod server;
mod session;
mod settings;
mod sifting;
mod slot;
mod status;
mod tripwire;
mod turn;
mod view;

pub use applier::Applier;
pub use held::Held;
pub use metrics::ApplierMetrics;
pub use server::{Server, ServerConfig};
pub use settings::Settings;
pub use status::{ReceiveLag, ReceiveState, ReceiveStatus, WaitsFor};
