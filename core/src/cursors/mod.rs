//! Where the consumers of a log stand, durably: what the log may forget is decided from this and nothing else.

mod registry;

pub use registry::{Consumer, Registry, ReportOutcome, Window};
