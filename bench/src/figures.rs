//! [`Quartiles`]: the middle of a few measurements, and how far they spread.

use serde::Serialize;

/// Median and quartiles: each is a measured value, or lies half way between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quartiles {
    pub first: f64,
    pub median: f64,
    pub third: f64,
}

impl Quartiles {
    /// Of these values; all zero without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (lower, upper) = (&values[..values.len() / 2], &values[values.len().div_ceil(2)..]);
        let median = middle(&values);
        if lower.is_empty() {
            return Self { first: median, median, third: median };
        }
        Self { first: middle(lower), median, third: middle(upper) }
    }
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(half)) {
        (_, None) => 0.0,
        (1, Some(value)) => *value,
        (_, Some(value)) => f64::midpoint(sorted[half - 1], *value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_the_middles_of_the_halves() {
        let of = |values: &[f64]| {
            let quartiles = Quartiles::of(values.iter().copied());
            (quartiles.first, quartiles.median, quartiles.third)
        };
        assert_eq!(of(&[7.0, 1.0, 3.0, 5.0, 2.0, 6.0, 4.0]), (2.0, 4.0, 6.0));
        assert_eq!(of(&[4.0, 1.0, 3.0, 2.0]), (1.5, 2.5, 3.5));
        assert_eq!(of(&[9.0]), (9.0, 9.0, 9.0));
        assert_eq!(of(&[]), (0.0, 0.0, 0.0));
    }
}
