//! The settings of the gRPC transport and its fixed bounds, each with its reason.

use std::time::Duration;

use serde::Deserialize;
use tidewire_core::error::{LinkError, LinkErrorKind};
use tidewire_core::limits::{Limits, MAX_RECORD_BYTES_CEILING};

/// Unread bytes that a peer may send on one stream: 8 MiB fill 160 MB/s at 50 ms of distance.
pub const STREAM_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// Unread bytes that a peer may send on one connection: all its streams full, so that no tree that is not read holds back
/// another one.
pub const CONNECTION_WINDOW_BYTES: u32 = MAX_STREAMS * STREAM_WINDOW_BYTES;
/// Largest HTTP/2 frame: a quarter of a page part, so that big pages cost few frame headers.
pub const FRAME_BYTES: u32 = 64 * 1024;
/// Largest list of headers of one request; gRPC needs a few hundred bytes.
pub const HEADER_BYTES: u32 = 8 * 1024;
/// Streams that one connection may have open at once.
pub const MAX_STREAMS: u32 = 8;
/// Connections that have not said `Hello` (or have no link any more). At the bound the oldest of them is closed for the
/// newest, so that idle strangers cannot keep a peer out.
pub const MAX_STRANGERS: usize = 64;
/// How long a connection may stay without a link, and a stream without its `Hello`.
pub const HELLO_DEADLINE: Duration = Duration::from_secs(5);
/// Largest first frame of a stream: a `Hello` that knows 256 names of 63 bytes and forwards as many has 37 KiB.
pub const HELLO_BYTES: usize = 48 * 1024;
/// What all strangers together can make this process hold: for each of them a frame being read, a first message being
/// put together (its stated length, and one frame that exceeds it) and the headers of its streams. Until a connection
/// has a link, only one of its streams is read, and what comes on others is dropped unread.
pub const STRANGER_BYTES: usize = MAX_STRANGERS
    * (2 * FRAME_BYTES as usize + HELLO_BYTES + (MAX_STREAMS as usize) * (HEADER_BYTES as usize));
/// A silent connection is asked for a sign of life after this time, and given up on after the same time again.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a dial may take to connect, and then to be answered.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a closing listener lets its links end in order before it breaks them, and how long a
/// dialled link that was closed and dropped lives on for its last frames.
pub const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Part of a message that is not one record: headers of block, group, page and frame.
const MESSAGE_OVERHEAD: usize = 64 * 1024;
/// Smallest limit of a message, however small the records: parts of pages aim at 256 KiB.
const MESSAGE_BYTES_MIN: usize = 1024 * 1024;

/// The settings of the gRPC transport.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcConfig {
    /// Host and port to listen on. Port 0 picks a free one. Default `127.0.0.1:7400`.
    pub listen: String,
    /// The largest record of any tree, in bytes: a message must hold one. Default 1 MiB, at most 16 MiB. A peer whose
    /// limit is lower refuses what is larger, so clusters that replicate a tree agree on it.
    pub max_record_bytes: usize,
}

impl Default for GrpcConfig {
    fn default() -> Self {
        Self { listen: "127.0.0.1:7400".into(), max_record_bytes: Limits::default().max_record_bytes }
    }
}

impl GrpcConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// `Config` with the setting, what it is and what it may be.
    pub fn validate(self) -> Result<Self, LinkError> {
        if self.max_record_bytes == 0 || self.max_record_bytes > MAX_RECORD_BYTES_CEILING {
            let (is, most) = (self.max_record_bytes, MAX_RECORD_BYTES_CEILING);
            let message = format!("max_record_bytes is {is}; it must be from 1 to {most}");
            return Err(LinkError::new(LinkErrorKind::Config, message));
        }
        Ok(self)
    }

    /// The limit of one message, both ways.
    pub(super) fn message_bytes(&self) -> usize {
        self.max_record_bytes.max(MESSAGE_BYTES_MIN) + MESSAGE_OVERHEAD
    }
}
