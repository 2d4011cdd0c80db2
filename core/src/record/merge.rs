//! [`MergeMode`]: how concurrent writes of one key become one. Pinned in the log.

use std::fmt;

/// How concurrent writes of one key become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MergeMode {
    /// The greatest version wins.
    #[default]
    LastWriterWins,
}

impl MergeMode {
    /// The name in configuration and in Hello.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LastWriterWins => "lww",
        }
    }

    /// The mode of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        (name == "lww").then_some(Self::LastWriterWins)
    }
}

impl fmt::Display for MergeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
