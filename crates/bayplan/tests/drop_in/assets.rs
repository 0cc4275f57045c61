//! Upstream's binaries, and the processes made of them and of ours.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;

use bayplan_testkit::skipped;

use crate::control_plane::PATIENCE;

/// A folder with upstream's binaries.
pub(crate) struct Assets(PathBuf);

impl Assets {
    /// The folder that `KUBEBUILDER_ASSETS` names; without one, says so and answers none.
    pub(crate) fn find() -> Option<Assets> {
        let Some(folder) = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()) else {
            skipped("KUBEBUILDER_ASSETS is not set");
            return None;
        };
        let assets = Assets(std::path::absolute(folder).unwrap());
        for name in ["etcd", "kube-apiserver", "kubectl"] {
            assert!(assets.binary(name).is_some(), "KUBEBUILDER_ASSETS: there is no {name} in {}", assets.0.display());
        }
        Some(assets)
    }

    /// The path of a binary, if the folder has it; without it, what the test compares with is missing, and the test is
    /// skipped.
    pub(crate) fn binary(&self, name: &str) -> Option<PathBuf> {
        let path = self.0.join(name);
        if !path.is_file() {
            skipped(&format!("the folder of KUBEBUILDER_ASSETS has no {name}"));
            return None;
        }
        Some(path)
    }

    /// The folder itself.
    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }
}

/// A child that ends with its owner, and shows the end of its log when the test fails.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command with its output in `<folder>/<name>.log`.
    pub(crate) fn start(name: &str, folder: &Path, command: &mut Command) -> Process {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Process { child, log }
    }

    /// What it has said so far.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// How it ended, once it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "{} does not end", self.log.display());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(10)..].join("\n  ");
            let _ = writeln!(std::io::stderr(), "the end of {}:\n  {tail}", self.log.display());
        }
    }
}
