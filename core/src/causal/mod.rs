//! What is known to be complete: version vectors by origin, and watermarks by origin and partition.
//!
//! HLCs say how far an origin's history is complete and what a write may depend on; they never say that something
//! is a duplicate. Offsets alone do that.

mod vector;
mod watermarks;

pub use vector::VersionVector;
pub use watermarks::{OriginMarks, Watermark, Watermarks};
