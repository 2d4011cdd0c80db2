//! The types of sinks that are built in: what `type` in `[[sinks]]` can be.
//!
//! To add a connector: a row here, and its keys in `SINK_TYPES` of `schema.rs`; a test compares the two.

use serde::de::DeserializeOwned;
use tidewire_connectors::InvalidSettings;
use tidewire_core::sink::Sink;

/// A type of sink.
pub(crate) struct SinkType {
    /// Its name in a configuration.
    pub(crate) name: &'static str,
    /// Reads and checks its settings, and makes a sink of them that has touched nothing yet: no file, no connection, no
    /// thread. Also called only to check.
    pub(crate) build: fn(toml::Table) -> Result<Box<dyn Sink>, InvalidSettings>,
}

/// Every type that is built in, in the order in which people are told.
pub(crate) const BUILT_IN: &[SinkType] = &[
    #[cfg(feature = "jsonl")]
    SinkType { name: "jsonl", build: |table| build(table, tidewire_connectors::jsonl::JsonlSink::new) },
    #[cfg(feature = "kafka")]
    SinkType { name: "kafka", build: |table| build(table, tidewire_connectors::kafka::KafkaSink::new) },
];

/// The type of a name.
///
/// # Errors
/// A sentence that names those there are.
pub(crate) fn named(name: &str) -> Result<&'static SinkType, String> {
    let names: Vec<String> = BUILT_IN.iter().map(|built| format!("{:?}", built.name)).collect();
    BUILT_IN.iter().find(|built| built.name == name).ok_or_else(|| match names.as_slice() {
        [] => format!("{name:?} is not known: no sink type is built in; remove this [[sinks]] entry"),
        names => format!("{name:?} is not known; allowed: {}", names.join(", ")),
    })
}

/// From a table to the connector's own struct, and from there to its sink.
#[cfg_attr(
    not(any(feature = "jsonl", feature = "kafka")),
    expect(dead_code, reason = "no connector is built in")
)]
fn build<C: DeserializeOwned, S: Sink + 'static>(
    table: toml::Table,
    make: impl FnOnce(C) -> Result<S, InvalidSettings>,
) -> Result<Box<dyn Sink>, InvalidSettings> {
    let config = table.try_into().map_err(|error: toml::de::Error| {
        InvalidSettings::form(error.message().lines().collect::<Vec<_>>().join(", "))
    })?;
    Ok(Box::new(make(config)?))
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;
    use crate::config::schema::SINK_TYPES;

    #[test]
    fn every_type_that_can_be_built_has_its_keys_in_the_schema() {
        let built: Vec<&str> = BUILT_IN.iter().map(|built| built.name).collect();
        let described: Vec<&str> = SINK_TYPES.iter().map(|(name, _)| *name).collect();
        assert_eq!(built, described);
    }
}
