//! The members' processes: started, killed, paused and started again, each ended by its id when the test ends.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};

/// What is shown of a log when the test fails.
const LOG_LINES_SHOWN: usize = 15;

/// How to start a member again.
pub(crate) struct Recipe {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
}

/// A member's process, or the place of one that was killed.
pub(crate) struct Process {
    pub(crate) name: String,
    recipe: Recipe,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Starts it with its output in `<folder>/<name>.log`.
    pub(crate) fn start(name: &str, folder: &Path, recipe: Recipe) -> Process {
        let log = folder.join(format!("{name}.log"));
        let mut process = Process { name: name.to_owned(), recipe, log, child: None };
        process.restart();
        process
    }

    /// Starts it, after it was killed or ended.
    pub(crate) fn restart(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let file = File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(&self.recipe.program);
        command.args(&self.recipe.arguments).env("HOSTNAME", &self.name);
        self.child = Some(command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap());
    }

    /// Its id, while it runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Ends it as `kill -9` does, and says who died.
    pub(crate) fn kill(&mut self) -> String {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{} was not killed but had ended: {status}", self.name);
        format!("{} ({}) died", self.name, child.id())
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Stops it where it stands.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on. It must have stood still until now: a shell that ends wakes what it has stopped in its group.
    pub(crate) fn resume(&self) {
        assert!(self.is_paused(), "{} was woken by somebody else", self.name);
        self.signal(Signal::CONT);
    }

    /// Whether the system says that it is stopped.
    pub(crate) fn is_paused(&self) -> bool {
        let Some(id) = self.id() else { return false };
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses and may have any character.
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    }

    /// How it ended, if it did so by itself since the last look.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().unwrap()?;
        self.child = None;
        Some(status)
    }

    /// The end of its log.
    pub(crate) fn log_end(&self) -> String {
        let log = String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n  ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "the end of {}:\n  {}", self.log.display(), self.log_end());
        }
    }
}
