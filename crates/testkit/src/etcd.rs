//! A real etcd of the test's own.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::free_ports;
use crate::skipped::test_skipped;

/// How long etcd may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a test without an etcd is skipped.
const NO_ETCD: &str = "neither BAYPLAN_ETCD nor KUBEBUILDER_ASSETS names an etcd";

/// A member with a folder of its own, killed with its owner.
#[derive(Debug)]
pub struct Etcd {
    binary: PathBuf,
    child: Child,
    folder: TempDir,
    ports: [u16; 3],
    extra: Vec<String>,
}

impl Etcd {
    /// The binary that `BAYPLAN_ETCD` names, or the one in the folder that `KUBEBUILDER_ASSETS` names; without either,
    /// says that the test is skipped and answers none.
    pub fn binary(test: &str) -> Option<PathBuf> {
        let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = named("BAYPLAN_ETCD").or_else(|| named("KUBEBUILDER_ASSETS").map(|folder| folder.join("etcd")));
        let Some(path) = path else {
            test_skipped(test, NO_ETCD);
            return None;
        };
        assert!(path.is_file(), "there is no etcd at {}", path.display());
        Some(std::path::absolute(path).unwrap())
    }

    /// Starts an empty etcd for a test; none when there is no binary.
    pub fn start(test: &str) -> Option<Etcd> {
        Etcd::start_with(test, |_| Vec::new())
    }

    /// Starts an empty etcd with more flags, which may name files in its folder.
    pub fn start_with(test: &str, flags: impl FnOnce(&std::path::Path) -> Vec<String>) -> Option<Etcd> {
        let binary = Etcd::binary(test)?;
        let folder = tempfile::tempdir().unwrap();
        let extra = flags(folder.path());
        let ports = free_ports();
        let child = spawn(&binary, &folder, ports, &extra);
        let etcd = Etcd { binary, child, folder, ports, extra };
        etcd.wait();
        Some(etcd)
    }

    fn secure(&self) -> bool {
        self.extra.iter().any(|flag| flag.starts_with("--cert-file"))
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.secure() { "https" } else { "http" }, self.address())
    }

    /// Where clients connect, without a scheme.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// Waits until it answers.
    #[expect(clippy::disallowed_methods, reason = "a process of the outside world takes real time to start")]
    fn wait(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.healthy() {
            assert!(Instant::now() < deadline, "etcd does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn healthy(&self) -> bool {
        self.ask("/health").is_ok_and(|answer| answer.contains("\"health\":\"true\""))
    }

    /// Its metrics, as text.
    pub fn metrics(&self) -> String {
        self.ask("/metrics").unwrap()
    }

    fn ask(&self, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[2]))?;
        let mut answer = String::new();
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// What it has said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("etcd.log")).unwrap_or_default()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// Stops it without ending it: it keeps its connections and answers nothing.
    pub fn pause(&self) {
        self.signal("STOP");
        // The signal is sent before all threads have stopped; one of them may still answer.
        while !self.stopped() {
            std::thread::yield_now();
        }
    }

    /// Whether all its threads are stopped, where the system tells.
    fn stopped(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.child.id())) else { return true };
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // The state follows the name, which is in parentheses.
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again with what it had, at the same address.
    pub fn restart(&mut self) {
        self.child = spawn(&self.binary, &self.folder, self.ports, &self.extra);
        self.wait();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(binary: &PathBuf, folder: &TempDir, [clients, peers, metrics]: [u16; 3], extra: &[String]) -> Child {
    let scheme = if extra.iter().any(|flag| flag.starts_with("--cert-file")) { "https" } else { "http" };
    let clients = format!("{scheme}://127.0.0.1:{clients}");
    let peers = format!("http://127.0.0.1:{peers}");
    let log = File::options().create(true).append(true).open(folder.path().join("etcd.log")).unwrap();
    let mut command = Command::new(binary);
    // A machine that crashes is not what the tests are about; a process that is killed loses nothing by it.
    command.arg("--data-dir").arg(folder.path().join("data")).args(["--unsafe-no-fsync", "--log-level", "warn"]);
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--initial-cluster", &format!("default={peers}")]);
    command.arg(format!("--listen-metrics-urls=http://127.0.0.1:{metrics}"));
    command.args(extra).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}
