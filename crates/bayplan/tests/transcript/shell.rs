//! A shell in which `bayplan` is the binary that is tested, and the transcripts of a folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::transcript;

/// The files beside a test: what its commands read, and its transcripts.
pub(crate) struct Beside(pub(crate) &'static str);

impl Beside {
    /// The path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(self.0).join(name)
    }

    /// Runs a command in a folder that has a copy of every file.
    pub(crate) fn shell(&self, command: &str, folder: &Path) -> Output {
        let programs = folder.join("programs");
        std::fs::create_dir_all(&programs).unwrap();
        let link = programs.join("bayplan");
        if !link.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bayplan"), &link).unwrap();
            for file in self.files() {
                std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
            }
        }
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut bash = Command::new("bash");
        bash.args(["-c", command]).current_dir(folder).env("PATH", path).env("HOME", folder);
        for variable in ["KUBECONFIG", "RUST_LOG", "NO_COLOR", "HTTPS_PROXY", "https_proxy", "KUBERNETES_SERVICE_HOST"]
        {
            bash.env_remove(variable);
        }
        bash.output().unwrap()
    }

    /// The files that commands read.
    fn files(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir(self.path("")).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.is_file() && path.extension().is_none_or(|extension| extension != "rs")).collect()
    }

    /// Plays every transcript, each in a folder of its own. There are at least so many.
    pub(crate) fn play_all(&self, at_least: usize) {
        let folder = self.path("transcripts");
        let mut transcripts: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        transcripts.sort();
        assert!(transcripts.len() >= at_least, "{transcripts:?}");
        for path in transcripts {
            let folder = tempfile::tempdir().unwrap();
            transcript::play(&path, |command| self.shell(command, folder.path()));
        }
    }
}
