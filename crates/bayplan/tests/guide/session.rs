//! A reader at a terminal: a home folder, ports, and what was started and still runs.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::document::Command;
use crate::pattern::{EVENTUALLY, matches, squeeze};

/// Ports that pages name: the API server's, the scheduler's, a second scheduler's, the controller manager's.
const PORTS: [&str; 4] = ["6443", "10259", "10269", "10257"];

/// Programs that stand in for those of the same name: they add the session's ports, or do without building and `root`.
const PROGRAMS: [(&str, &str); 3] = [
    (
        "bayplan",
        r#"case "$1 $*" in
  up*--port*|apiserver*--port*|scheduler*--secure-port*|controller-manager*--secure-port*) ;;
  up*|apiserver*) set -- "$@" --port 6443 ;;
  scheduler*) set -- "$@" --secure-port 10259 ;;
  controller-manager*) set -- "$@" --secure-port 10257 ;;
esac
exec BINARY "$@"
"#,
    ),
    (
        "cargo",
        r#"case "$*" in
  "run --release -- "*) shift 3; exec bayplan "$@" ;;
  "install --locked --path crates/bayplan") [ -f ROOT/crates/bayplan/Cargo.toml ] ;;
  *) echo "the guide's test does not know: cargo $*"; exit 1 ;;
esac
"#,
    ),
    ("sudo", "exec \"$@\"\n"),
];

/// A command that serves until it is stopped.
struct Serving {
    command: String,
    process: Child,
    log: PathBuf,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) struct Session {
    serving: Vec<Serving>,
    cluster: Option<Cluster>,
    ports: [u16; PORTS.len()],
    folder: tempfile::TempDir,
}

impl Session {
    pub(crate) fn new() -> Session {
        let folder = tempfile::tempdir().unwrap();
        // All are open at once, so that they differ.
        let listeners = PORTS.map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
        let session = Session { serving: Vec::new(), cluster: None, ports, folder };
        for folder in ["home", "programs", "state"] {
            std::fs::create_dir(session.path(folder)).unwrap();
        }
        for (name, script) in PROGRAMS {
            let script = session.replaced(script).replace("BINARY", env!("CARGO_BIN_EXE_bayplan"));
            let script = script.replace("ROOT", &crate::root().to_string_lossy());
            let path = session.path("programs").join(name);
            std::fs::write(&path, format!("#!/usr/bin/env bash\n{script}")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        // What a reader who has cloned the repository has.
        std::os::unix::fs::symlink(crate::root().join("deploy"), session.path("home/deploy")).unwrap();
        std::fs::write(session.path("state/folder"), session.path("home").to_str().unwrap()).unwrap();
        session
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What the page says, with this session's ports and folders.
    fn replaced(&self, text: &str) -> String {
        let home = self.path("home").to_string_lossy().into_owned();
        let mut text = text.replace("/etc/kubernetes", "/home/you/etc/kubernetes").replace("/home/you", &home);
        for (port, own) in PORTS.iter().zip(self.ports) {
            text = text.replace(port, &own.to_string());
        }
        text
    }

    /// A shell that goes on where the last command ended: its folder, and its exported variables.
    fn shell(&self, script: &str) -> Process {
        let state = self.path("state").to_string_lossy().into_owned();
        let script = format!("[ -f {state}/exported ] && . {state}/exported\ncd \"$(cat {state}/folder)\"\n{script}");
        let path = format!("{}:{}", self.path("programs").display(), std::env::var("PATH").unwrap());
        let mut process = Process::new("bash");
        process.args(["-c", &script]).env("PATH", path).env("HOME", self.path("home"));
        for variable in ["KUBECONFIG", "XDG_DATA_HOME", "RUST_LOG"] {
            process.env_remove(variable);
        }
        process.env("COLUMNS", "100").stdin(Stdio::null());
        process
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let folder = std::fs::read_to_string(self.path("state/folder")).unwrap();
        std::fs::write(Path::new(folder.trim()).join(path), self.replaced(text)).unwrap();
    }

    pub(crate) fn start_cluster(&mut self) {
        self.cluster = Some(Cluster::start(&self.path("home"), self.ports[0], self.ports[1]));
    }

    pub(crate) fn run(&mut self, page: &str, command: &Command) {
        let at = format!("{page}:{}", command.line);
        let text = self.replaced(&command.text);
        let expected: Vec<String> = command.expected.iter().map(|line| self.replaced(line)).collect();
        let fails = expected.iter().any(|line| ["bayplan: ", "error: ", "Error"].iter().any(|e| line.starts_with(e)));
        if serves(&text) && !fails {
            self.serve(&at, text, expected);
            if command.interrupted {
                self.stop(&at, &command.text);
            }
            return;
        }
        assert!(!command.interrupted, "{at}: `{text}` does not serve");
        let deadline = Instant::now() + EVENTUALLY;
        loop {
            let (success, lines) = self.output(&text);
            if success != fails && matches(&expected, &lines) {
                return;
            }
            assert!(
                is_reading(&text) && Instant::now() < deadline,
                "{at}: $ {text}\nsuccess: {success}\nexpected:\n  {}\ngot:\n  {}\n{}",
                expected.join("\n  "),
                lines.join("\n  "),
                self.logs(),
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Runs a command to its end, for at most `EVENTUALLY`.
    fn output(&self, text: &str) -> (bool, Vec<String>) {
        let state = self.path("state").to_string_lossy().into_owned();
        let script = format!("{text}\ncode=$?\nexport -p > {state}/exported\npwd > {state}/folder\nexit $code");
        let log = self.path("state/output");
        let file = File::create(&log).unwrap();
        let mut process = self.shell(&script).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let deadline = Instant::now() + EVENTUALLY;
        let success = loop {
            match process.try_wait().unwrap() {
                Some(status) => break status.success() || is_question(text) && is_answer(status.code()),
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                None => {
                    process.kill().unwrap();
                    process.wait().unwrap();
                    break false;
                }
            }
        };
        (success, lines_of(&log))
    }

    /// Starts a command that goes on, and waits until it has printed what the page shows.
    fn serve(&mut self, at: &str, command: String, mut expected: Vec<String>) {
        let log = self.path(&format!("state/log-{}", self.serving.len()));
        let file = File::create(&log).unwrap();
        let process =
            self.shell(&format!("exec {command}")).stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        self.serving.push(Serving { command, process, log: log.clone() });
        expected.push("...".to_owned());
        let deadline = Instant::now() + EVENTUALLY;
        while !matches(&expected, &without_progress(lines_of(&log))) {
            let ended = self.serving.last_mut().and_then(|serving| serving.process.try_wait().unwrap());
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{at}: ended: {ended:?}\nexpected:\n  {}\ngot:\n  {}",
                expected.join("\n  "),
                lines_of(&log).join("\n  "),
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ctrl-C, which must end it in order.
    pub(crate) fn stop(&mut self, at: &str, command: &str) {
        let command = self.replaced(command);
        let found = self.serving.iter().rposition(|serving| serving.command.starts_with(&command));
        let mut serving = self.serving.remove(found.unwrap_or_else(|| panic!("{at}: `{command}` does not run")));
        let id = serving.process.id().to_string();
        assert!(Process::new("kill").args(["-INT", &id]).status().unwrap().success());
        let status = serving.process.wait().unwrap();
        assert!(status.success(), "{at}: {command}: {status}\n{}", lines_of(&serving.log).join("\n"));
    }

    fn logs(&self) -> String {
        let logs = self.serving.iter().map(|serving| {
            let lines = lines_of(&serving.log);
            format!("{}:\n  {}", serving.command, lines[lines.len().saturating_sub(20)..].join("\n  "))
        });
        logs.collect::<Vec<_>>().join("\n")
    }
}

/// On a busy machine a cluster says how far it is before it greets.
fn without_progress(mut lines: Vec<String>) -> Vec<String> {
    lines.retain(|line| !line.contains(" nodes are registered; the API server answers at "));
    lines
}

fn lines_of(log: &Path) -> Vec<String> {
    let text = std::fs::read(log).unwrap();
    String::from_utf8_lossy(&text).lines().map(squeeze).filter(|line| !line.is_empty()).collect()
}

/// Whether a command goes on until it is stopped.
fn serves(text: &str) -> bool {
    let command = text.strip_prefix("cargo run --release -- ").or(text.strip_prefix("bayplan ")).unwrap_or_default();
    let serves = ["up", "apiserver", "scheduler", "controller-manager", "nodes"];
    serves.iter().any(|name| command.split(' ').next() == Some(name))
        && !["--help", "--version", "--write-config-to"].iter().any(|flag| command.contains(flag))
}

/// Whether a command only looks, so that it may be tried again until the cluster has come so far.
fn is_reading(text: &str) -> bool {
    let looks = [" get ", " describe ", " events "].iter().any(|verb| text.contains(verb));
    text.starts_with("kubectl ") && looks || is_question(text)
}

/// Whether a command asks, so that its exit code is a part of the answer.
fn is_question(text: &str) -> bool {
    ["bayplan", "kubectl"]
        .iter()
        .any(|name| ["why", "whatif"].iter().any(|verb| text.contains(&format!("{name} {verb} "))))
}

/// Not yet, or never as specified.
fn is_answer(code: Option<i32>) -> bool {
    matches!(code, Some(10 | 11))
}
