//! The feed: a tree's log in order, as whole groups, for whoever keeps a cursor.

mod batch;
mod cursor;
mod filtered;
mod reader;

pub use batch::{Batch, Resolved};
pub use cursor::Cursor;
pub use filtered::{FeedOptions, FilteredBatch};
pub use reader::{FeedError, FeedReader, FeedSource};
