//! What a gRPC status means for a link.

use tidewire_core::error::{LinkError, LinkErrorKind};
use tonic::{Code, Status};

/// The far side's status as an error of the link.
pub(super) fn from_status(remote: &str, status: &Status) -> LinkError {
    let kind = match status.code() {
        Code::OutOfRange
        | Code::InvalidArgument
        | Code::Unimplemented
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated => LinkErrorKind::Protocol,
        _ => LinkErrorKind::Unreachable,
    };
    LinkError::new(kind, format!("{remote}: {}", describe(status)))
}

/// The status with the deepest cause that it carries: "transport error" alone helps nobody.
fn describe(status: &Status) -> String {
    let mut deepest = std::error::Error::source(status);
    while let Some(cause) = deepest.and_then(|error| error.source()) {
        deepest = Some(cause);
    }
    match deepest {
        Some(cause) => format!("{} ({cause})", status.message()),
        None => status.message().to_owned(),
    }
}
