//! [`Broker`]: the real broker that `scripts/kafka run` has started, killed and restarted through that script.

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
                .map_err(|_| format!("{name} is not set: run this by `scripts/test services`"))
                .expect("the services run")
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
