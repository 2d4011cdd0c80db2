//! The feed: a tree's log in order, as whole groups, for whoever keeps a cursor.

mod batch;
mod cursor;
mod filtered;
mod reader;
mod rows;

pub use batch::{Batch, Resolved};
pub use cursor::Cursor;
pub use filtered::{FeedOptions, FilteredBatch};
pub use reader::{FeedError, FeedReader, FeedSource};
pub use rows::{StateRow, StateRows};
