//! [`Workload`]: writers on every site, few keys, many conflicts, and a record of what was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewire::{Error, Operation, PutOptions, Tree};
use tidewire_core::id::Version;
use tidewire_core::random::Random;
use tokio::task::JoinSet;

use crate::site::Site;

/// A write that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// What the caller was answered.
    pub version: Version,
    /// The key.
    pub key: String,
    /// The key after the last one of a range that was deleted.
    pub end_key: Option<String>,
    /// What was set; None for a delete.
    pub value: Option<String>,
    /// Whether it expires.
    pub expires: bool,
}

/// What writers do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mix {
    /// Sets, deletes, and batches of two.
    #[default]
    Plain,
    /// Deletes of ranges and values that expire as well.
    Everything,
}

/// Every write that was acknowledged, in order.
pub type Acknowledged = Vec<Acknowledgement>;

/// Writes that may have taken keys away though nobody was told: begun, and failed or never answered.
#[derive(Clone, Debug, Default)]
pub struct Unanswered(Arc<Mutex<BTreeMap<u64, Vanishing>>>);

#[derive(Clone, Debug)]
struct Vanishing {
    keys: Vec<String>,
    end_key: Option<String>,
}

impl Unanswered {
    fn begin(&self, keys: &[String], end_key: Option<&String>) -> u64 {
        let mut open = self.0.lock();
        let number = open.last_key_value().map_or(0, |(last, _)| last + 1);
        open.insert(number, Vanishing { keys: keys.to_vec(), end_key: end_key.cloned() });
        number
    }

    fn answered(&self, number: u64) {
        self.0.lock().remove(&number);
    }

    /// Whether one of them may have taken a key away.
    pub fn may_have_taken(&self, key: &str) -> bool {
        self.0.lock().values().any(|write| match &write.end_key {
            Some(end) => write.keys.iter().any(|from| from.as_str() <= key) && key < end.as_str(),
            None => write.keys.iter().any(|other| other == key),
        })
    }
}

/// Writers that run until they are stopped.
pub struct Workload {
    writers: JoinSet<()>,
    acknowledged: Arc<Mutex<Acknowledged>>,
    unanswered: Unanswered,
    writes: Arc<Mutex<u64>>,
}

impl Workload {
    /// Starts `writers` on each site over `keys` keys.
    pub fn start(sites: &[Site], writers: u32, keys: u64, random: &Random) -> Self {
        Self::start_mixed(sites, writers, keys, Mix::Plain, random)
    }

    /// The same, of a mix.
    pub fn start_mixed(sites: &[Site], writers: u32, keys: u64, mix: Mix, random: &Random) -> Self {
        let mut workload = Self {
            writers: JoinSet::new(),
            acknowledged: Arc::default(),
            unanswered: Unanswered::default(),
            writes: Arc::default(),
        };
        for site in sites {
            for _ in 0..writers {
                let writer = Writer {
                    tree: site.slot(),
                    name: site.id().to_string(),
                    keys,
                    mix,
                    random: random.fork(),
                    acknowledged: workload.acknowledged.clone(),
                    unanswered: workload.unanswered.clone(),
                    writes: workload.writes.clone(),
                };
                workload.writers.spawn(writer.run());
            }
        }
        workload
    }

    /// Writes of which nobody was told what became of them.
    pub fn unanswered(&self) -> Unanswered {
        self.unanswered.clone()
    }

    /// Stops the writers where they stand. Returns what was acknowledged, and how many writes that were.
    pub async fn stop(mut self) -> (Acknowledged, u64) {
        self.writers.shutdown().await;
        let acknowledged = std::mem::take(&mut *self.acknowledged.lock());
        let writes = *self.writes.lock();
        (acknowledged, writes)
    }
}

struct Writer {
    tree: Arc<Mutex<Option<Tree>>>,
    name: String,
    keys: u64,
    mix: Mix,
    random: Random,
    acknowledged: Arc<Mutex<Acknowledged>>,
    unanswered: Unanswered,
    writes: Arc<Mutex<u64>>,
}

/// What a writer asked for, to be remembered if it is acknowledged.
struct Asked {
    keys: Vec<String>,
    end_key: Option<String>,
    value: Option<String>,
    expires: bool,
    /// Its number among those that may take keys away.
    vanishing: Option<u64>,
    answer: Result<Version, Error>,
}

impl Writer {
    async fn run(self) {
        for step in 0_u64.. {
            tokio::time::sleep(Duration::from_micros(self.random.below(20_000))).await;
            let Some(tree) = self.tree.lock().clone() else { continue };
            let value = format!("{}-{step}", self.name);
            let asked = match (self.mix, self.random.below(10)) {
                (_, 0) => self.batch(&tree, value).await,
                (_, 1) => {
                    let key = self.key();
                    let keys = vec![key.clone()];
                    let vanishing = Some(self.unanswered.begin(&keys, None));
                    let answer = tree.delete(key).await;
                    Asked { keys, end_key: None, value: None, expires: false, vanishing, answer }
                }
                (_, 2) => {
                    // A caller that goes away: the write may or may not happen, and nobody is told.
                    let patience = Duration::from_micros(self.random.below(3_000));
                    let _ = tokio::time::timeout(patience, tree.put(self.key(), value)).await;
                    continue;
                }
                (Mix::Everything, 3) => self.delete_range(&tree).await,
                (Mix::Everything, 4 | 5) => self.put_for_a_while(&tree, value).await,
                _ => {
                    let key = self.key();
                    let answer = tree.put(key.clone(), value.clone()).await;
                    let keys = vec![key];
                    Asked { keys, end_key: None, value: Some(value), expires: false, vanishing: None, answer }
                }
            };
            if let Ok(version) = asked.answer {
                if let Some(number) = asked.vanishing {
                    self.unanswered.answered(number);
                }
                *self.writes.lock() += 1;
                let mut acknowledged = self.acknowledged.lock();
                let Asked { keys, end_key, value, expires, .. } = asked;
                acknowledged.extend(keys.into_iter().map(|key| Acknowledgement {
                    version,
                    key,
                    end_key: end_key.clone(),
                    value: value.clone(),
                    expires,
                }));
            }
        }
    }

    fn key(&self) -> String {
        format!("k{}", self.random.below(self.keys))
    }

    /// Two keys at once; in the full mix they expire together, or one of them is deleted with the other.
    async fn batch(&self, tree: &Tree, value: String) -> Asked {
        let pair = self.random.below(self.keys);
        let keys = vec![format!("pair-{pair}-a"), format!("pair-{pair}-b")];
        let expires = self.mix == Mix::Everything && self.random.chance(0.3);
        let options = if expires { self.options() } else { PutOptions::default() };
        let value = (self.mix == Mix::Plain || self.random.chance(0.8)).then_some(value);
        let operation = |key: &String| match &value {
            Some(value) if expires => Operation::SetWith(key.clone().into(), value.clone().into(), options),
            Some(value) => Operation::Set(key.clone().into(), value.clone().into()),
            None => Operation::Delete(key.clone().into()),
        };
        let expires = expires && value.is_some();
        let vanishing = (expires || value.is_none()).then(|| self.unanswered.begin(&keys, None));
        let answer = tree.batch(keys.iter().map(operation).collect()).await;
        Asked { keys, end_key: None, value, expires, vanishing, answer }
    }

    /// A few neighbouring keys, or a few whole pairs.
    async fn delete_range(&self, tree: &Tree) -> Asked {
        let name = if self.random.chance(0.5) { "k" } else { "pair-" };
        let ends = [self.random.below(self.keys), self.random.below(self.keys)].map(|n| format!("{name}{n}"));
        let (from, last) = if ends[0] <= ends[1] { (&ends[0], &ends[1]) } else { (&ends[1], &ends[0]) };
        let to = format!("{last}~");
        let keys = vec![from.clone()];
        let vanishing = Some(self.unanswered.begin(&keys, Some(&to)));
        let answer = tree.delete_range(from.clone(), to.clone()).await;
        Asked { keys, end_key: Some(to), value: None, expires: false, vanishing, answer }
    }

    async fn put_for_a_while(&self, tree: &Tree, value: String) -> Asked {
        let key = self.key();
        let keys = vec![key.clone()];
        let vanishing = Some(self.unanswered.begin(&keys, None));
        let answer = tree.put_with(key, value.clone(), self.options()).await;
        Asked { keys, end_key: None, value: Some(value), expires: true, vanishing, answer }
    }

    /// Most expire within the run, some at once, some long after it.
    fn options(&self) -> PutOptions {
        let millis = if self.random.chance(0.1) { 3_600_000 } else { 1 + self.random.below(4_000) };
        PutOptions::ttl(Duration::from_millis(millis))
    }
}
