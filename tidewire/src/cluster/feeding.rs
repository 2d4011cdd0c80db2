//! The sinks of a cluster, as its users handle them.

use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::{SinkName, TreeName};
use tidewire_core::sink::{DeadLetter, OnPoison, Sink};
use tidewire_core::tree::Start;

use super::handle::Cluster;
use super::sinks::SinkOptions;
use crate::config::{self, SinkConfig, sink_types};

impl Cluster {
    /// Feeds a destination from a tree from now on: from its stored position, or from the beginning of what the log
    /// retains when it has never run. The name is what the position is kept under, over restarts.
    ///
    /// # Errors
    /// `Invalid` for a name that cannot be, `Conflict` for a sink that is there already.
    pub async fn add_sink(&self, tree: &str, name: &str, sink: impl Sink + 'static) -> Result<(), Error> {
        self.add_sink_with(tree, name, sink, SinkOptions::default()).await
    }

    /// The same with other options than the defaults.
    ///
    /// # Errors
    /// As [`add_sink`](Self::add_sink).
    pub async fn add_sink_with(
        &self,
        tree: &str,
        name: &str,
        sink: impl Sink + 'static,
        options: SinkOptions,
    ) -> Result<(), Error> {
        if self.stop_token().is_cancelled() || self.0.links.is_stopping() {
            return Err(Error::shutting_down());
        }
        let tree = self.tree(tree).await?;
        let cursors = self.0.links.cursors(&tree.identity().tree)?;
        // Not while a pass of the collector is going on, which does not know it yet.
        let consumers = self.0.links.consumers_of(tree.identity().tree.as_str());
        let collecting = consumers.map(|consumers| consumers.collecting).unwrap_or_default();
        let _turn = collecting.lock().await;
        let (tasks, random) = (&self.0.tasks, &self.0.random);
        self.0.sinks.add(tasks, random, (&tree, cursors), name, Box::new(sink), options).await
    }

    /// Ends a sink and frees what it holds: its hold on the log, its position, its dead letters. Also one that is
    /// registered from an earlier run and not there any more. Answers how many bytes of the log only it held.
    ///
    /// # Errors
    /// `NotFound` when there is no such sink.
    pub async fn remove_sink(&self, tree: &str, name: &str) -> Result<u64, Error> {
        let name = SinkName::new(name)?;
        let nothing = || Error::new(ErrorKind::NotFound, format!("there is no tree {tree}"));
        let tree = self.find_tree(tree).ok_or_else(nothing)?;
        let cursors = self.0.links.cursors(&tree.identity().tree)?;
        self.0.sinks.remove(&tree, &name, &cursors).await
    }

    /// Stops a sink after what is in flight, until it is resumed, also over restarts. It keeps its hold on the log.
    ///
    /// # Errors
    /// `NotFound` when there is no such sink.
    pub async fn pause_sink(&self, tree: &str, name: &str) -> Result<(), Error> {
        self.0.sinks.pause(&TreeName::new(tree)?, &SinkName::new(name)?).await
    }

    /// Ends a pause.
    ///
    /// # Errors
    /// `NotFound` when there is no such sink.
    pub async fn resume_sink(&self, tree: &str, name: &str) -> Result<(), Error> {
        self.0.sinks.resume(&TreeName::new(tree)?, &SinkName::new(name)?).await
    }

    /// Lets a sink try again at once, also one that is halted.
    ///
    /// # Errors
    /// `NotFound` when there is no such sink.
    pub fn restart_sink(&self, tree: &str, name: &str) -> Result<(), Error> {
        self.0.sinks.restart(&TreeName::new(tree)?, &SinkName::new(name)?)
    }

    /// The records that a sink's destination does not take, in the order of the log.
    ///
    /// # Errors
    /// `NotFound` when there is no such sink.
    pub async fn dead_letters(&self, tree: &str, name: &str) -> Result<Vec<DeadLetter>, Error> {
        self.0.sinks.dead_letters(&TreeName::new(tree)?, &SinkName::new(name)?).await
    }

    /// Gives up a record that a sink's destination does not take: it is never delivered.
    ///
    /// # Errors
    /// `NotFound` when there is no such sink; `Unavailable` when it cannot be stored.
    pub async fn drop_dead_letter(&self, tree: &str, name: &str, letter: &DeadLetter) -> Result<(), Error> {
        self.0.sinks.drop_letter(&TreeName::new(tree)?, &SinkName::new(name)?, letter).await
    }

    /// The tree of the sink of this name, where there is only one.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Conflict` when several trees have one.
    pub fn tree_of_sink(&self, name: &str) -> Result<String, Error> {
        let trees = self.0.sinks.named(&SinkName::new(name)?);
        match trees.as_slice() {
            [tree] => Ok(tree.to_string()),
            [] => Err(Error::new(ErrorKind::NotFound, format!("there is no sink {name}"))),
            trees => {
                let names: Vec<String> = trees.iter().map(ToString::to_string).collect();
                let said = format!("trees {} have a sink {name} each; say which", names.join(", "));
                Err(Error::new(ErrorKind::Conflict, said))
            }
        }
    }

    /// Starts what `[[sinks]]` lists, and names what is registered and not listed.
    pub(super) async fn start_sinks(&self) -> Result<(), Error> {
        for sink in &self.0.config().sinks {
            self.start_sink(sink).await?;
        }
        for tree in self.trees() {
            let name = tree.identity().tree.clone();
            let cursors = self.0.links.cursors(&name)?;
            for sink in self.0.sinks.idle_consumers(&name, &cursors) {
                tracing::warn!(
                    tree = %name,
                    sink,
                    "a sink of an earlier run is not there and holds the log: add it again, or `tidewire sinks remove`"
                );
            }
        }
        Ok(())
    }

    pub(super) async fn start_sink(&self, sink: &SinkConfig) -> Result<(), Error> {
        let invalid = |said: String| Error::new(ErrorKind::Invalid, format!("sink {}: {said}", sink.name));
        let built_in = sink_types::named(&sink.kind).map_err(invalid)?;
        let built = (built_in.build)(sink.settings.clone()).map_err(|error| invalid(error.to_string()))?;
        let mut options = SinkOptions::default();
        options.settings.start = match sink.start {
            config::SinkStart::Beginning => Start::Beginning,
            config::SinkStart::Now => Start::Now,
        };
        options.settings.pump.on_poison = match sink.on_poison {
            config::OnPoison::Stop => OnPoison::Stop,
            config::OnPoison::DeadLetter => OnPoison::DeadLetter,
        };
        self.add_sink_with(&sink.tree, &sink.name, built, options).await
    }
}
