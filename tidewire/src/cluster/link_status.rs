//! What links show of themselves: one entry for each peer, tree and direction.

use tidewire_applier::{Held, ReceiveState, ReceiveStatus};
use tidewire_core::id::{ClusterId, TreeName};
use tidewire_core::tree::LogView;
use tidewire_shipper::ShipperStatus;

use super::links::{Enrolled, Links, consumer};
use crate::status::{ComesFrom, Direction, Lag, PeerState, PeerStatus, WaitingPins, WaitingStatus, WaitsFor};

impl Links {
    /// Every link: one entry for each peer, tree and direction.
    pub(super) fn status(&self) -> Vec<PeerStatus> {
        let now = self.wall.now_millis();
        let state = self.state.lock();
        let sending = state.shippers.iter().map(|((peer, tree), shipper)| {
            let pins = state.trees.get(tree).map_or(0, |enrolled| pinned(enrolled, peer));
            send_status(peer, tree, &shipper.status(), pins, now)
        });
        let mut all: Vec<PeerStatus> = sending.collect();
        drop(state);
        if let Some(server) = self.server() {
            all.extend(server.status().into_iter().map(|status| receive_status(status, now)));
        }
        all.sort_by(|a, b| (&a.id, &a.tree, a.direction as u8).cmp(&(&b.id, &b.tree, b.direction as u8)));
        all
    }

    /// What has come into a tree and waits for writes of others.
    pub(super) fn waiting(&self, tree: &TreeName) -> Vec<WaitingStatus> {
        let Some(enrolled) = self.state.lock().trees.get(tree).cloned() else { return Vec::new() };
        let held = enrolled.applier.held();
        let Some(server) = self.server().filter(|_| !held.is_empty()) else { return Vec::new() };
        let now = self.wall.now_millis();
        let links = self.status();
        let waits = |held: Held| {
            let on = enrolled.tree.origin_name(held.on);
            let carriers = server.carriers(tree, held.on);
            let brings = |link: &&PeerStatus| {
                let here = link.tree == tree.as_str() && link.direction == Direction::Receive;
                here && (link.id == on || carriers.iter().any(|peer| *peer.as_str() == link.id))
            };
            let from = links
                .iter()
                .filter(brings)
                .map(|link| ComesFrom { peer: link.id.clone(), state: link.state });
            WaitingStatus {
                origin: enrolled.tree.origin_name(held.origin),
                bytes: held.bytes,
                since_ms: now.saturating_sub((held.seconds * 1_000.0) as u64),
                waits_for: WaitsFor {
                    origin: on.clone(),
                    hlc: held.until.to_string(),
                    from: from.collect(),
                    asked: held.asked,
                },
                pins: WaitingPins {
                    logs_of: server.carriers(tree, held.origin).iter().map(ToString::to_string).collect(),
                    reaping_above: held.reached.to_string(),
                },
            }
        };
        held.into_iter().map(waits).collect()
    }
}

/// Bytes of a log from where a peer needs it, by what is stored.
fn pinned(enrolled: &Enrolled, peer: &ClusterId) -> u64 {
    let name = consumer(peer);
    let stored = enrolled.cursors.stored().into_iter().find(|(registered, _)| *registered == name);
    stored.map_or(0, |(_, at)| {
        enrolled.tree.bytes_after(at.map_or_else(|| enrolled.tree.first().lsn, |cursor| cursor.lsn))
    })
}

fn send_status(peer: &ClusterId, tree: &TreeName, status: &ShipperStatus, pins: u64, now: u64) -> PeerStatus {
    let paused = || format!("paused by the operator; {pins} bytes of the log are held for it");
    PeerStatus {
        id: peer.to_string(),
        tree: tree.to_string(),
        direction: Direction::Send,
        state: status.state,
        reason: match status.state {
            PeerState::Paused => status.reason.clone().or_else(|| Some(paused())),
            _ => status.reason.clone(),
        },
        lag: Lag { entries: status.lag.entries, bytes: status.lag.bytes, seconds: status.lag.seconds as f64 },
        dead_letters: 0,
        applied_without_dependencies: 0,
        last_ack: status
            .last_ack
            .map(|ago| now.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))),
    }
}

fn receive_status(status: ReceiveStatus, now: u64) -> PeerStatus {
    PeerStatus {
        id: status.id,
        tree: status.tree,
        direction: Direction::Receive,
        state: match status.state {
            ReceiveState::Connecting => PeerState::Connecting,
            ReceiveState::Streaming => PeerState::Streaming,
            ReceiveState::CaughtUp => PeerState::CaughtUp,
            ReceiveState::Waiting => PeerState::Waiting,
            ReceiveState::Paused => PeerState::Paused,
            ReceiveState::Refused => PeerState::Refused,
        },
        reason: status.reason,
        lag: Lag { entries: status.lag.entries, bytes: status.lag.bytes, seconds: status.lag.seconds },
        last_ack: status.last_page_seconds.map(|ago| now.saturating_sub((ago * 1_000.0) as u64)),
        dead_letters: status.dead_letters,
        applied_without_dependencies: status.applied_without_dependencies,
    }
}
