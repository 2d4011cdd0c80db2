//! [`Token`]: what a client has seen, as text that it can carry to another cluster.

use std::fmt;
use std::str::FromStr;

use crate::causal::VersionVector;
use crate::error::{Error, ErrorKind};
use crate::id::{Hlc, OriginTag};
use crate::limits::MAX_KNOWN_CLUSTERS;

/// A frontier that a read can ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Token(VersionVector);

impl Token {
    /// The token of a frontier.
    pub fn new(frontier: VersionVector) -> Self {
        Self(frontier)
    }

    /// What it asks for.
    pub fn frontier(&self) -> &VersionVector {
        &self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("t1")?;
        for (origin, hlc) in self.0.iter() {
            write!(f, ".{:x}-{:x}", origin.get(), hlc.get())?;
        }
        Ok(())
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || {
            Error::new(ErrorKind::Invalid, "this is no Tidewire-Token; send one back as a write answered it")
        };
        let mut parts = text.trim().split('.');
        if parts.next() != Some("t1") {
            return Err(invalid());
        }
        let entries: Option<Vec<(OriginTag, Hlc)>> = parts
            .take(MAX_KNOWN_CLUSTERS + 1)
            .map(|part| {
                let (origin, hlc) = part.split_once('-')?;
                let origin = u64::from_str_radix(origin, 16).ok()?;
                Some((OriginTag::new(origin), Hlc::new(u64::from_str_radix(hlc, 16).ok()?)))
            })
            .collect();
        let entries = entries.filter(|entries| entries.len() <= MAX_KNOWN_CLUSTERS).ok_or_else(invalid)?;
        Ok(Self(entries.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_being_text() {
        let vector =
            [(OriginTag::new(7), Hlc::new(9)), (OriginTag::new(u64::MAX), Hlc::new(1))].into_iter().collect();
        let token = Token::new(vector);
        assert_eq!(token.to_string().parse::<Token>().expect("parses"), token);
        assert_eq!(Token::default().to_string().parse::<Token>().expect("parses"), Token::default());
        for bad in ["", "t2", "t1.5", "t1.x-1", &format!("t1{}", ".1-1".repeat(300))] {
            assert!(bad.parse::<Token>().is_err(), "{bad}");
        }
    }
}
