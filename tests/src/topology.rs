//! [`Topology`]: who sends to whom, and who is a relay.

use tidewire_core::random::Random;

/// One site sends to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Who sends.
    pub from: usize,
    /// To whom.
    pub to: usize,
    /// Whether what came from elsewhere is sent on too.
    pub forward: bool,
}

/// A shape of links in which everything reaches everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each sends to the next one, round and round: every write but those of the neighbour comes by relays.
    Ring,
    /// Each sends to both neighbours: every write comes from two sides.
    TwoWayRing,
    /// All but the first are linked with the first alone.
    Star,
    /// Each is linked with those beside it.
    Chain,
    /// Four sites: from the first to the last there are two ways.
    Diamond,
    /// Each sends to each, and everybody forwards: as many duplicates as can be.
    Flood,
    /// Each sends to each, and some of the links forward, by lot.
    MixedMesh,
}

impl Topology {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Ring, Self::TwoWayRing, Self::Star, Self::Chain, Self::Diamond, Self::Flood, Self::MixedMesh];

    /// How many sites a test takes.
    pub const fn sites(self) -> usize {
        match self {
            Self::Ring | Self::Flood | Self::MixedMesh => 3,
            Self::TwoWayRing | Self::Star | Self::Chain | Self::Diamond => 4,
        }
    }

    /// The links between that many sites.
    pub fn edges(self, random: &Random) -> Vec<Edge> {
        let sites = self.sites();
        let forward = |from, to| Edge { from, to, forward: true };
        let both = |pairs: Vec<(usize, usize)>| {
            pairs.into_iter().flat_map(|(a, b)| [forward(a, b), forward(b, a)]).collect()
        };
        match self {
            Self::Ring => (0..sites).map(|at| forward(at, (at + 1) % sites)).collect(),
            Self::TwoWayRing => both((0..sites).map(|at| (at, (at + 1) % sites)).collect()),
            Self::Star => both((1..sites).map(|at| (0, at)).collect()),
            Self::Chain => both((1..sites).map(|at| (at - 1, at)).collect()),
            Self::Diamond => both(vec![(0, 1), (0, 2), (1, 3), (2, 3)]),
            Self::Flood => pairs(sites).map(|(from, to)| forward(from, to)).collect(),
            Self::MixedMesh => {
                pairs(sites).map(|(from, to)| Edge { from, to, forward: random.chance(0.5) }).collect()
            }
        }
    }
}

fn pairs(sites: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..sites).flat_map(move |from| (0..sites).map(move |to| (from, to))).filter(|(from, to)| from != to)
}
