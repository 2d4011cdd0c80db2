//! [`ReadBuffers`]: buffers of one follower, used again when nobody holds a slice of them any more.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// Most buffers that wait to be used again.
const KEPT: usize = 4;
/// Larger ones are let go of.
const LARGEST: usize = 2 * 1024 * 1024;

type Shelf = Mutex<Vec<Vec<u8>>>;

/// The buffers of one follower of a log: a fresh one costs a page fault every 4 KiB. Cheap to clone; clones share. Once the
/// last clone is dropped, a buffer that is still in use is let go of when it is not.
#[derive(Clone, Debug, Default)]
pub struct ReadBuffers(Arc<Shelf>);

impl ReadBuffers {
    /// A buffer of a length, of which nothing is known.
    pub(super) fn take(&self, length: usize) -> Buffer {
        let mut bytes = self.0.lock().pop().unwrap_or_default();
        if bytes.len() < length {
            bytes.resize(length, 0);
        }
        Buffer { bytes, length, home: Arc::downgrade(&self.0) }
    }
}

/// A buffer that returns to where it came from.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    length: usize,
    home: Weak<Shelf>,
}

impl Buffer {
    pub(super) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }

    /// To be shared; it returns when the last slice is dropped.
    pub(super) fn share(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade().filter(|_| self.bytes.len() <= LARGEST) {
            let mut kept = home.lock();
            if kept.len() < KEPT {
                kept.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_nobody_holds_it_and_not_after_its_owner() {
        let buffers = ReadBuffers::default();
        let first = buffers.take(1_000).share();
        let (at, part) = (first.as_ptr(), first.slice(10..20));
        drop(first);
        assert!(buffers.0.lock().is_empty(), "a slice of it is held");
        drop(part);
        let mut again = buffers.take(900);
        assert_eq!((again.as_mut().as_ptr(), again.as_mut().len()), (at, 900));
        let held = again.share();
        let home = Arc::downgrade(&buffers.0);
        drop(buffers);
        drop(held);
        assert!(home.upgrade().is_none());
        let many = ReadBuffers::default();
        let taken: Vec<Buffer> = (0..9).map(|_| many.take(100)).collect();
        drop(taken);
        drop(many.take(LARGEST + 1));
        assert!(many.0.lock().len() <= KEPT, "a bounded number waits");
        assert!(many.0.lock().iter().all(|kept| kept.len() <= LARGEST));
    }
}
