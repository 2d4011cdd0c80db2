//! A sink of your own: it keeps a word count, and its position beside it.
//!
//! The duties are in the docs of `tidewire_core::sink`; docs/sinks.md walks through a larger one. A sink that others
//! rely on also runs the conformance suite there. `cargo run -p tidewire-examples --example custom_sink`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tidewire::{Cluster, ClusterConfig};
use tidewire_core::error::SinkError;
use tidewire_core::feed::{Batch, Cursor};
use tidewire_core::sink::{Sink, SinkContext};

type Counts = Arc<Mutex<(BTreeMap<String, u64>, Option<Cursor>)>>;
/// Counts words. What it counted and how far it came change under one lock, so it never counts a change twice.
struct WordCount(Counts, Option<(SinkContext, Cursor)>);

#[async_trait]
impl Sink for WordCount {
    async fn resume(&mut self, ctx: &SinkContext) -> Result<Option<Cursor>, SinkError> {
        let own = self.0.lock().expect("nobody panics with it").1;
        self.1 = Some((ctx.clone(), own.unwrap_or(ctx.checkpoint)));
        Ok(own) // the destination knows better than the checkpoint
    }

    async fn write(&mut self, batch: Batch) -> Result<(), SinkError> {
        let (ctx, _) = self.1.as_ref().expect("a run begins with resume");
        let mut counts = self.0.lock().expect("nobody panics with it");
        for change in ctx.changes.decode(&batch, batch.start().lsn) {
            for word in String::from_utf8_lossy(&change.value).split_whitespace() {
                *counts.0.entry(word.to_owned()).or_default() += 1;
            }
        }
        counts.1 = Some(batch.end());
        Ok(())
    }

    async fn durable(&mut self) -> Result<Cursor, SinkError> {
        let (_, answered) = self.1.as_ref().expect("a run begins with resume");
        if self.0.lock().expect("nobody panics with it").1.is_none_or(|own| own == *answered) {
            std::future::pending::<()>().await; // nothing new: the pump waits for the feed meanwhile
        }
        self.sync().await
    }

    async fn sync(&mut self) -> Result<Cursor, SinkError> {
        let (_, answered) = self.1.as_mut().expect("a run begins with resume");
        *answered = self.0.lock().expect("nobody panics with it").1.unwrap_or(*answered);
        Ok(*answered)
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (dir, counts) = (tempfile::tempdir()?, Counts::default());
    let mut config = ClusterConfig::new("eu-west", dir.path());
    config.listen.replication = "127.0.0.1:0".parse()?;
    let cluster = Cluster::open(config).await?;
    let texts = cluster.tree("texts").await?;
    cluster.add_sink("texts", "word-count", WordCount(counts.clone(), None)).await?;
    texts.put("one", "the tide comes").await?;
    texts.put("two", "and the tide goes").await?;
    while cluster.status().sinks[0].state != "caught_up" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    cluster.shutdown().await?;
    let counted = counts.lock().expect("nobody panics with it");
    assert_eq!((counted.0["tide"], counted.0["goes"]), (2, 1));
    println!("{:?} up to {:?}", counted.0, counted.1);
    Ok(())
}
