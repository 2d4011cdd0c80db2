//! A reader that remembers where it was, a cluster that stops hard, and a reading that goes on with no gap.
//!
//! `cargo run -p tidewire-examples --example resume_after_crash`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use tidewire::{Change, Cluster, ClusterConfig, Event, Start, Tree};

/// What a reader keeps: its own state, and in the same place how far that state goes. A real one stores both at once, as
/// in one transaction of a database.
#[derive(Default)]
struct Reader {
    totals: BTreeMap<String, u64>,
    cursor: Option<String>,
}

impl Reader {
    /// Reads until it has seen everything that is there now.
    async fn catch_up(&mut self, tree: &Tree, most: usize) -> Result<usize, Box<dyn Error>> {
        let start = match &self.cursor {
            Some(cursor) => Start::At(cursor.parse()?),
            None => Start::Beginning,
        };
        let (mut changes, mut seen) = (tree.changes(start), 0);
        while seen < most {
            match tokio::time::timeout(Duration::from_secs(10), changes.next()).await?? {
                Event::Change(change) => self.take(&change)?,
                Event::Resolved { .. } => break,
            }
            seen += 1;
        }
        Ok(seen)
    }

    fn take(&mut self, change: &Change) -> Result<(), Box<dyn Error>> {
        let amount: u64 = std::str::from_utf8(&change.value)?.parse()?;
        *self.totals.entry(String::from_utf8(change.key.to_vec())?).or_default() += amount;
        self.cursor = Some(change.cursor.to_string());
        Ok(())
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let config = || {
        let mut config = ClusterConfig::new("eu-west", dir.path());
        config.listen.replication = "127.0.0.1:0".parse().expect("an address");
        config
    };
    let mut reader = Reader::default();

    let cluster = Cluster::open(config()).await?;
    let payments = cluster.tree("payments").await?;
    for amount in 1..=100_u64 {
        payments.put(format!("account-{}", amount % 3), amount.to_string()).await?;
    }
    let before = reader.catch_up(&payments, 40).await?;
    cluster.abort().await; // as a crash would: no farewell, nothing stored that was not stored before
    drop((cluster, payments));

    let cluster = Cluster::open(config()).await?;
    let payments = cluster.tree("payments").await?;
    payments.put("account-0", "1000").await?;
    let after = reader.catch_up(&payments, usize::MAX).await?;
    println!("{before} changes before the crash, {after} after it: {:?}", reader.totals);

    // Each change was seen once: the sums are right.
    assert_eq!((before, before + after), (40, 101));
    assert_eq!(reader.totals.values().sum::<u64>(), (1..=100).sum::<u64>() + 1000);
    cluster.shutdown().await?;
    Ok(())
}
