//! `bayplan apiserver` in a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bayplan_testkit::binary;
use tempfile::TempDir;

/// An API server without a scheduler, controllers or nodes.
pub(crate) struct Server {
    process: Child,
    folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Server {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut command = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")));
        command.args(["apiserver", "--port", "0", "--data-dir"]).arg(&data);
        let process = command.stdout(Stdio::null()).spawn().unwrap();
        Server { process, folder }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("data/kubeconfig")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
