//! [`Contender`]: a log whose writers are tasks.

use bytes::Bytes;
use tidewire_core::record::Mutation;
use tidewire_core::tree::{Operation, Tree};

use crate::bare::Bare;
use crate::engines::TideLog;
use crate::failure::Outcome;

/// What is asked of it. The future ends when the write is durable.
pub trait Contender: Clone + Send + Sync + 'static {
    /// One record.
    fn append(&self, key: [u8; 16], value: &Bytes) -> impl Future<Output = Outcome<()>> + Send;

    /// Several records as one durable write.
    fn append_many(&self, keys: Vec<[u8; 16]>, value: &Bytes) -> impl Future<Output = Outcome<()>> + Send;
}

impl Contender for Bare {
    async fn append(&self, _key: [u8; 16], value: &Bytes) -> Outcome<()> {
        Ok(Self::append(self, value, 1).await?)
    }

    async fn append_many(&self, keys: Vec<[u8; 16]>, value: &Bytes) -> Outcome<()> {
        Ok(Self::append(self, value, keys.len()).await?)
    }
}

impl Contender for TideLog {
    async fn append(&self, key: [u8; 16], value: &Bytes) -> Outcome<()> {
        let set = Mutation::set(Bytes::copy_from_slice(&key), value.clone());
        self.writer().append(std::slice::from_ref(&set)).await?;
        Ok(())
    }

    async fn append_many(&self, keys: Vec<[u8; 16]>, value: &Bytes) -> Outcome<()> {
        let sets: Vec<Mutation> = slices(keys).map(|key| Mutation::set(key, value.clone())).collect();
        self.writer().append(&sets).await?;
        Ok(())
    }
}

impl Contender for Tree {
    async fn append(&self, key: [u8; 16], value: &Bytes) -> Outcome<()> {
        self.put(Bytes::copy_from_slice(&key), value.clone()).await?;
        Ok(())
    }

    async fn append_many(&self, keys: Vec<[u8; 16]>, value: &Bytes) -> Outcome<()> {
        let sets = slices(keys).map(|key| Operation::Set(key, value.clone())).collect();
        self.batch(sets).await?;
        Ok(())
    }
}

/// Keys as slices of one buffer: how they come out of a request.
fn slices(keys: Vec<[u8; 16]>) -> impl Iterator<Item = Bytes> {
    let mut buffer = Bytes::from_owner(keys.into_flattened());
    std::iter::from_fn(move || (!buffer.is_empty()).then(|| buffer.split_to(16)))
}
