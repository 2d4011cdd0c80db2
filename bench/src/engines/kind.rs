//! [`Engine`]: the names of those who are measured.

use serde::{Deserialize, Serialize};

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The bare loop.
    Bare,
    /// Tidewire's log: writer and files, nothing applies it.
    Log,
    /// A whole tree of Tidewire.
    Tree,
    /// raft-engine.
    RaftEngine,
    /// walrus-rust.
    Walrus,
    /// okaywal.
    Okaywal,
    /// fjall.
    Fjall,
    /// redb.
    Redb,
    /// RocksDB.
    #[cfg(feature = "rocksdb")]
    Rocksdb,
}

impl Engine {
    /// Those that others wrote.
    pub const PEERS: &[Self] = &[
        Self::RaftEngine,
        Self::Walrus,
        Self::Okaywal,
        Self::Fjall,
        Self::Redb,
        #[cfg(feature = "rocksdb")]
        Self::Rocksdb,
    ];

    /// How it is called in tables and directories.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare loop",
            Self::Log => "tidewire log",
            Self::Tree => "tidewire tree",
            Self::RaftEngine => "raft-engine",
            Self::Walrus => "walrus",
            Self::Okaywal => "okaywal",
            Self::Fjall => "fjall",
            Self::Redb => "redb",
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => "rocksdb",
        }
    }

    /// Whether others wrote it.
    pub fn is_peer(self) -> bool {
        Self::PEERS.contains(&self)
    }
}
