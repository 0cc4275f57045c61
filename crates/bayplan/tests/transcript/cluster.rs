//! A `bayplan up` that ends with the test, and a shell whose kubectl finds it.

#![allow(dead_code, reason = "each of the tests that share it uses a part")]

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use super::transcript::EVENTUALLY;

/// `bayplan up` with four nodes in two zones.
pub(crate) struct Cluster {
    process: Child,
    folder: tempfile::TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_bayplan"))
            .args(["up", "--in-memory", "--port", "0", "--nodes", "4", "--zones", "2"])
            .args(["--pod-start-delay", "200ms"])
            .arg("--write-kubeconfig")
            .arg(folder.path().join("kubeconfig"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        lines.by_ref().map(Result::unwrap).find(|line| line.contains("Try")).expect("bayplan up came up");
        std::thread::spawn(move || lines.for_each(drop));
        let programs = folder.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        let cluster = Cluster { process, folder };
        if kubectl().is_absolute() {
            cluster.bring("kubectl", &kubectl());
        }
        cluster
    }

    /// Where commands run.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Lets commands find a program under this name; its path is absolute.
    pub(crate) fn bring(&self, name: &str, program: &Path) {
        symlink(program, self.folder().join("programs").join(name)).unwrap();
    }

    /// Runs a command for so many seconds at most: one that hangs fails its step instead of the whole run.
    pub(crate) fn run_for(&self, seconds: u64, command: &str) -> Output {
        let mut path = OsString::from(self.folder().join("programs"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut shell = Command::new("timeout");
        shell.args([&seconds.to_string(), "bash", "-c", command]).current_dir(self.folder());
        shell.env("PATH", path).env("KUBECONFIG", self.folder().join("kubeconfig")).env("HOME", self.folder());
        shell.output().unwrap()
    }

    pub(crate) fn run(&self, command: &str) -> Output {
        self.run_for(EVENTUALLY.as_secs(), command)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The kubectl of the folder that `KUBEBUILDER_ASSETS` names, or else the one on the path.
pub(crate) fn kubectl() -> PathBuf {
    let folder = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty());
    let of_assets = folder.map(|folder| std::path::absolute(folder).unwrap().join("kubectl"));
    of_assets.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("kubectl"))
}
