//! [`Broker`]: the real broker that `scripts/kafka run` has started, killed and restarted through that script.
#![expect(clippy::disallowed_methods, reason = "the real broker of the test script")]

use std::process::{Command, Stdio};

/// The broker of this run.
pub(super) struct Broker {
    pub(super) address: String,
    dir: String,
    script: String,
}

impl Broker {
    pub(super) fn given() -> Self {
        let var = |name: &str| {
            std::env::var(name)
                .unwrap_or_else(|_| panic!("{name} is not set: run this by `scripts/test services`"))
        };
        Self {
            address: var("TIDEWIRE_KAFKA"),
            dir: var("TIDEWIRE_KAFKA_DIR"),
            script: var("TIDEWIRE_KAFKA_SCRIPT"),
        }
    }

    /// SIGKILL.
    pub(super) fn kill(&self) {
        self.script(&["stop", &self.dir, "-9"]);
    }

    /// The same ports and the same data. Waits until it listens.
    pub(super) fn restart(&self) {
        self.script(&["restart", &self.dir]);
    }

    fn script(&self, arguments: &[&str]) {
        let mut command = Command::new(&self.script);
        let status = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).status();
        assert!(status.expect("the script runs").success(), "scripts/kafka {arguments:?}");
    }
}
