//! The error of the library and those of its seams: a coarse kind, a context in words, a source.
//!
//! A kind exists only where a caller acts differently. [`ErrorKind`] fixes the HTTP status and the exit code, so
//! every surface says the same thing.

use std::fmt;
use std::sync::Arc;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is wrong, whatever the state of the system.
    Invalid,
    /// A credential is missing or wrong.
    Unauthorized,
    /// Understood, and not allowed.
    Refused,
    /// There is no such thing.
    NotFound,
    /// It does not fit the present state.
    Conflict,
    /// Over a limit that the message names.
    TooLarge,
    /// At a bound; the same request may succeed in a moment.
    Busy,
    /// The log failed, the disk is full, or the cluster is stopping: the write did not happen.
    Unavailable,
    /// Stored bytes are damaged.
    Corrupt,
}

impl ErrorKind {
    /// The name of the kind in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthorized => "unauthorized",
            Self::Refused => "refused",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::TooLarge => "too_large",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::Corrupt => "corrupt",
        }
    }

    /// The HTTP status of the kind.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthorized => 401,
            Self::Refused => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::Busy => 429,
            Self::Unavailable => 503,
            Self::Corrupt => 500,
        }
    }

    /// The exit code of the kind on the command line.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Invalid | Self::Unauthorized | Self::TooLarge => 2,
            Self::Refused | Self::NotFound | Self::Conflict | Self::Corrupt => 1,
            Self::Busy | Self::Unavailable => 3,
        }
    }
}

/// The error of the library. Cheap to clone: one failure is told to everybody who waited for it.
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    context: Arc<str>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of a kind, with what happened, where, and what to do.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into().into(), source: None }
    }

    /// Adds what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What a caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether a full disk is behind it: it passes when there is room.
    pub fn is_disk_full(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(self);
        while let Some(error) = cause {
            let io = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
            if matches!(io, Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)) {
                return true;
            }
            cause = error.source();
        }
        false
    }

    /// The error of everything that is asked of a stopping cluster.
    pub fn shutting_down() -> Self {
        Self::new(
            ErrorKind::Unavailable,
            "shutting down: no new writes are taken; retry on another cluster or after the restart",
        )
    }

    /// Whether this is [`Error::shutting_down`].
    pub fn is_shutting_down(&self) -> bool {
        self.kind == ErrorKind::Unavailable && self.context.starts_with("shutting down")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", self.kind.name())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn std::error::Error + 'static))
    }
}

macro_rules! seam_error {
    ($(#[$doc:meta])* $name:ident, $kind:ident { $($(#[$variant_doc:meta])* $variant:ident => $as_kind:ident),* $(,)? }) => {
        #[doc = concat!("What a caller can do about a [`", stringify!($name), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kind {
            $($(#[$variant_doc])* $variant,)*
        }

        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            kind: $kind,
            context: Arc<str>,
            source: Option<Arc<dyn std::error::Error + Send + Sync>>,
        }

        impl $name {
            /// An error of a kind, with what happened and what to do.
            pub fn new(kind: $kind, context: impl Into<String>) -> Self {
                Self { kind, context: context.into().into(), source: None }
            }

            /// Adds what caused it.
            #[must_use]
            pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
                self.source = Some(Arc::new(source));
                self
            }

            /// What a caller can do.
            pub fn kind(&self) -> $kind {
                self.kind
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.context)?;
                match &self.source {
                    Some(source) => write!(f, ": {source}"),
                    None => Ok(()),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}({self})", self.kind)
            }
        }

        impl std::error::Error for $name {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                self.source.as_ref().map(|source| source.as_ref() as &(dyn std::error::Error + 'static))
            }
        }

        impl From<$name> for Error {
            fn from(error: $name) -> Self {
                let kind = match error.kind {
                    $($kind::$variant => ErrorKind::$as_kind,)*
                };
                Self { kind, context: error.context, source: error.source }
            }
        }
    };
}

seam_error!(
    /// What a log provider or a disk answers when it fails.
    StorageError, StorageErrorKind {
        /// The file system is full; the same write works when there is room.
        Full => Unavailable,
        /// The operating system reported a failure.
        Io => Unavailable,
        /// The provider took longer than the writer's deadline.
        Deadline => Unavailable,
        /// Stored bytes do not match their checksum; the message names the place and the repair.
        Corrupt => Corrupt,
        /// A position below what is retained.
        Trimmed => Conflict,
        /// Another process holds the directory.
        Locked => Conflict,
        /// Written by a newer version, or under another identity.
        Unsupported => Refused,
        /// The provider is closed.
        Closed => Unavailable,
    }
);

seam_error!(
    /// What a transport answers when a link fails.
    LinkError, LinkErrorKind {
        /// The far side cannot be reached, or the link broke; dialling again may help.
        Unreachable => Unavailable,
        /// The far side broke the protocol or a limit.
        Protocol => Refused,
        /// The address or the settings cannot work.
        Config => Invalid,
        /// This side is closed.
        Closed => Unavailable,
    }
);

seam_error!(
    /// What a sink answers, by whose fault it is.
    SinkError, SinkErrorKind {
        /// This record can never be delivered; only such a record may be parked.
        Record => Refused,
        /// The destination is down or refuses; retried for ever, visibly.
        Destination => Unavailable,
        /// The settings cannot work; stops until they are changed.
        Config => Invalid,
        /// A passing fault; retried.
        Transient => Unavailable,
    }
);

seam_error!(
    /// What a metadata store answers when it fails.
    MetaError, MetaErrorKind {
        /// An expectation of the transaction did not hold; nothing was written.
        Conflict => Conflict,
        /// The store failed; a transaction is written whole or not at all, and reading says which.
        Io => Unavailable,
        /// Stored bytes are damaged.
        Corrupt => Corrupt,
        /// The store is closed.
        Closed => Unavailable,
    }
);
