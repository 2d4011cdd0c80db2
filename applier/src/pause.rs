//! [`Pause`]: why an applier takes nothing of a link for now. Pure.
//!
//! A pause is said in every acknowledgement until it ends, with a credit of 0: both ends show it under the same name, and
//! nobody has to end it.

use tidewire_core::transport::wire;

/// The names are part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseKind {
    /// The log has no room on the disk.
    DiskFull,
    /// The log takes no groups for another reason.
    LogFailing,
    /// A group waits long for the log: what is pending is at its bound, or the disk is slow.
    LogBusy,
    /// The buffers are full, and what the peer sent waits for writes of other clusters.
    Held,
}

impl PauseKind {
    /// The name on the wire and in status.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DiskFull => "disk_full",
            Self::LogFailing => "log_failing",
            Self::LogBusy => "log_busy",
            Self::Held => "held",
        }
    }
}

/// Why nothing is taken now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// What kind.
    pub(crate) kind: PauseKind,
    /// What was met, for people.
    pub(crate) detail: String,
}

impl Pause {
    pub(crate) fn to_wire(&self) -> wire::Pause {
        wire::Pause { kind: self.kind.name().into(), detail: self.detail.clone() }
    }
}

/// Why the tree takes nothing of anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    /// The log has failed; what came is kept and tried again.
    Failing {
        /// There is no room on the disk.
        full: bool,
        /// What the log said.
        said: String,
    },
    /// A call of the log has not been answered for long.
    Busy,
}

impl Stall {
    /// What is said to peers.
    pub(crate) fn pause(&self) -> Pause {
        match self {
            Self::Failing { full: true, said } => Pause { kind: PauseKind::DiskFull, detail: said.clone() },
            Self::Failing { full: false, said } => {
                Pause { kind: PauseKind::LogFailing, detail: said.clone() }
            }
            Self::Busy => Pause {
                kind: PauseKind::LogBusy,
                detail: "a group waits for the log here, which is saturated or slow".to_owned(),
            },
        }
    }
}

/// Why a link is paused, if it is: the log, or buffers that are full of what waits for other clusters.
pub(crate) fn pause(stall: Option<&Stall>, credit: u64, held: u64) -> Option<Pause> {
    let waits = || Pause {
        kind: PauseKind::Held,
        detail: format!("{held} bytes wait for writes of other clusters, and there is no more room"),
    };
    stall.map(Stall::pause).or_else(|| (credit == 0 && held > 0).then(waits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_names_the_nearest_cause_and_none_is_none() {
        let full = Stall::Failing { full: true, said: "no space".into() };
        let failing = Stall::Failing { full: false, said: "broken".into() };
        let kind = |stall, credit, held| pause(stall, credit, held).map(|pause| pause.kind);
        assert_eq!(kind(Some(&full), 0, 7), Some(PauseKind::DiskFull));
        assert_eq!(kind(Some(&failing), 0, 0), Some(PauseKind::LogFailing));
        assert_eq!(kind(Some(&Stall::Busy), 0, 7), Some(PauseKind::LogBusy));
        assert_eq!(kind(None, 0, 7), Some(PauseKind::Held));
        assert_eq!(kind(None, 1, 7), None, "there is room");
        assert_eq!(kind(None, 0, 0), None, "what came is on its way into the log");
    }
}
