//! [`Failure`]: why a request was not done, as an answer.

use axum::http::StatusCode;
use axum::http::header::{ALLOW, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tidewire_core::error::{Error, ErrorKind};

use super::json::json_answer;

/// Seconds after which it is worth asking again.
const RETRY_SECONDS: &str = "1";

/// What went wrong with a request.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error with its kind.
    Error(Error),
    /// The path exists, the method does not; these do.
    Method(&'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The request is wrong.
pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// An error as it appears in JSON.
pub(super) fn error_json(error: &Error) -> serde_json::Value {
    json!({"error": {"kind": error.kind().name(), "message": error.to_string()}})
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (error, status, extra): (Error, u16, Option<(HeaderName, &'static str)>) = match self {
            Self::Method(allow) => {
                let error = invalid(format!("this path takes {allow} only"));
                (error, StatusCode::METHOD_NOT_ALLOWED.as_u16(), Some((ALLOW, allow)))
            }
            Self::Error(error) => {
                let extra = match error.kind() {
                    ErrorKind::Busy => Some((RETRY_AFTER, RETRY_SECONDS)),
                    ErrorKind::Unauthorized => Some((WWW_AUTHENTICATE, "Bearer")),
                    _ => None,
                };
                let status = error.kind().http_status();
                (error, status, extra)
            }
        };
        let status = StatusCode::from_u16(status).expect("every kind has a valid status");
        (status, extra.map(|extra| [extra]), json_answer(&error_json(&error))).into_response()
    }
}
