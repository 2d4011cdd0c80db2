//! [`ByteSize`]: a number of bytes as people write it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes, written as a whole number and a unit: `"64MiB"`, `"1GiB"`, `"512B"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

impl ByteSize {
    /// What a wrong value is told.
    pub const ALLOWED: &'static str = "a whole number with a unit (B, KiB, MiB, GiB), such as \"64MiB\"";

    /// A number of bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of bytes as a length in memory; held at the largest one on a machine where it does not fit.
    pub fn as_len(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0B");
        }
        let (unit, size) =
            UNITS.iter().find(|(_, size)| self.0.is_multiple_of(*size)).copied().unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / size)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{text:?} is not a size; allowed: {}", Self::ALLOWED);
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| refused())?;
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
        number.checked_mul(*size).map(Self).ok_or_else(refused)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        for text in ["0B", "512B", "64KiB", "1536KiB", "64MiB", "1GiB"] {
            assert_eq!(text.parse::<ByteSize>().expect(text).to_string(), text);
        }
        assert_eq!(ByteSize::new(2048).to_string(), "2KiB");
    }

    #[test]
    fn decimal_units_and_overflow_are_refused_with_the_units() {
        for text in ["1MB", "1 MiB", "64", "MiB", "1.5GiB", "18446744073709551615GiB"] {
            let error = text.parse::<ByteSize>().expect_err(text);
            assert!(error.contains("B, KiB, MiB, GiB"), "{error}");
        }
    }
}
