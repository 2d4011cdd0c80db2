//! [`Sequences`]: writers that count, so that a reader sees a gap in what it is shown.
//!
//! A writer begins a number only when the one before it is acknowledged. It puts number `n` under one of a few keys in
//! turn, which lie in different partitions; every third number goes, in one batch, under two further keys as well. So
//! whoever sees `n` anywhere knows exactly what every key of that writer must hold.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewire::{Operation, Tree};
use tidewire_core::random::Random;
use tokio::task::JoinSet;

use crate::site::Site;

/// Keys that a writer goes round.
const SLOTS: u64 = 7;

/// Writers that count until they are stopped.
pub struct Sequences {
    writers: JoinSet<()>,
    counted: Arc<Mutex<u64>>,
}

impl Sequences {
    /// Starts `writers` on each site, each of which rests for a time within `pace` before a write.
    pub fn start(sites: &[Site], writers: u32, pace: Range<Duration>, random: &Random) -> Self {
        let mut sequences = Self { writers: JoinSet::new(), counted: Arc::default() };
        for site in sites {
            for writer in 0..writers {
                let name = format!("{}{writer}", site.id());
                let run = count(name, site.slot(), pace.clone(), random.fork(), sequences.counted.clone());
                sequences.writers.spawn(run);
            }
        }
        sequences
    }

    /// Stops them where they stand. Returns how many numbers were acknowledged.
    pub async fn stop(mut self) -> u64 {
        self.writers.shutdown().await;
        *self.counted.lock()
    }
}

async fn count(
    name: String,
    slot: Arc<Mutex<Option<Tree>>>,
    pace: Range<Duration>,
    random: Random,
    counted: Arc<Mutex<u64>>,
) {
    for number in 1_u64.. {
        loop {
            let spread = u64::try_from((pace.end - pace.start).as_micros()).expect("rests are short");
            tokio::time::sleep(pace.start + Duration::from_micros(random.below(spread))).await;
            let Some(tree) = slot.lock().clone() else { continue };
            let value = number.to_string();
            let mut keys = vec![format!("q/{name}/{}", number % SLOTS)];
            if number % 3 == 0 {
                keys.extend([format!("q/{name}/left"), format!("q/{name}/right")]);
            }
            let sets = keys.into_iter().map(|key| Operation::Set(key.into(), value.clone().into()));
            if tree.batch(sets.collect()).await.is_ok() {
                break;
            }
        }
        *counted.lock() += 1;
    }
}

/// Checks what a tree shows of all sequences at one moment.
///
/// # Errors
/// Names what a later number of the same writer shows to be missing.
pub fn check_sequences(tree: &Tree) -> Result<(), String> {
    let mut writers: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for row in tree.scan(b"q/", None, usize::MAX) {
        let key = String::from_utf8_lossy(&row.key).into_owned();
        let number = String::from_utf8_lossy(&row.value).parse().expect("only numbers are written");
        let (name, slot) = key[2..].split_once('/').expect("a writer and a slot");
        writers.entry(name.to_owned()).or_default().insert(slot.to_owned(), number);
    }
    for (name, slots) in writers {
        let newest = slots.values().copied().max().expect("a row of each writer was seen");
        // From the newest backwards: what was written before must be there when it is looked for.
        for number in (newest.saturating_sub(SLOTS - 1).max(1)..=newest).rev() {
            let key = format!("q/{name}/{}", number % SLOTS);
            let here = tree.get(&key).map(|value| String::from_utf8_lossy(&value.value).into_owned());
            if here.as_deref() != Some(number.to_string().as_str()) {
                return Err(format!("{key} is {here:?}, though {newest} of the same writer is visible"));
            }
        }
        let batched = newest - newest % 3;
        for half in ["left", "right"] {
            let here = slots.get(half).copied().unwrap_or_default();
            if here != batched {
                return Err(format!("q/{name}/{half} is {here} beside {newest}: half of a batch"));
            }
        }
    }
    Ok(())
}
