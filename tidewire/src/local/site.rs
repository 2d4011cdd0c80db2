//! [`LocalSite`]: one cluster of this process that can be stopped hard and started again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidewire_connectors::transports::grpc::{GrpcConfig, GrpcTransport};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::ClusterId;
use tidewire_core::transport::CuttableTransport;
use tidewire_core::tree::Tree;
use tokio::runtime::Runtime;

use crate::cluster::Cluster;
use crate::config::{ClusterConfig, Consistency, Peer, TreeConfig};

/// The tree that is written to.
const TREE: &str = "demo";

/// A cluster on files below `dir`, listening on loopback.
pub(crate) struct LocalSite {
    name: &'static str,
    dir: PathBuf,
    consistency: Consistency,
    address: String,
    transport: CuttableTransport,
    cluster: Option<Cluster>,
    tree: Option<Tree>,
}

impl LocalSite {
    /// Starts a cluster in a directory of its own.
    pub(crate) async fn start(name: &'static str, dir: &Path) -> Result<Self, Error> {
        Self::start_with(name, dir, Consistency::default()).await
    }

    /// The same, with what foreign writes wait for.
    pub(crate) async fn start_with(
        name: &'static str,
        dir: &Path,
        consistency: Consistency,
    ) -> Result<Self, Error> {
        let mut site = Self {
            name,
            dir: dir.join(name),
            consistency,
            address: "127.0.0.1:0".to_owned(),
            transport: transport("127.0.0.1:0")?,
            cluster: None,
            tree: None,
        };
        site.open().await?;
        Ok(site)
    }

    /// Opens it again after [`kill`](Self::kill), at the same address.
    pub(crate) async fn open(&mut self) -> Result<(), Error> {
        let mut config = ClusterConfig::new(self.name, self.dir.clone());
        config.trees = vec![TreeConfig { consistency: self.consistency, ..TreeConfig::new(TREE) }];
        self.transport = transport(&self.address)?;
        let cluster = Cluster::builder(config).transport(Arc::new(self.transport.clone())).open().await?;
        self.address = cluster
            .replication_address()
            .ok_or_else(|| Error::new(ErrorKind::Unavailable, "the cluster listens nowhere"))?;
        self.tree = Some(cluster.tree(TREE).await?);
        self.cluster = Some(cluster);
        Ok(())
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The cluster, while it runs.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// The tree, while it runs.
    pub(crate) fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    /// Sends to another site from now on.
    pub(crate) async fn connect(&self, other: &Peer) -> Result<(), Error> {
        match &self.cluster {
            Some(cluster) => cluster.add_peer(other.clone()).await,
            None => Ok(()),
        }
    }

    /// This site as a peer of others.
    pub(crate) fn as_peer(&self) -> Peer {
        Peer::new(self.name, format!("http://{}", self.address))
    }

    /// Breaks the links with another site.
    pub(crate) fn cut(&self, other: &str) -> Result<(), Error> {
        self.transport.cut(&ClusterId::new(other)?);
        Ok(())
    }

    /// Lets the links with another site be made again.
    pub(crate) fn heal(&self, other: &str) -> Result<(), Error> {
        self.transport.heal(&ClusterId::new(other)?);
        Ok(())
    }

    /// Stops it where it stands.
    pub(crate) async fn kill(&mut self) {
        self.tree = None;
        if let Some(cluster) = self.cluster.take() {
            cluster.abort().await;
        }
    }

    /// Stops it in order.
    pub(crate) async fn shutdown(&mut self) -> Result<(), Error> {
        self.tree = None;
        match self.cluster.take() {
            Some(cluster) => cluster.shutdown().await,
            None => Ok(()),
        }
    }
}

fn transport(listen: &str) -> Result<CuttableTransport, Error> {
    let config = GrpcConfig { listen: listen.to_owned(), ..GrpcConfig::default() };
    Ok(CuttableTransport::new(Arc::new(GrpcTransport::new(config)?)))
}

/// Makes every site send to every other one.
pub(crate) async fn connect_all(sites: &[LocalSite]) -> Result<(), Error> {
    for site in sites {
        for other in sites.iter().filter(|other| other.name() != site.name()) {
            site.connect(&other.as_peer()).await?;
        }
    }
    Ok(())
}

/// A runtime for the whole process.
pub(crate) fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_keep_alive(Duration::from_secs(2))
        .build()
        .map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the runtime cannot be started").with_source(error)
        })
}
