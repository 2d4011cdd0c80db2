//! [`Delivered`]: which messages of a run have arrived, and how far all of them have. Pure.

use std::collections::VecDeque;

/// Messages are numbered from 0 within a run; they arrive in any order across partitions. One bit for each message
/// between the first that is missing and the last that has arrived.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    /// The number of the lowest bit: a multiple of 64.
    first: u64,
    words: VecDeque<u64>,
    total: u64,
}

impl Delivered {
    /// Notes that a message has arrived. Each one arrives once.
    pub(super) fn mark(&mut self, number: u64) {
        let Some(at) = number.checked_sub(self.first) else { return };
        let word = usize::try_from(at / 64).expect("as many words as fit into memory");
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (at % 64);
        self.total += 1;
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.first += 64;
        }
    }

    /// Every message below this number has arrived.
    pub(super) fn prefix(&self) -> u64 {
        self.first + self.words.front().map_or(0, |word| u64::from(word.trailing_ones()))
    }

    /// How many messages have arrived.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_prefix_ends_at_the_first_message_that_is_missing(
            order in Just((0..300_u64).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut delivered = Delivered::default();
            let mut seen = vec![false; 301];
            for (count, number) in (1..).zip(order) {
                delivered.mark(number);
                seen[usize::try_from(number).unwrap()] = true;
                let missing = seen.iter().position(|seen| !seen).unwrap() as u64;
                prop_assert_eq!(delivered.prefix(), missing);
                prop_assert_eq!(delivered.total(), count);
            }
            prop_assert!(delivered.words.len() <= 1, "what is behind the prefix is forgotten");
        }
    }

    #[test]
    fn f09_a_later_arrival_never_hides_an_earlier_one_that_is_missing() {
        let mut delivered = Delivered::default();
        for number in (0..10_000).filter(|number| *number != 77) {
            delivered.mark(number);
        }
        assert_eq!(delivered.prefix(), 77);
        delivered.mark(77);
        assert_eq!(delivered.prefix(), 10_000);
    }
}
