//! [`JsonlConfig`]: where the lines go.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::InvalidSettings;

/// The settings of a JSON lines sink.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JsonlConfig {
    /// The file that lines are appended to, created when the first one comes; `-`: standard output.
    pub path: PathBuf,
}

impl JsonlConfig {
    /// Lines into this file, or to standard output for `-`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Checks every rule and hands the settings back unchanged.
    ///
    /// # Errors
    /// One problem for each broken rule.
    pub fn validate(self) -> Result<Self, InvalidSettings> {
        let mut problems = Vec::new();
        if !self.is_stdout() && self.path.file_name().is_none() {
            let said = format!("{:?} names no file; give one, or \"-\" for standard output", self.path);
            problems.push(("path".to_owned(), said));
        }
        InvalidSettings::unless_empty(problems)?;
        Ok(self)
    }

    pub(super) fn is_stdout(&self) -> bool {
        self.path.as_os_str() == "-"
    }
}
