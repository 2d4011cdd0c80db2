//! How people write a span of time and a number of bytes in settings: a whole number and a unit, nothing else.

mod duration;
mod size;

pub use duration::HumanDuration;
pub use size::ByteSize;
