//! [`VersionVector`]: a small sorted array of origin and HLC.

use crate::id::{Hlc, OriginTag};

/// A map from origin to HLC; an origin that is absent stands at [`Hlc::ZERO`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionVector(Vec<(OriginTag, Hlc)>);

impl VersionVector {
    /// The HLC of an origin.
    pub fn get(&self, origin: OriginTag) -> Hlc {
        self.find(origin).map_or(Hlc::ZERO, |at| self.0[at].1)
    }

    fn find(&self, origin: OriginTag) -> Result<usize, usize> {
        self.0.binary_search_by_key(&origin, |entry| entry.0)
    }

    /// Raises an origin to an HLC; says whether that changed anything. Never lowers.
    pub fn raise(&mut self, origin: OriginTag, hlc: Hlc) -> bool {
        match self.find(origin) {
            Ok(at) if self.0[at].1 >= hlc => false,
            Ok(at) => {
                self.0[at].1 = hlc;
                true
            }
            Err(_) if hlc == Hlc::ZERO => false,
            Err(at) => {
                self.0.insert(at, (origin, hlc));
                true
            }
        }
    }

    /// Whether every origin stands at or above where `other` has it.
    pub fn covers(&self, other: &Self) -> bool {
        self.first_missing(other).is_none()
    }

    /// The first origin that stands below where `other` has it, and what `other` asks for.
    pub fn first_missing(&self, other: &Self) -> Option<(OriginTag, Hlc)> {
        other.iter().find(|(origin, hlc)| self.get(*origin) < *hlc)
    }

    /// Raises every origin to where `other` has it.
    pub fn join(&mut self, other: &Self) {
        for (origin, hlc) in other.iter() {
            self.raise(origin, hlc);
        }
    }

    /// The pointwise minimum.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        self.iter()
            .map(|(origin, hlc)| (origin, hlc.min(other.get(origin))))
            .filter(|(_, hlc)| *hlc > Hlc::ZERO)
            .collect()
    }

    /// The entries, by origin.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (OriginTag, Hlc)> + '_ {
        self.0.iter().copied()
    }

    /// Whether no origin is present.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many origins are present.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<(OriginTag, Hlc)> for VersionVector {
    fn from_iter<I: IntoIterator<Item = (OriginTag, Hlc)>>(entries: I) -> Self {
        let mut vector = Self::default();
        for (origin, hlc) in entries {
            vector.raise(origin, hlc);
        }
        vector
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vectors() -> impl Strategy<Value = VersionVector> {
        proptest::collection::vec((0_u64..6, 0_u64..9), 0..8)
            .prop_map(|entries| entries.into_iter().map(|(o, h)| (OriginTag::new(o), Hlc::new(h))).collect())
    }

    proptest! {
        #[test]
        fn join_is_the_least_upper_bound_and_meet_the_greatest_lower(a in vectors(), b in vectors(), c in vectors()) {
            let mut up = a.clone();
            up.join(&b);
            prop_assert!(up.covers(&a) && up.covers(&b));
            let down = a.meet(&b);
            prop_assert!(a.covers(&down) && b.covers(&down));
            prop_assert_eq!(c.covers(&up), c.covers(&a) && c.covers(&b));
            prop_assert_eq!(down.covers(&c), a.covers(&c) && b.covers(&c));
        }

        #[test]
        fn covers_names_the_first_origin_that_is_missing(a in vectors(), b in vectors()) {
            match a.first_missing(&b) {
                None => prop_assert!(b.iter().all(|(o, h)| a.get(o) >= h)),
                Some((origin, hlc)) => prop_assert!(a.get(origin) < hlc && b.get(origin) == hlc),
            }
        }
    }
}
