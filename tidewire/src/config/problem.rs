//! [`ConfigError`]: everything that is wrong with a configuration, one [`Problem`] for each broken rule.

use std::fmt;

/// One thing that is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line of the file, where there is a file and the key is in it.
    pub line: Option<usize>,
    /// The path of the key, such as `peers[0].url`, or the name of an environment variable.
    pub key: String,
    /// What was given, what is allowed, what to do.
    pub message: String,
}

impl Problem {
    /// A problem whose line is not known.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { line: None, key: key.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// A configuration that cannot be used. Holds at least one problem; prints one line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    source: Option<String>,
    problems: Vec<Problem>,
}

impl ConfigError {
    /// `Err` if there are problems.
    pub(super) fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { source: None, problems }) }
    }

    /// Names the file in every line.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<String>) -> Self {
        self.source = Some(file.into());
        self
    }

    /// What is wrong, in the order of the rules.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self { source: None, problems: vec![problem] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            if let Some(source) = &self.source {
                write!(f, "{source}: ")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
