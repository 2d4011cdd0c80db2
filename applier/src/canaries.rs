//! [`Canaries`]: promises whose way is measured, until they hold here. Pure.

use tidewire_core::causal::VersionVector;
use tidewire_core::id::{Hlc, OriginTag};

/// So many are followed at once; further ones are not measured.
const MOST: usize = 256;

/// Promises on their way through the gate.
#[derive(Debug, Default)]
pub(crate) struct Canaries(Vec<(OriginTag, Hlc)>);

impl Canaries {
    /// A promise was taken. It holds once everything before it is applied.
    pub(crate) fn set_out(&mut self, origin: OriginTag, closed: Hlc) {
        if self.0.len() < MOST {
            self.0.push((origin, closed));
        }
    }

    /// Those that hold by now, each once.
    pub(crate) fn arrived(&mut self, frontier: &VersionVector) -> Vec<(OriginTag, Hlc)> {
        self.0.extract_if(.., |(origin, closed)| frontier.get(*origin) >= *closed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_arrives_once_and_only_when_its_promise_holds() {
        let (a, b) = (OriginTag::new(1), OriginTag::new(2));
        let mut canaries = Canaries::default();
        canaries.set_out(a, Hlc::new(5));
        canaries.set_out(b, Hlc::new(5));
        let mut frontier = VersionVector::default();
        frontier.raise(a, Hlc::new(4));
        assert_eq!(canaries.arrived(&frontier), []);
        frontier.raise(a, Hlc::new(9));
        assert_eq!(canaries.arrived(&frontier), [(a, Hlc::new(5))]);
        assert_eq!(canaries.arrived(&frontier), []);
        (0..2 * MOST).for_each(|_| canaries.set_out(b, Hlc::new(5)));
        frontier.raise(b, Hlc::new(5));
        assert_eq!(canaries.arrived(&frontier).len(), MOST, "bounded");
    }
}
