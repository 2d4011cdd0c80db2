//! What makes links: the transport, which dials, and its listener, which accepts.

use async_trait::async_trait;

use super::link::Link;
use crate::error::LinkError;
use crate::id::ClusterId;

/// Whom to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialTarget {
    /// The cluster that should answer. The session checks that it does.
    pub peer: ClusterId,
    /// Where it is; what this may look like is the transport's affair.
    pub url: String,
}

/// A way to reach other clusters. One per cluster, used by every shipper at once.
///
/// An implementation bounds by constants what a stranger can make it reserve, notices a dead far side within 30 seconds,
/// and passes [`conformance`](super::conformance).
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Opens a link. Bounded in time by the transport (about 5 seconds); dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// `Unreachable` when nobody answers, `Config` when the url cannot work, `Protocol` when something else answers.
    async fn dial(&self, target: &DialTarget) -> Result<Link, LinkError>;

    /// Starts to accept links, at the address that the transport was made with. Called once.
    ///
    /// # Errors
    /// `Config` when the address cannot work or is taken.
    async fn listen(&self) -> Result<Box<dyn Listener>, LinkError>;
}

/// Accepts the links that others dial.
#[async_trait]
pub trait Listener: Send {
    /// The next link. A caller that misbehaves costs its own connection and is never an error here. Cancel-safe.
    ///
    /// # Errors
    /// `Closed` after [`close`](Self::close), or when the transport can accept no more.
    async fn accept(&mut self) -> Result<Link, LinkError>;

    /// The address where others can dial, with the port that was really bound.
    fn address(&self) -> String;

    /// Stops accepting and frees the address. Links that were accepted earlier may break with it, after a moment to end in
    /// order, so a session says its goodbyes first. When this returns, no task of the listener is left. May be repeated;
    /// dropping a listener does the same without the moment.
    async fn close(&mut self);
}
