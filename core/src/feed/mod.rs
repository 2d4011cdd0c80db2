//! The feed: a tree's log in order, as whole groups, for whoever keeps a cursor.

mod batch;
mod cursor;
#[cfg(any(test, feature = "test-util"))]
mod memory;
mod reader;

pub use batch::{Batch, Resolved};
pub use cursor::Cursor;
#[cfg(any(test, feature = "test-util"))]
pub use memory::MemFeed;
pub use reader::{FeedError, FeedReader, FeedSource};
