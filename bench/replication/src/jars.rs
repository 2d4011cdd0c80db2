//! Where the jars of MirrorMaker 2 lie.

use std::path::PathBuf;

/// Where `scripts/kafka mirror-jars` puts what it fetches.
pub fn kafka_jars(version: &str) -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).unwrap_or_default();
    cache.join("tidewire").join(format!("kafka-{version}-mirror")).join("libs")
}
