//! A session in which a peer is seeded: all that is applied here goes out, instead of pages.
//!
//! First the log is held from its present end on, then the position is taken, then the state is read: in that order,
//! or what lies between would be lost to the peer. Then the session ends, and the next one goes on behind the position.

use std::sync::Arc;

use tidewire_core::error::LinkError;
use tidewire_core::id::{ClusterId, Incarnation, OriginTag};
use tidewire_core::transport::Link;
use tidewire_core::transport::wire::{self, Frame, frame::Body};
use tidewire_core::tree::LogView;
use tokio::time::{Instant, sleep_until};

use crate::error::ShipError;
use crate::handshake::Welcomed;
use crate::outbox::Outbox;
use crate::sink::Shipper;

/// When a peer takes a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeedTerms {
    /// Whatever the log here holds.
    pub(crate) now: bool,
    /// Else when the log here lacks what the peer needs of one of these.
    pub(crate) origins: Vec<OriginTag>,
}

impl SeedTerms {
    /// Whether it takes one because the log lacks what it needs of an origin.
    pub(crate) fn cover(&self, origin: OriginTag) -> bool {
        self.now || self.origins.contains(&origin)
    }
}

/// The bytes of a seed on their way: never more than the bound of them without an acknowledgement. Pure.
#[derive(Debug)]
struct Flow {
    number: u64,
    bound: u64,
    sent: u64,
    acknowledged: u64,
    whole: bool,
    heard_at: Instant,
}

impl Flow {
    fn has_room(&self) -> bool {
        !self.whole && self.sent - self.acknowledged < self.bound
    }

    fn begin(&self, origins: &[(ClusterId, Incarnation)]) -> Frame {
        let origins = origins.iter().map(|(name, incarnation)| wire::ForwardedOrigin {
            name: name.to_string(),
            incarnation: incarnation.get(),
        });
        Frame::new(self.number, Body::SnapshotBegin(wire::SnapshotBegin { origins: origins.collect() }))
    }

    /// The next piece as it leaves, or the end.
    fn send(&mut self, piece: Option<bytes::Bytes>) -> Frame {
        let body = match piece {
            Some(bytes) => {
                let at = self.sent;
                self.sent += bytes.len() as u64;
                Body::SnapshotChunk(wire::SnapshotChunk { at, bytes })
            }
            None => {
                self.whole = true;
                Body::SnapshotEnd(wire::SnapshotEnd { bytes: self.sent })
            }
        };
        Frame::new(self.number, body)
    }

    /// Takes a frame of the peer. True: the seed is taken over.
    fn receive(&mut self, frame: Frame, peer: &ClusterId, now: Instant) -> Result<bool, ShipError> {
        if frame.session != self.number {
            return Ok(false);
        }
        self.heard_at = now;
        let peer = peer.clone();
        match frame.body {
            Some(Body::Ack(ack)) if ack.snapshot_bytes <= self.sent => {
                self.acknowledged = self.acknowledged.max(ack.snapshot_bytes);
                Ok(false)
            }
            Some(Body::Goodbye(_)) if self.whole => Ok(true),
            Some(Body::Goodbye(wire::Goodbye { reason })) => Err(ShipError::Ended { peer, reason }),
            Some(Body::Refusal(wire::Refusal { kind, detail, retry })) => {
                Err(ShipError::Refused { peer, kind, detail, retry })
            }
            _ => Err(ShipError::protocol(&peer, "a snapshot is answered by acks, a refusal or goodbye")),
        }
    }
}

impl Shipper {
    /// Seeds a peer that has welcomed this and takes a snapshot. Ready when the peer has taken it over.
    pub(crate) async fn seed(
        &mut self,
        link: Link,
        welcomed: &Welcomed,
        log: &Arc<dyn LogView>,
    ) -> Result<(), ShipError> {
        let (tree, peer) = (log.identity().tree, self.peer().clone());
        (self.config.hold)(log.end());
        let mut seed = log.seed(&welcomed.interest).await?;
        let mut flow = Flow {
            number: welcomed.session.get(),
            bound: self.config.settings.window_bytes,
            sent: 0,
            acknowledged: 0,
            whole: false,
            heard_at: Instant::now(),
        };
        let Link { sender, mut receiver, .. } = link;
        let mut outbox = Outbox::new(sender);
        outbox.push(flow.begin(&seed.origins()));
        tracing::info!(%tree, %peer, session = %welcomed.session, position = %seed.position(), "sending a snapshot");
        let link_error = |error: LinkError| ShipError::Link { peer: peer.clone(), error };
        loop {
            self.board().seeding(&peer, flow.sent);
            while outbox.is_empty() && flow.has_room() {
                let piece = seed.next().await?;
                outbox.push(flow.send(piece));
            }
            let silent_at = flow.heard_at + self.config.settings.silence_timeout;
            tokio::select! { biased;
                frame = receiver.receive() => {
                    let Some(frame) = frame.map_err(link_error)? else {
                        let reason = "the stream ended within a snapshot".to_owned();
                        return Err(ShipError::Ended { peer, reason });
                    };
                    if flow.receive(frame, &peer, Instant::now())? {
                        break;
                    }
                }
                sent = outbox.drive(), if !outbox.is_empty() => sent.map_err(link_error)?,
                () = sleep_until(silent_at) => {
                    return Err(ShipError::Silent { peer, silence: self.config.settings.silence_timeout });
                }
            }
        }
        tracing::info!(%tree, %peer, bytes = flow.sent, "the peer has taken the snapshot over");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Flow {
        let heard_at = Instant::now();
        Flow { number: 3, bound: 10, sent: 0, acknowledged: 0, whole: false, heard_at }
    }

    fn frame(body: Body) -> Frame {
        Frame::new(3, body)
    }

    fn ack(snapshot_bytes: u64) -> Frame {
        frame(Body::Ack(wire::Ack { snapshot_bytes, ..wire::Ack::default() }))
    }

    #[test]
    fn no_more_bytes_are_on_their_way_than_the_bound_and_one_piece() {
        let (mut flow, peer, now) = (flow(), ClusterId::new("there").unwrap(), Instant::now());
        let piece = || Some(bytes::Bytes::from_static(b"seven b"));
        assert!(flow.has_room());
        flow.send(piece());
        assert!(flow.has_room(), "7 of 10");
        let Some(Body::SnapshotChunk(second)) = flow.send(piece()).body else { panic!("a chunk") };
        assert_eq!(second.at, 7);
        assert!(!flow.has_room());
        assert!(!flow.receive(ack(7), &peer, now).unwrap() && flow.has_room());
        assert!(flow.receive(ack(15), &peer, now).is_err(), "more than was sent");
        flow.send(None);
        assert!(!flow.has_room(), "it is whole");
    }

    #[test]
    fn f46_only_a_goodbye_behind_the_end_says_that_a_seed_is_taken_over() {
        let (mut flow, peer, now) = (flow(), ClusterId::new("there").unwrap(), Instant::now());
        let goodbye = || frame(Body::Goodbye(wire::Goodbye { reason: "over".into() }));
        assert!(matches!(flow.receive(goodbye(), &peer, now), Err(ShipError::Ended { .. })));
        flow.send(None);
        assert!(!flow.receive(Frame { session: 2, ..goodbye() }, &peer, now).unwrap(), "of another session");
        assert!(flow.receive(goodbye(), &peer, now).unwrap());
    }
}
