//! [`Failure`]: one line on stderr and an exit code.

use std::io;
use std::process::ExitCode;

use tidewire_core::error::{Error, ErrorKind};

use crate::config::ConfigError;

const KINDS: [ErrorKind; 9] = [
    ErrorKind::Invalid,
    ErrorKind::Unauthorized,
    ErrorKind::Refused,
    ErrorKind::NotFound,
    ErrorKind::Conflict,
    ErrorKind::TooLarge,
    ErrorKind::Busy,
    ErrorKind::Unavailable,
    ErrorKind::Corrupt,
];

/// Why a command did not do what it was asked. Exit codes: 1 the answer is no, 2 usage or configuration, 3 the server
/// cannot be reached or fails.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// The command or its configuration is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// The server cannot be reached or fails.
    pub(crate) fn server(message: impl Into<String>) -> Self {
        Self { code: 3, message: message.into() }
    }

    /// An HTTP answer other than success: the code of the kind that has this status.
    pub(crate) fn status(status: u16, message: impl Into<String>) -> Self {
        let kind = KINDS.iter().find(|kind| kind.http_status() == status);
        Self { code: kind.map_or(3, |kind| kind.exit_code()), message: message.into() }
    }

    /// Whether the server cannot be reached or fails, so that the same request may succeed later.
    pub(crate) fn is_servers(&self) -> bool {
        self.code == 3
    }

    /// The same, and what to do about it.
    #[must_use]
    pub(crate) fn with(mut self, advice: &str) -> Self {
        self.message = format!("{}; {advice}", self.message);
        self
    }

    /// Prints the failure and turns it into the process's exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            for line in self.message.lines() {
                #[expect(
                    clippy::print_stderr,
                    reason = "the one place where the command line reports failures"
                )]
                {
                    eprintln!("tidewire: {line}");
                }
            }
        }
        ExitCode::from(self.code)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { code: error.kind().exit_code(), message: error.to_string() }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<io::Error> for Failure {
    /// Writing to stdout or reading from stdin failed. Whoever closes the pipe has seen enough: that is no failure.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { code: 0, message: String::new() };
        }
        Self { code: 2, message: format!("standard input or output: {error}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_the_exit_code_of_its_kind() {
        for kind in KINDS {
            assert_eq!(Failure::status(kind.http_status(), "").code, kind.exit_code(), "{}", kind.name());
        }
        assert_eq!(Failure::status(502, "").code, 3);
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).code, 0);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::StorageFull)).code, 2);
    }
}
