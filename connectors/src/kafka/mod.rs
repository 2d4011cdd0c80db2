//! Kafka: every effective change of a tree as a message of a topic. At least once, in the order of the log for each
//! key, and never a message left out: `docs/kafka.md` says what that means to whoever reads the topic.
//!
//! A run numbers its messages from 0 and hands them to the client of librdkafka (`run::Run`), a thread polls the
//! client (`producer::Producer`) and notes which numbers have arrived (`progress::Progress`, `delivered::Delivered`);
//! a group of the log is durable when every number below its end has arrived (`ledger::Ledger`).
//!
//! Invariants: nothing is answered as durable before all brokers that have to have it said so; a message that is refused
//! ends the run, and no later one of its partition arrives before it is sent again; at the bound of the queue the sink
//! waits. Nothing here blocks a worker of the runtime.

mod client;
mod config;
mod delivered;
mod faults;
mod ledger;
mod partitioner;
mod producer;
mod progress;
mod run;
mod sink;
mod stall;
mod stamp;
#[cfg(test)]
mod tests;
mod topic;
mod topic_name;

pub use config::{Compression, KafkaConfig, KafkaDelivery, KafkaSecurity, SecurityProtocol, ValueFormat};
/// The client library, in the version and with the features of the sink.
pub use rdkafka;
pub use sink::KafkaSink;
