//! Clusters of this process, for the demo and for measurements: real files in a temporary directory, real gRPC sockets on
//! loopback, links that can be cut.

mod latencies;
mod probes;
mod quartiles;
mod site;

pub(crate) use latencies::{Latencies, millis};
pub(crate) use probes::{PREFIX as PROBE_PREFIX, Probes};
pub(crate) use quartiles::Quartiles;
pub(crate) use site::{LocalSite, connect_all, runtime};
