//! [`Service`]: another program that is started for a measurement, and that never outlives it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::failure::Outcome;

/// How long a service may take to answer for the first time.
pub const START: Duration = Duration::from_secs(60);
/// How long it may take to stop in order; then it is killed.
const STOP: Duration = Duration::from_secs(20);

/// A running process. Dropped, it is killed; it is killed too when this process ends in whatever way.
pub struct Service {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

/// How a service is started.
pub struct Launch<'a> {
    pub name: &'static str,
    pub program: &'a Path,
    pub arguments: Vec<String>,
    /// Whose rights it has; those of this process if not said.
    pub user: Option<&'a str>,
    pub directory: &'a Path,
}

impl Service {
    /// Starts it, with everything that it prints in a file of its directory.
    pub fn start(launch: Launch<'_>) -> Outcome<Self> {
        let log = launch.directory.join(format!("{}.log", launch.name));
        let out = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new("setpriv");
        if let Some(user) = launch.user {
            command.args(["--reuid", user, "--regid", user, "--init-groups"]);
        }
        command.args(["--pdeathsig", "KILL", "--"]).arg(launch.program).args(launch.arguments);
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).current_dir(launch.directory);
        let child = command.spawn().map_err(|error| format!("{} is not started: {error}", launch.name))?;
        Ok(Self { name: launch.name, child, log })
    }

    /// Waits until `ready` says so, as long as the process lives.
    pub async fn ready<R: Future<Output = bool> + Send>(
        &mut self,
        mut ready: impl FnMut() -> R + Send,
    ) -> Outcome<()> {
        let end = Instant::now() + START;
        while !ready().await {
            if let Some(status) = self.child.try_wait()? {
                return Err(
                    format!("{} ended with {status}; it said: {}", self.name, self.last_lines()).into()
                );
            }
            if Instant::now() > end {
                let said = self.last_lines();
                return Err(format!("{} is not ready after {START:?}; it said: {said}", self.name).into());
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Waits until somebody listens on a port of loopback.
    pub async fn listens(&mut self, port: u16) -> Outcome<()> {
        self.ready(move || async move { TcpStream::connect(("127.0.0.1", port)).await.is_ok() }).await
    }

    /// Asks it to stop, waits, and kills it if that takes too long.
    pub async fn stop(mut self, signal: Signal) -> Outcome<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("no process")?;
        if self.child.try_wait()?.is_none() {
            kill_process(pid, signal)?;
        }
        let end = Instant::now() + STOP;
        while self.child.try_wait()?.is_none() && Instant::now() < end {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// The end of what it printed.
    fn last_lines(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // One that has stopped already is none of our business any more: the answer is not looked at.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
