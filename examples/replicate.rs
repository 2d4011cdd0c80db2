//! Two clusters that exchange writes, and a read that waits for a write made on the other one.
//!
//! `cargo run -p tidewire-examples --example replicate`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use tidewire::{Cluster, ClusterConfig, Peer, Token};

/// A cluster of that name on a free port of loopback.
async fn open(name: &str, dir: &Path) -> Result<Cluster, Box<dyn Error>> {
    let mut config = ClusterConfig::new(name, dir.join(name));
    config.listen.replication = "127.0.0.1:0".parse()?;
    Ok(Cluster::open(config).await?)
}

/// How others reach it.
fn as_peer(cluster: &Cluster) -> Result<Peer, Box<dyn Error>> {
    let address = cluster.replication_address().ok_or("the cluster listens nowhere")?;
    Ok(Peer::new(cluster.id().as_str(), format!("http://{address}")))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let europe = open("eu-west", dir.path()).await?;
    let america = open("us-east", dir.path()).await?;

    // A tree is exchanged when both sides have it open, with the same number of partitions.
    let here = europe.tree("orders").await?;
    let there = america.tree("orders").await?;

    // Each side lists the other: who is not listed is refused.
    europe.add_peer(as_peer(&america)?).await?;
    america.add_peer(as_peer(&europe)?).await?;

    // A write here, and what its writer has seen by then as text, to be carried along with a request.
    let version = here.put("order-17", "paid").await?;
    let carried = here.token(version).to_string();

    // There, the read waits until the write has come, but not for ever.
    let token: Token = carried.parse()?;
    there.wait_for(&token, Duration::from_secs(10)).await?;
    let found = there.get("order-17").ok_or("the token promised it")?;
    println!("us-east has {} at {}", String::from_utf8_lossy(&found.value), found.version.hlc);

    // What is written there depends on that read: no cluster shows it before the write it has seen.
    let version = there.put("order-17", "shipped").await?;
    here.wait_for(&there.token(version), Duration::from_secs(10)).await?;
    let found = here.get("order-17").ok_or("the token promised it")?;
    assert_eq!(&found.value[..], b"shipped");

    // Both hold the same state now, and say so.
    let (ours, theirs) = (here.digest(), there.digest());
    println!("digest {:032x} here, {:032x} there", ours.digest, theirs.digest);
    assert_eq!(ours.digest, theirs.digest);

    europe.shutdown().await?;
    america.shutdown().await?;
    Ok(())
}
