//! The sink against the mock cluster of librdkafka: real sockets and the real client, brokers that do as they are told.

mod contract;
mod delivery;
mod reader;
mod real;
mod trouble;
mod world;
