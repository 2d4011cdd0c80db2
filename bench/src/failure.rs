//! What goes wrong in a measurement ends it; all that is needed is a text.

/// Any error.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
/// A result of a measurement.
pub type Outcome<T> = Result<T, Failure>;
