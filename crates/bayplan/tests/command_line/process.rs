//! Runs the binary and reads what it prints.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

/// The binary, without what the tester's own environment would make it do.
pub(crate) fn bayplan(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan"));
    command.args(arguments).env_remove("RUST_LOG").env_remove("NO_COLOR").env_remove("KUBECONFIG");
    command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("HTTPS_PROXY").env_remove("https_proxy");
    command
}

/// Runs to the end: exit code, standard output, standard error.
pub(crate) fn run(arguments: &[&str]) -> (i32, String, String) {
    read(bayplan(arguments).output().unwrap())
}

pub(crate) fn read(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Fails with this one line.
#[track_caller]
pub(crate) fn check_failure(arguments: &[&str], expected: &str) {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!((code, &*stdout, stderr.trim_end()), (1, "", expected), "{arguments:?}");
}

/// A server in the background; ended with the test.
pub(crate) struct Server {
    child: Child,
    /// What it printed until it was ready.
    pub(crate) screen: String,
}

impl Server {
    /// Starts it and reads its first screen, which ends with the way to stop it.
    pub(crate) fn start(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut screen = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        for line in lines.by_ref() {
            screen.push_str(&line);
            screen.push('\n');
            if line.contains("Ctrl-C") {
                break;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, screen }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.id().to_string()]).status().unwrap().success());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Stops it with a signal; returns whether it ended well, and its standard error.
    pub(crate) fn stop_and_show(mut self, signal: &str) -> (bool, String) {
        self.signal(signal);
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap().success(), stderr)
    }

    /// The same without progress: on a busy machine registering nodes takes long enough to be shown.
    pub(crate) fn stop(self, signal: &str) -> (bool, String) {
        let (success, stderr) = self.stop_and_show(signal);
        let is_progress = |line: &&str| line.contains(" nodes are registered; the API server answers at ");
        (success, stderr.lines().filter(|line| !is_progress(line)).map(|line| format!("{line}\n")).collect())
    }

    /// The port of the API server.
    pub(crate) fn port(&self) -> &str {
        self.screen.split("https://127.0.0.1:").nth(1).unwrap().split_whitespace().next().unwrap()
    }

    /// The word after `label` on the screen.
    pub(crate) fn shown(&self, label: &str) -> &str {
        self.screen.lines().find_map(|line| line.trim_start().strip_prefix(label)).unwrap().trim()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
