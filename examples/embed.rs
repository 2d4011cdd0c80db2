//! One cluster inside a program: write, read, scan, follow changes, stop.
//!
//! `cargo run -p tidewire-examples --example embed`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use tidewire::{Cluster, ClusterConfig, Event, Start};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let mut config = ClusterConfig::new("eu-west", dir.path());
    config.listen.replication = "127.0.0.1:0".parse()?; // any free port; without it: 7400
    let cluster = Cluster::open(config).await?;

    // A tree is a key space with a log of its own. It is created when it is first asked for.
    let orders = cluster.tree("orders").await?;
    orders.put("order-17", "open").await?;
    orders.put("order-18", "open").await?;
    let paid = orders.put("order-17", "paid").await?; // answered: it is on disk, and visible

    // Reads are answered from memory, at once.
    let found = orders.get("order-17").ok_or("order-17 was just written")?;
    assert_eq!((&found.value[..], found.version), (&b"paid"[..], paid));
    for row in orders.scan(b"order-", None, 100) {
        println!("{} is {}", String::from_utf8_lossy(&row.key), String::from_utf8_lossy(&row.value));
    }

    // Changes come in the order of this cluster's log. Each carries the cursor after it: keep the last one, and a later
    // reading goes on from there with `Start::At`.
    let mut changes = orders.changes(Start::Beginning);
    let mut seen = 0;
    while seen < 3 {
        if let Event::Change(change) = changes.next().await? {
            println!(
                "{} at {}, then {}",
                String::from_utf8_lossy(&change.key),
                change.version.hlc,
                change.cursor
            );
            seen += 1;
        }
    }

    cluster.shutdown().await?;
    Ok(())
}
