//! [`Rounds`]: everybody's turns, round after round, so that whatever else the machine does falls on everybody.

use crate::engines::Engine;
use crate::failure::Outcome;
use crate::figures::Quartiles;
use crate::turn::Figures;

/// A variant of what is measured: who, and under which name.
#[derive(Clone, Debug)]
pub struct Side {
    pub name: String,
    pub engine: Engine,
}

impl Side {
    pub fn of(engine: Engine) -> Self {
        Self { name: engine.name().to_owned(), engine }
    }
}

/// What came out: for each side, a figure for each round.
#[derive(Debug)]
pub struct Rounds {
    pub sides: Vec<(Side, Vec<Figures>)>,
}

impl Rounds {
    /// A round that does not count, then so many that do. Every other round goes backwards: nobody always comes first.
    pub fn run(
        sides: Vec<Side>,
        rounds: usize,
        mut turn: impl FnMut(&Side) -> Outcome<Figures>,
    ) -> Outcome<Self> {
        let mut results: Vec<(Side, Vec<Figures>)> =
            sides.into_iter().map(|side| (side, Vec::new())).collect();
        for (side, _) in &results {
            turn(side)?;
        }
        for round in 0..rounds {
            let count = results.len();
            for place in 0..count {
                let at = if round % 2 == 0 { place } else { count - 1 - place };
                let (side, figures) = &mut results[at];
                figures.push(turn(side)?);
            }
        }
        Ok(Self { sides: results })
    }

    /// The figures of a side.
    pub fn figures(&self, name: &str) -> &[Figures] {
        self.sides.iter().find(|(side, _)| side.name == name).map_or(&[], |(_, figures)| figures)
    }

    /// A figure of each round of a side.
    pub fn each(&self, name: &str, figure: impl Fn(&Figures) -> f64) -> Vec<f64> {
        self.figures(name).iter().map(figure).collect()
    }

    /// One side by another, round by round.
    pub fn ratio(&self, of: &str, by: &str, figure: impl Fn(&Figures) -> f64) -> Quartiles {
        let pairs = self.figures(of).iter().zip(self.figures(by));
        Quartiles::of(pairs.map(|(of, by)| figure(of) / figure(by)))
    }

    /// The peer with the best median.
    pub fn best_peer(&self, figure: impl Fn(&Figures) -> f64, higher: bool) -> Option<String> {
        let peers = self.sides.iter().filter(|(side, _)| side.engine.is_peer());
        let medians =
            peers.map(|(side, all)| (side.name.clone(), Quartiles::of(all.iter().map(&figure)).median));
        let best = medians.reduce(|a, b| if (a.1 >= b.1) == higher { a } else { b });
        best.map(|(name, _)| name)
    }
}
