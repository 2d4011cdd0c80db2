//! A link that brings a seed: the whole state of the peer, instead of pages. The thin part around [`Staging`].
//!
//! The bytes go to the disk as they come, and the link is not read before they are kept: that is all the flow control
//! there is on this side. What is kept is acknowledged, and an acknowledgement is repeated while the seed is joined with
//! the tree, so that the peer knows that somebody is alive here.

use std::sync::Arc;
use std::time::Duration;

use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::{ClusterId, Incarnation, TreeName};
use tidewire_core::tree::{Imported, LateRows, Staging};
use tokio::time::{Instant, sleep_until};

use crate::applier::Applier;
use crate::link::{End, Running, SHUTTING_DOWN};
use crate::port::Ending;
use crate::refusal::{Refusal, RefusalKind};
use crate::session::Event;
use crate::turn::Work;

/// A peer that sends nothing of a seed for so long has died; another one may seed the tree then.
const SILENCE: Duration = Duration::from_secs(30);
/// How often it is said again that a seed is being taken.
const REPEAT: Duration = Duration::from_secs(5);
/// Bytes after which they are acknowledged.
const ACK_BYTES: u64 = 1024 * 1024;
/// How often a long seed is told of in the log.
const TELL: Duration = Duration::from_secs(5);

/// The seed of one tree, from one peer, on its way in: shown as long as this lives.
pub(crate) struct Seeding {
    applier: Applier,
}

impl Seeding {
    fn begin(applier: &Applier, peer: &ClusterId) -> Self {
        applier.show_seed(Some((peer.clone(), 0)));
        Self { applier: applier.clone() }
    }

    fn show(&self, peer: &ClusterId, bytes: u64) {
        self.applier.show_seed(Some((peer.clone(), bytes)));
    }
}

impl Drop for Seeding {
    fn drop(&mut self) {
        self.applier.show_seed(None);
    }
}

impl Running {
    /// Takes a seed that the peer has begun, to its end. The session ends with it either way.
    pub(crate) async fn take_seed(&mut self, origins: Vec<(ClusterId, Incarnation)>) -> End {
        match self.receive_seed(origins).await {
            Ok(()) => End::Here(Ending::Goodbye("the snapshot is taken over")),
            Err(end) => end,
        }
    }

    async fn receive_seed(&mut self, origins: Vec<(ClusterId, Incarnation)>) -> Result<(), End> {
        let (applier, peer) = (self.applier.clone(), self.port.peer.clone());
        let tree = applier.identity().tree.clone();
        for (name, incarnation) in origins.iter().filter(|(name, _)| *name != applier.identity().cluster) {
            applier.target().enroll(name, *incarnation).await.map_err(|error| refused(&error))?;
            applier.metrics(name);
        }
        let mut staging = applier.target().stage().await.map_err(|error| refused(&error))?;
        let seeding = Seeding::begin(&applier, &peer);
        tracing::info!(%tree, %peer, "a snapshot comes in");
        let (mut heard, mut told) = (Instant::now(), Instant::now());
        loop {
            self.check_epoch()?;
            let frame = tokio::select! { biased;
                () = self.stop.cancelled() => return Err(SHUTTING_DOWN),
                ending = self.port.ended() => return Err(End::Here(ending)),
                () = self.view.changed() => continue,
                frame = self.receiver.receive() => frame,
                () = sleep_until(heard + SILENCE) => {
                    return Err(End::There(format!("nothing of the snapshot came for {} s", SILENCE.as_secs())));
                }
            };
            heard = Instant::now();
            self.slot.heard();
            let Ok(Some(frame)) = frame else {
                return Err(End::There("the peer ended the link within a snapshot".to_owned()));
            };
            let event = self.session.receive(frame, &|_| None);
            match event.map_err(|refusal| End::Here(Ending::Refused(refusal)))? {
                Event::SeedBytes(piece) => {
                    staging.write(piece).await.map_err(|error| refused(&error))?;
                    seeding.show(&peer, staging.bytes());
                    self.tell(&tree, &peer, staging.bytes(), &mut told);
                    if staging.bytes() >= self.session.seed_acknowledged() + ACK_BYTES {
                        self.acknowledge_seed(staging.bytes()).await?;
                    }
                }
                Event::SeedEnd => break,
                Event::Goodbye(reason) => return Err(End::There(reason)),
                _ => {}
            }
        }
        self.acknowledge_seed(staging.bytes()).await?;
        self.import(staging, &tree, &peer).await
    }

    fn tell(&self, tree: &TreeName, peer: &ClusterId, bytes: u64, told: &mut Instant) {
        if told.elapsed() >= TELL {
            *told = Instant::now();
            tracing::info!(%tree, %peer, bytes, "a snapshot comes in");
        }
    }

    /// Has the seed joined with the tree, and tells the peer now and then that this goes on.
    async fn import(
        &mut self,
        staging: Box<dyn Staging>,
        tree: &TreeName,
        peer: &ClusterId,
    ) -> Result<(), End> {
        let bytes = staging.bytes();
        tracing::info!(%tree, %peer, bytes, "a snapshot is whole and is joined with what is here");
        let applier = self.applier.clone();
        let mut answer = applier.turn(Work::Import(staging, self.port.clone())).await.ok_or(SHUTTING_DOWN)?;
        let imported = loop {
            let again = Instant::now() + REPEAT;
            tokio::select! { biased;
                () = self.stop.cancelled() => return Err(SHUTTING_DOWN),
                ending = self.port.ended() => return Err(End::Here(ending)),
                answer = &mut answer => break answer,
                () = sleep_until(again) => self.acknowledge_seed(bytes).await?,
            }
        };
        match imported {
            Ok(Ok(imported)) => {
                let Imported { rows, bytes, changed, rewritten } = imported.unwrap_or_default();
                tracing::info!(%tree, %peer, rows, bytes, changed, rewritten, "seeded from a snapshot");
                Ok(())
            }
            Ok(Err(error)) => Err(refused(&error)),
            Err(_) => Err(SHUTTING_DOWN),
        }
    }

    async fn acknowledge_seed(&mut self, bytes: u64) -> Result<(), End> {
        let ack = self.session.acknowledge_seed(bytes);
        self.send(ack).await
    }
}

/// What is answered when a seed cannot be taken.
fn refused(error: &Error) -> End {
    let cause = std::error::Error::source(error);
    let kind = match error.kind() {
        _ if cause.is_some_and(|cause| cause.is::<LateRows>()) => RefusalKind::Reaped,
        ErrorKind::Busy => RefusalKind::Busy,
        ErrorKind::Conflict => RefusalKind::Incarnation,
        ErrorKind::Refused => RefusalKind::ClockSkew,
        ErrorKind::Corrupt => RefusalKind::Checksum,
        _ if error.is_shutting_down() => return SHUTTING_DOWN,
        _ => RefusalKind::Unavailable,
    };
    End::Here(Ending::Refused(Refusal::new(kind, error.to_string())))
}

/// Whose seed comes in, and how many bytes have come.
pub(crate) type Shown = Arc<parking_lot::Mutex<Option<(ClusterId, u64)>>>;
