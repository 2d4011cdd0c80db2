//! [`HttpConfig`]: where the API listens and what it lets in.

use std::fmt;
use std::net::SocketAddr;

use tidewire_core::limits::Limits;

/// What an API is told.
#[derive(Clone)]
pub struct HttpConfig {
    /// Where it listens. Port 0 picks a free one.
    pub address: SocketAddr,
    /// What requests under `/v1` have to present as `Authorization: Bearer`; none: anybody may.
    pub token: Option<String>,
    /// Largest value in bytes that is read at all; the tree then checks key and value together.
    pub max_record_bytes: usize,
    /// Largest batch in bytes of JSON that is read at all.
    pub max_batch_bytes: usize,
}

impl HttpConfig {
    /// Bounds that let in what a tree with these limits can take; no token.
    pub fn new(address: SocketAddr, limits: &Limits) -> Self {
        Self {
            address,
            token: None,
            max_record_bytes: limits.max_record_bytes,
            // Base64 takes four bytes for three, and the names of the fields come on top.
            max_batch_bytes: limits.pending_bytes.max(limits.max_record_bytes).saturating_mul(2),
        }
    }
}

impl fmt::Debug for HttpConfig {
    /// Says whether there is a token, not which.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("address", &self.address)
            .field("token", &self.token.as_ref().map(|_| "..."))
            .field("max_record_bytes", &self.max_record_bytes)
            .field("max_batch_bytes", &self.max_batch_bytes)
            .finish()
    }
}
