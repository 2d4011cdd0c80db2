//! [`Server`]: one process of `tidewire serve` with a directory of its own, ended and reaped with its handle.
#![expect(clippy::disallowed_methods, reason = "sets up and reads real files beside a real process")]

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::api::Api;
use super::{TREE, eventually};

/// A port that nobody listens on, below those that the system gives to outgoing connections: it can be bound again after
/// every restart.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 150).expect("small") * 100;
    (0..2_000)
        .map(|_| 10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("one of so many ports is free")
}

/// A server, running or not.
#[derive(Debug)]
pub(super) struct Server {
    id: &'static str,
    dir: TempDir,
    http: u16,
    replication: u16,
    starts: usize,
    child: Option<Child>,
}

impl Server {
    /// A server that knows no peers and is not started.
    pub(super) fn new(id: &'static str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Self { id, dir, http: free_port(), replication: free_port(), starts: 0, child: None };
        server.configure(&[], "");
        server
    }

    /// Servers that all exchange writes with each other, started.
    pub(super) fn mesh<const N: usize>(ids: [&'static str; N]) -> [Self; N] {
        let mut servers = ids.map(Self::new);
        let peers = servers.each_ref().map(|server| (server.id, server.replication));
        for server in &mut servers {
            let others: Vec<_> = peers.iter().filter(|peer| peer.0 != server.id).copied().collect();
            server.configure(&others, "");
            server.start();
        }
        servers
    }

    /// Servers of which each takes from the one before it and sends on to the next, round and round, started.
    pub(super) fn ring<const N: usize>(ids: [&'static str; N]) -> [Self; N] {
        let mut servers = ids.map(Self::new);
        let ports = servers.each_ref().map(|server| (server.id, server.replication));
        for (at, server) in servers.iter_mut().enumerate() {
            let (next, before) = (ports[(at + 1) % N], ports[(at + N - 1) % N]);
            server.configure(&[], "");
            let mut text = read(&server.config());
            text += &format!(
                "[[peers]]\nid = \"{}\"\nurl = \"http://127.0.0.1:{}\"\nforward = true\n\
                 [[peers]]\nid = \"{}\"\nsend = false\n",
                next.0, next.1, before.0
            );
            std::fs::write(server.config(), text).expect("written");
            server.start();
        }
        servers
    }

    /// Writes the configuration file.
    pub(super) fn configure(&self, peers: &[(&str, u16)], more: &str) {
        let mut text = format!(
            "[cluster]\nid = \"{}\"\ndata_dir = \"{}\"\n[listen]\nhttp = \"127.0.0.1:{}\"\nreplication = \"127.0.0.1:{}\"\n\
             [limits]\ndrain_budget = \"10s\"\n{more}\n[[trees]]\nname = \"{TREE}\"\n",
            self.id,
            self.data_dir().display(),
            self.http,
            self.replication,
        );
        for (id, port) in peers {
            text += &format!("[[peers]]\nid = \"{id}\"\nurl = \"http://127.0.0.1:{port}\"\n");
        }
        std::fs::write(self.config(), text).expect("written");
    }

    /// From the next start on it holds the keys with these prefixes alone. After [`configure`](Self::configure).
    pub(super) fn hold(&self, prefixes: &[&str]) {
        let text = read(&self.config());
        let kept = text.lines().filter(|line| !line.starts_with("interest = "));
        let tree = format!("name = \"{TREE}\"");
        let told = |line: &str| {
            let interest = if line == tree { format!("interest = {prefixes:?}\n") } else { String::new() };
            format!("{line}\n{interest}")
        };
        std::fs::write(self.config(), kept.map(told).collect::<String>()).expect("written");
    }

    pub(super) fn config(&self) -> PathBuf {
        self.dir.path().join("tidewire.toml")
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(super) fn replication_port(&self) -> u16 {
        self.replication
    }

    pub(super) fn http_port(&self) -> u16 {
        self.http
    }

    /// The id of the running process.
    pub(super) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Resident memory of the running process, in KiB.
    pub(super) fn resident_kib(&self) -> u64 {
        self.proc_status("VmRSS:")
    }

    /// How many threads the running process has.
    pub(super) fn threads(&self) -> u64 {
        self.proc_status("Threads:")
    }

    /// How often threads of the running process went to sleep by themselves so far.
    pub(super) fn switches(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it runs");
        let status = tasks.flatten().map(|task| read(&task.path().join("status")));
        status.filter_map(|status| number(&status, "voluntary_ctxt_switches:")).sum()
    }

    fn proc_status(&self, name: &str) -> u64 {
        number(&read(Path::new(&format!("/proc/{}/status", self.pid()))), name).expect("a number")
    }

    /// Runs the command line against it: exit code, and what was said.
    pub(super) fn tidewire(&self, args: &[&str]) -> (Option<i32>, String) {
        let url = format!("http://127.0.0.1:{}", self.http_port());
        let output = Command::new(env!("CARGO_BIN_EXE_tidewire")).args(args).args(["--url", &url]).output();
        let output = output.expect("it runs");
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), said)
    }

    pub(super) fn api(&self) -> Api {
        Api::new(self.http)
    }

    /// Starts it and waits until it listens.
    pub(super) fn start(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
        command.arg("serve").arg("-c").arg(self.config());
        self.start_with(command);
    }

    /// Starts it by a command that ends in the server, and waits until it listens.
    pub(super) fn start_with(&mut self, mut command: Command) {
        assert!(self.child.is_none(), "{} runs already", self.id);
        self.starts += 1;
        let log = self.log_path(self.starts);
        let file = File::create(&log).expect("a log file");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).env_remove("RUST_LOG");
        self.child = Some(command.spawn().expect("the binary starts"));
        eventually(&format!("{} listens", self.id), 60, || {
            let said = read(&log);
            let ended = self.child.as_mut().and_then(|child| child.try_wait().expect("a child of ours"));
            assert!(ended.is_none(), "{} ended with {ended:?}:\n{said}", self.id);
            said.contains("listening").then_some(())
        });
    }

    fn log_path(&self, start: usize) -> PathBuf {
        self.dir.path().join(format!("stderr.{start}"))
    }

    /// What every process of this server has said so far.
    pub(super) fn log(&self) -> String {
        (1..=self.starts).map(|start| read(&self.log_path(start))).collect()
    }

    /// SIGKILL, and reaped.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a child of ours");
            child.wait().expect("a child of ours");
        }
    }

    /// SIGTERM, without waiting.
    pub(super) fn terminate(&self) {
        let pid = Pid::from_child(self.child.as_ref().expect("it runs"));
        kill_process(pid, Signal::TERM).expect("a child of ours");
    }

    /// SIGHUP, without waiting.
    pub(super) fn hang_up(&self) {
        let pid = Pid::from_child(self.child.as_ref().expect("it runs"));
        kill_process(pid, Signal::HUP).expect("a child of ours");
    }

    /// How it ended; fails if it has not within so many seconds.
    pub(super) fn ended(&mut self, seconds: u64) -> ExitStatus {
        let child = self.child.as_mut().expect("it runs");
        let status = eventually("the process ends", seconds, || child.try_wait().expect("a child of ours"));
        self.child = None;
        status
    }

    /// Whether the process is still there.
    pub(super) fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().expect("a child of ours").is_none())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("--- log of {}\n{}", self.id, tail(&self.log()));
        }
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// A number behind a name, at the beginning of a line.
fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// The last lines, for people.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
