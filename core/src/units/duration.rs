//! [`HumanDuration`]: a span of time as people write it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Units from the largest to the smallest, in microseconds.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// A span of time, written as a whole number and a unit: `"30s"`, `"100ms"`, `"5m"`. Exact to the microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(Duration);

impl HumanDuration {
    /// What a wrong value is told.
    pub const ALLOWED: &'static str = "a whole number with a unit (us, ms, s, m, h, d), such as \"30s\"";

    /// The duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl From<Duration> for HumanDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<HumanDuration> for Duration {
    fn from(duration: HumanDuration) -> Self {
        duration.0
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        if micros == 0 {
            return f.write_str("0s");
        }
        let fits = |&&(_, size): &&(&str, u64)| micros.is_multiple_of(u128::from(size));
        let (unit, size) = UNITS.iter().find(fits).copied().unwrap_or(("us", 1));
        write!(f, "{}{unit}", micros / u128::from(size))
    }
}

impl FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{text:?} is not a duration; allowed: {}", Self::ALLOWED);
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| refused())?;
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
        Ok(Self(Duration::from_micros(number.checked_mul(*size).ok_or_else(refused)?)))
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        for text in ["0s", "50us", "100ms", "90s", "5m", "36h", "2d"] {
            assert_eq!(text.parse::<HumanDuration>().expect(text).to_string(), text);
        }
        assert_eq!("60s".parse::<HumanDuration>().expect("60s").to_string(), "1m");
    }

    #[test]
    fn a_number_without_a_unit_or_beyond_the_range_is_refused() {
        for text in
            ["30", "s", "", "1.5s", "-1s", "5 m", "1min", "99999999999999999999s", "18446744073709551615d"]
        {
            let error = text.parse::<HumanDuration>().expect_err(text);
            assert!(error.contains("us, ms, s, m, h, d"), "{error}");
        }
    }
}
