//! [`Forward`]: `true`, `false` or `"on_demand"`.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Whether writes of other clusters are sent on to a peer; never its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forward {
    /// `false`: only what this cluster wrote.
    #[default]
    Never,
    /// `true`: everything.
    Always,
    /// `"on_demand"`: what the peer asks for, because writes there have waited for it too long.
    OnDemand,
}

impl Forward {
    const ON_DEMAND: &str = "on_demand";
}

impl From<bool> for Forward {
    fn from(forward: bool) -> Self {
        if forward { Self::Always } else { Self::Never }
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "false",
            Self::Always => "true",
            Self::OnDemand => Self::ON_DEMAND,
        })
    }
}

impl Serialize for Forward {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Never => serializer.serialize_bool(false),
            Self::Always => serializer.serialize_bool(true),
            Self::OnDemand => serializer.serialize_str(Self::ON_DEMAND),
        }
    }
}

impl<'de> Deserialize<'de> for Forward {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Forward;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or \"on_demand\"")
            }

            fn visit_bool<E: Error>(self, forward: bool) -> Result<Forward, E> {
                Ok(forward.into())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Forward, E> {
                match text {
                    Forward::ON_DEMAND => Ok(Forward::OnDemand),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
