//! In a build without Kafka the demo feeds no topic.

use std::convert::Infallible;

use tidewire_core::error::{Error, ErrorKind};

use crate::local::LocalSite;

/// There is none.
#[derive(Clone, Debug)]
pub(super) struct Topic(Infallible);

impl Topic {
    pub(super) fn new(_brokers: &str) -> Result<Self, Error> {
        Err(Error::new(
            ErrorKind::Invalid,
            "--kafka: this build has no Kafka; build it with the feature kafka",
        ))
    }

    pub(super) fn name(&self) -> &str {
        match self.0 {}
    }

    pub(super) async fn feed_from(&self, _site: &LocalSite) -> Result<(), Error> {
        match self.0 {}
    }

    pub(super) async fn compare(&self, _site: &LocalSite) -> Result<(bool, String), Error> {
        match self.0 {}
    }
}
