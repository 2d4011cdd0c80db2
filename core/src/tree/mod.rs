//! The tree: takes writes into its log, applies what is durable, answers reads.
//!
//! Nothing else writes its log, and nothing outside changes its state but through [`ApplyTarget::apply`].

mod identity;
mod log_view;
mod target;

pub use identity::{Consistency, MergeMode, TreeIdentity};
pub use log_view::{Located, LogView};
pub use target::{Applied, ApplyTarget, Progress, ReadyGroup};
