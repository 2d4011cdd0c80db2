//! [`SeedReader`]: the state of a tree as a stream of bytes, for a cluster that lacks what the log here has let go of.
//!
//! The bytes are those of a snapshot file, read from memory: its header first, with the position, then chunks of
//! entries, then the footer. The entries may be newer than the position; the log from the position on gives the rest.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

use crate::error::{Error, ErrorKind};
use crate::feed::Cursor;
use crate::id::{ClusterId, Incarnation};
use crate::record::Interest;
use crate::tree::Tree;
use crate::tree::log_view::LogView;
use crate::tree::reaping::Reading;
use crate::tree::snapshot::{ChunkBuilder, ChunkPlace, SnapshotFooter, SnapshotHeader, read_some};

/// The largest piece of a seed: what one message carries.
pub const SEED_PIECE_BYTES: usize = 256 * 1024;

/// A seed on its way out.
#[async_trait]
pub trait SeedReader: Send {
    /// Where the log goes on for whoever takes it.
    fn position(&self) -> Cursor;

    /// Every origin that the seed may name, the giver included.
    fn origins(&self) -> Vec<(ClusterId, Incarnation)>;

    /// The next bytes, at most [`SEED_PIECE_BYTES`]; None behind the last. Not cancel-safe: a reader that was dropped
    /// half way is of no use any more.
    ///
    /// # Errors
    /// When the tree takes over a seed itself: the reader is over then.
    async fn next(&mut self) -> Result<Option<Bytes>, Error>;
}

/// A seed of a tree.
pub(in crate::tree) struct Giving {
    tree: Tree,
    epoch: u64,
    header: SnapshotHeader,
    footer: SnapshotFooter,
    /// What the taker holds.
    interest: Interest,
    chunk: ChunkBuilder,
    /// What was made and not handed out.
    made: BytesMut,
    /// How many bytes were made.
    at: u64,
    after: Option<Bytes>,
    /// Nothing is left to be made.
    whole: bool,
    _reading: Reading,
}

impl Tree {
    /// Begins a seed at the present position, of the keys that the taker holds.
    pub(in crate::tree) fn give_seed(&self, interest: &Interest) -> Result<Giving, Error> {
        if !self.0.seeds.holes().is_empty() {
            // It would claim writes of its own that it does not have.
            let said = "this log went back to an older copy, and waits for a seed itself";
            return Err(Error::new(ErrorKind::Unavailable, said));
        }
        let epoch = self.0.seeds.epoch();
        let (mut header, reading) = self.snapshot_header(0);
        {
            // It stands for nothing that is parked here: whoever takes it goes on with that from the log.
            let state = self.0.applied.state.read();
            header.progress.frontier = state.parked.claimed(&header.progress.frontier);
            header.progress.watermarks = state.parked.covered(&header.progress.watermarks);
        }
        header.ranges.retain(|range| interest.overlaps(&range.from, &range.to));
        let mut giving = Giving {
            tree: self.clone(),
            epoch,
            footer: SnapshotFooter::new(header.covered),
            header,
            interest: interest.clone(),
            chunk: ChunkBuilder::default(),
            made: BytesMut::new(),
            at: 0,
            after: None,
            whole: false,
            _reading: reading,
        };
        giving.check()?;
        let first = giving.header.encode();
        giving.put(&first);
        Ok(giving)
    }
}

impl Giving {
    /// Whether what was read until now can be given. A state that is joined with a seed at this moment is of no history.
    fn check(&self) -> Result<(), Error> {
        let (seeds, interest) = (&self.tree.0.seeds, &self.interest);
        if !seeds.whole().is_some_and(|whole| whole.includes(interest)) {
            // Whoever takes it deletes what it claims and lacks. Keys that are not held any more leave after this is so.
            let said = format!("not all of {interest} is whole here: seed from a cluster that holds it");
            return Err(Error::new(ErrorKind::Refused, said));
        }
        if seeds.epoch() == self.epoch && !seeds.is_joining() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unavailable, "this tree takes over a seed itself: ask again in a moment"))
    }

    fn put(&mut self, bytes: &[u8]) {
        self.at += bytes.len() as u64;
        self.made.extend_from_slice(bytes);
    }

    /// Makes one more chunk, or the footer.
    async fn make(&mut self) -> Result<(), Error> {
        self.check()?;
        let (applied, most) = (self.tree.0.applied.clone(), self.tree.0.limits.snapshot_chunk_bytes);
        let (mut chunk, mut after) = (std::mem::take(&mut self.chunk), self.after.take());
        let (incarnation, interest) = (self.header.incarnation, self.interest.clone());
        let index = self.footer.chunks.len();
        let filled = self.tree.0.tasks.blocking(move || {
            let mut more = true;
            while more && chunk.bytes() < most {
                (after, _) = read_some(&applied, &mut chunk, &interest, after.as_deref(), most / 4);
                more = after.is_some();
            }
            let (entries, raw) = (chunk.count(), chunk.bytes() as u64);
            let bytes = if entries > 0 { chunk.seal(incarnation, index) } else { Vec::new() };
            (bytes, entries, raw, after)
        });
        let (bytes, entries, raw, after) = filled.await?;
        self.after = after;
        if !bytes.is_empty() {
            self.footer.raw_bytes += raw;
            self.footer.entries += u64::from(entries);
            self.footer.chunks.push(ChunkPlace::of(self.at, entries, &bytes));
            self.put(&bytes);
        }
        if self.after.is_none() {
            self.footer.end = self.tree.0.applied.state.read().next_lsn;
            let footer = self.footer.encode(incarnation);
            self.put(&footer);
            self.whole = true;
        }
        Ok(())
    }
}

#[async_trait]
impl SeedReader for Giving {
    fn position(&self) -> Cursor {
        self.tree.cursor_at(self.header.covered)
    }

    fn origins(&self) -> Vec<(ClusterId, Incarnation)> {
        let own = (self.tree.0.identity.cluster.clone(), self.tree.0.identity.incarnation);
        let mut origins = LogView::origins(&self.tree);
        origins.push(own);
        origins
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let most = self.tree.0.limits.snapshot_chunk_bytes.min(SEED_PIECE_BYTES);
        while self.made.len() < most && !self.whole {
            self.make().await?;
        }
        // What was read before another seed came in is not sent after it.
        self.check()?;
        let piece = self.made.split_to(self.made.len().min(most));
        Ok((!piece.is_empty()).then(|| piece.freeze()))
    }
}
