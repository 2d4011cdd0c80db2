//! [`InvalidSettings`]: what is wrong with the settings of a connector, one entry for each broken rule.

use std::fmt;

use tidewire_core::error::{Error, ErrorKind, SinkError, SinkErrorKind};

/// Settings that cannot work. Holds at least one problem; prints them on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSettings(Vec<(String, String)>);

impl InvalidSettings {
    /// `Err` if there are problems: each the key, and what was given, what is allowed, what to do.
    ///
    /// # Errors
    /// The problems.
    pub fn unless_empty(problems: Vec<(String, String)>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self(problems)) }
    }

    /// Settings whose form is wrong, and nobody knows in which key.
    pub fn form(message: impl Into<String>) -> Self {
        Self(vec![(String::new(), message.into())])
    }

    /// The problems: keys and messages.
    pub fn problems(&self) -> &[(String, String)] {
        &self.0
    }
}

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, message)) in self.0.iter().enumerate() {
            let gap = if index > 0 { "; " } else { "" };
            let colon = if key.is_empty() { "" } else { ": " };
            write!(f, "{gap}{key}{colon}{message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidSettings {}

impl From<InvalidSettings> for SinkError {
    fn from(invalid: InvalidSettings) -> Self {
        Self::new(SinkErrorKind::Config, invalid.to_string())
    }
}

impl From<InvalidSettings> for Error {
    fn from(invalid: InvalidSettings) -> Self {
        Self::new(ErrorKind::Invalid, invalid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_told_on_one_line() {
        let problems = [("path", "is empty"), ("", "odd")].map(|(key, said)| (key.into(), said.into()));
        let invalid = InvalidSettings::unless_empty(problems.into()).expect_err("two");
        assert_eq!(SinkError::from(invalid).to_string(), "path: is empty; odd");
        assert_eq!(InvalidSettings::unless_empty(Vec::new()), Ok(()));
    }
}
