//! [`Input`] and [`View`]: what sessions hand to the applier of their tree, and what it shows them.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidewire_core::id::OriginTag;
use tidewire_core::letters::Letter;
use tidewire_core::transport::pages::Page;
use tidewire_core::tree::Progress;

use crate::budget::Permit;
use crate::gate::Waiting;
use crate::pause::Stall;
use crate::port::Port;
use crate::session::Heartbeat;

/// What a session hands over.
#[derive(Debug)]
pub(crate) enum Input {
    Page(Page, Permit, Vec<Letter>),
    Heartbeat(Heartbeat),
}

/// How things stand after a round of the applier.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// What is applied.
    pub(crate) progress: Progress,
    /// What waits for dependencies.
    pub(crate) waiting: Vec<Waiting>,
    /// Whose writes neighbours are asked for.
    pub(crate) wanted: BTreeSet<OriginTag>,
    /// Why the tree takes nothing at present.
    pub(crate) stalled: Option<Arc<Stall>>,
    /// The tree takes nothing any more.
    pub(crate) closed: bool,
    /// How many seeds it has taken, and how often other keys were to be held: a session from before does not know where the
    /// tree stands, or filters for others.
    pub(crate) epoch: u64,
}

impl View {
    /// What waits for dependencies of the origins that a link carries.
    pub(crate) fn waiting<'a>(&'a self, port: &'a Port) -> impl Iterator<Item = &'a Waiting> + 'a {
        self.waiting.iter().filter(|waiting| port.carries(waiting.origin))
    }
}
