//! [`FormatError`]: why bytes are not what they claim to be.

/// Why bytes are not a block, record, frame or segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The structure does not start with its magic.
    #[error("no {0} starts here")]
    Magic(&'static str),
    /// A version that this program does not know.
    #[error("{what} version {found} is not known here, only {known}; a newer Tidewire wrote it")]
    Version {
        /// Which structure.
        what: &'static str,
        /// The version in the bytes.
        found: u16,
        /// The version that is known.
        known: u16,
    },
    /// Fewer bytes than the structure needs.
    #[error("{0} is cut short")]
    Short(&'static str),
    /// The checksum does not match.
    #[error("checksum of {0} does not match")]
    Checksum(&'static str),
    /// A field has a value that cannot be.
    #[error("{0}")]
    Field(&'static str),
    /// A record kind that this program does not know.
    #[error("record kind {0} is not known here")]
    Kind(u8),
}
