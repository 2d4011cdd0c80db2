//! Dead letters: records that can never be taken, kept aside so that what stands behind them goes on.
//!
//! [`LetterStore`] keeps named pieces of bytes durably and within a bound; whoever parks something uses it: a sink for
//! what its destination does not take, a tree for what it cannot apply. [`TreeLetters`] are those of a tree. Such a letter is
//! parked durably before its block is appended; the block lies in the log as it came, so a relay passes on what it was
//! sent, and only the state here lacks the record. [`Parked`] is what follows from that: what is left out when a block is
//! applied, and what may not be claimed meanwhile.

mod fault;
mod letter;
mod parked;
mod store;
mod tree_letters;

pub use fault::RecordFault;
pub use letter::{Fate, Letter, Stretch};
pub use parked::{LeftOut, Parked};
pub use store::LetterStore;
pub use tree_letters::TreeLetters;
