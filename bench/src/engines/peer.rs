//! [`Peer`]: an engine that blocks its caller until a write is durable. Its writers are threads, as its authors meant it.

use std::path::Path;

use super::kind::Engine;
use crate::failure::Outcome;
use crate::turn::Work;

/// What is asked of a peer. A call returns when the write is durable.
pub trait Peer: Send + Sync {
    /// One record.
    fn append(&self, writer: usize, key: &[u8; 16], value: &[u8]) -> Outcome<()>;

    /// Several records as one durable write; in the stream of one writer.
    fn append_many(&self, writer: usize, keys: &[[u8; 16]], value: &[u8]) -> Outcome<()>;

    /// Reads everything that writer 0 wrote, by the fastest way there is; returns how many records there were.
    fn read_all(&self) -> Outcome<u64>;
}

/// Opens a peer in a directory, or creates it there, for some work: the settings that suit it may differ.
pub fn open(engine: Engine, dir: &Path, work: &Work) -> Outcome<Box<dyn Peer>> {
    Ok(match engine {
        Engine::RaftEngine => Box::new(super::raft::Raft::open(dir)?),
        Engine::Walrus => Box::new(super::walrus::Walruses::open(dir, work)?),
        Engine::Okaywal => Box::new(super::okaywal::Okay::open(dir)?),
        Engine::Fjall => Box::new(super::fjall::Fjall::open(dir)?),
        Engine::Redb => Box::new(super::redb::Redb::open(dir)?),
        #[cfg(feature = "rocksdb")]
        Engine::Rocksdb => Box::new(super::rocks::Rocks::open(dir)?),
        Engine::Bare | Engine::Log | Engine::Tree => return Err("this is no peer".into()),
    })
}
