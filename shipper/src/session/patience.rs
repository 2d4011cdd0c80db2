//! How long a [`Session`] waits for its peer, and what it says meanwhile.

use tokio::time::Instant;

use super::Session;
use crate::error::ShipError;

impl Session {
    /// When [`on_time`](Self::on_time) has something to say.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let waiting = (self.is_owed() && !self.waits).then(|| self.moved_at + self.settings.ack_timeout);
        [waiting, self.silent_at(), self.flow.turn_at()].into_iter().flatten().min()
    }

    /// Whether anything waits for the peer, not for its own turn under a limit.
    fn is_owed(&self) -> bool {
        !self.ledger.is_empty() || self.wave.is_some() && self.flow.turn_at().is_none()
    }

    /// When the peer's silence is taken for death. What it holds back for the sake of others' writes it may hold long.
    fn silent_at(&self) -> Option<Instant> {
        let owes = !self.ledger.is_empty() && self.held == 0;
        owes.then(|| self.heard_at + self.settings.silence_timeout)
    }

    /// Notices that nothing has happened for too long.
    ///
    /// # Errors
    /// When the session is to be given up.
    pub(crate) fn on_time(&mut self, now: Instant) -> Result<(), ShipError> {
        if self.silent_at().is_some_and(|at| at <= now) {
            let silence = now.duration_since(self.heard_at);
            return Err(ShipError::Silent { peer: self.peer.clone(), silence });
        }
        self.waits = self.is_owed() && now.duration_since(self.moved_at) >= self.settings.ack_timeout;
        self.flow.on_time(now);
        Ok(())
    }

    /// Why nothing has become durable for long, if that is so.
    pub(crate) fn waits(&self) -> Option<String> {
        let (peer, bytes, held) = (&self.peer, self.ledger.bytes(), self.held);
        let paused = self.flow.paused(peer);
        if paused.is_some() || !self.waits {
            return paused;
        }
        Some(if held > 0 {
            format!("{peer} holds {held} bytes back until writes of other clusters have reached it")
        } else if self.window.credit() == 0 {
            format!("{peer} takes nothing now: it has no room, and has given no credit")
        } else {
            let timeout = self.settings.ack_timeout.as_secs();
            format!("{peer} has acknowledged nothing for {timeout} s or more, {bytes} bytes are on their way")
        })
    }
}
