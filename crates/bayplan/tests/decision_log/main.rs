//! The decision log as its users meet it: written by `bayplan up` without being asked to, and read by `why --log`.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bayplan_client::Client;
use bayplan_model::api::{Api, Request, Resource, Verb, encode};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a cluster may take to do what it must; generous because shared machines stall.
const PATIENCE: Duration = Duration::from_secs(120);
const PODS: Resource = Resource::new("", "v1", "pods");

fn bayplan(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan"));
    command.args(arguments).env_remove("RUST_LOG").env_remove("KUBECONFIG").env("NO_COLOR", "1");
    command
}

/// Runs to the end: exit code, standard output, standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = bayplan(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// `bayplan up` in the background; ended with the test.
struct Up {
    process: Child,
    folder: TempDir,
}

impl Up {
    fn start(more: &[&str]) -> Up {
        let folder = tempfile::tempdir().unwrap();
        let arguments = ["up", "--nodes", "3", "--node-cpu", "4", "--port", "0", "--data-dir"];
        let mut command = bayplan(&arguments);
        command.arg(folder.path()).args(more);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        lines.by_ref().find(|line| line.contains("Ctrl-C")).expect("bayplan up came up");
        std::thread::spawn(move || lines.for_each(drop));
        Up { process, folder }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("decisions.jsonl")
    }

    async fn create_pod(&self, name: &str, cpu: &str) {
        let client = Client::from_kubeconfig(Some(&self.folder.path().join("kubeconfig")), None).await.unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "PASSWORD", "value": "hidden"}],
                "resources": {"requests": {"cpu": cpu}}}]}});
        let begun = Instant::now();
        // The namespace may still miss its service account.
        while let Err(status) = client.call(Request::collection(&PODS, "default", Verb::Create(encode(&pod)))).await {
            assert!(begun.elapsed() < PATIENCE, "{status:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        while !self.decisions().iter().any(|decision| decision["name"] == name) {
            assert!(begun.elapsed() < PATIENCE, "{name} is not in the log");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The decisions of the log, in their order.
    fn decisions(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["decision"].is_object()).map(|line| line["decision"].clone()).collect()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_logs_its_decisions_and_why_tells_them() {
    let mut up = Up::start(&[]);
    up.create_pod("web", "1").await;
    up.create_pod("huge", "100").await;
    let log = up.log();
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600, "it is for its owner's eyes");
    assert!(!fs::read_to_string(&log).unwrap().contains("hidden"), "secrets do not enter it");
    let chosen = up.decisions().iter().find(|decision| decision["name"] == "web").unwrap()["node"].clone();
    let chosen = chosen.as_str().unwrap();
    let shown = log.to_str().unwrap();

    // While it is written, and when the cluster is gone.
    for is_running in [true, false] {
        if !is_running {
            up.process.kill().unwrap();
            up.process.wait().unwrap();
        }
        let (code, out, said) = run(&["why", "pod/web", "--log", shown]);
        assert_eq!(code, 0, "{out}{said}");
        assert!(said.starts_with("bayplan: as it was decided at 20"), "{said}");
        assert!(said.contains(&format!("attempt 1 chose {chosen}")), "{said}");
        assert!(out.contains(chosen), "{out}");
        let (code, out, said) = run(&["why", "pod/huge", "--log", shown, "-o", "json"]);
        assert_eq!(code, 11, "{out}{said}");
        let answer: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&answer["source"]["kind"], &answer["verdict"]), (&"log".into(), &"Never".into()), "{answer:#}");
        let message = answer["message"].as_str().unwrap();
        assert!(said.contains(message), "the event's text is the answer's: {said}{message}");
    }
    tell_of_a_time(&log, chosen);
    tell_what_is_wrong(&log);
    read_what_was_cut(&log);
    let (code, out, said) = run(&["simulate", "--log", shown]);
    assert!(code == 0 && out.contains("default"), "{out}{said}");
}

/// `--at` takes the last decision up to a time.
fn tell_of_a_time(log: &Path, chosen: &str) {
    let log = log.to_str().unwrap();
    let (code, _, said) = run(&["why", "pod/web", "--log", log, "--at", "2099-01-01T00:00:00Z"]);
    assert!(code == 0 && said.contains(chosen), "{said}");
    let (code, out, said) = run(&["why", "pod/web", "--log", log, "--at", "2001-02-03T04:05:06Z"]);
    assert_eq!((code, out.as_str(), said.lines().count()), (3, "", 1), "{said}");
    let expected =
        format!("bayplan: pod default/web was not decided by 2001-02-03T04:05:06Z: {log} has it first at 20");
    assert!(said.starts_with(&expected), "{said}");
}

/// One line each, which says what to do.
fn tell_what_is_wrong(log: &Path) {
    let folder = log.parent().unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    fs::write(path("cluster.yaml"), "kind: List\n").unwrap();
    fs::write(path("empty"), "").unwrap();
    let (here, missing, yaml, empty) = (path("decisions.jsonl"), path("nothing"), path("cluster.yaml"), path("empty"));
    let folder = folder.to_str().unwrap().to_owned();
    for (file, pod, expected) in [
        (&missing, "pod/web", format!("there is no decision log {missing}: name the file of `bayplan scheduler")),
        (&folder, "pod/web", format!("{folder} is a folder and no decision log; that of `bayplan up` is {folder}/d")),
        (&yaml, "pod/web", format!("there is no decision to read: {yaml}: line 1 is left out: ")),
        (&empty, "pod/web", format!("there is no decision in {empty} yet")),
        (
            &here,
            "pod/other",
            format!("there is no decision about pod default/other in {here}, which has those from 20"),
        ),
        (&here, "deployment/web", format!("a decision log is asked about one pod: why pod/NAME --log {here}")),
    ] {
        let (code, out, said) = run(&["why", pod, "--log", file]);
        assert_eq!((code, out.as_str(), said.lines().count()), (3, "", 1), "{said}");
        assert!(said.starts_with(&format!("bayplan: {expected}")), "{said}");
    }
    // The filter of the log on standard error stands before the verb.
    let (code, _, said) = run(&["--log", "loud", "why", "pod/web", "--log", &here]);
    assert!(code == 3 && said.contains("--log loud: \"loud\" is not a level"), "{said}");
    let (code, ..) = run(&["--log", "warn", "why", "pod/web", "--log", &here]);
    assert_eq!(code, 0);
    for flag in ["--log", "--decision-log"] {
        let (code, _, said) = run(&["page", flag, &missing]);
        assert!(code == 3 && said.lines().count() == 1 && said.contains(&missing), "{said}");
        assert!(!said.contains("is not a level"), "{said}");
    }
}

/// A log whose writer was killed, and one that nobody wrote.
fn read_what_was_cut(log: &Path) {
    let whole = fs::read_to_string(log).unwrap();
    let at = log.with_file_name("cut.jsonl");
    let ask = |text: &str| {
        fs::write(&at, text).unwrap();
        run(&["why", "pod/web", "--log", at.to_str().unwrap()])
    };
    let last = whole.trim_end().rfind('\n').unwrap() + 1;
    let (code, _, said) = ask(&whole[..last + 30]);
    assert!(code == 0 && said.contains(" is cut; it is left out\n"), "{said}");
    let (head, rest) = whole.split_once('\n').unwrap();
    let gap = head.replacen("\"configuration\"", "\"lost\":7,\"configuration\"", 1);
    let (code, _, said) = ask(&format!("{gap}\n{rest}"));
    assert!(code == 0 && said.contains("7 changes and decisions before 20"), "{said}");
    let nested = format!("{{\"changes\":{}", "[".repeat(100_000));
    let with = |line: &str| format!("{head}\n{line}\n{rest}");
    let decision = r#"{"time":"2026-01-01T00:00:00Z","decision":{"namespace":"default","name":"web"}}"#;
    for (hostile, expected) in [
        (with(&nested), 0),
        (with("\u{0}\u{ff}\n{\"changes\":[{}]}\n{\"changes\":[{\"put\":7}]}"), 0),
        (with(r#"{"changes":[{"undone":{"uid":"x","volumes":["none"]}}]}"#), 0),
        (with(r#"{"changes":[{"assumed":{"uid":"x","node":"y"}}]}"#), 0),
        (format!("{}\n{rest}", head.replacen("\"configuration\":{", "\"configuration\":{\"x\":1,", 1)), 3),
        (format!("{head}\n{decision}\n"), 3),
        (nested, 3),
    ] {
        let (code, _, said) = ask(&hostile);
        assert_eq!(code, expected, "{said}");
        assert!(said.lines().count() < 30 && !said.contains("panicked"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_writes_no_log_when_told_so_and_rotates_the_one_it_had() {
    let up = Up::start(&["--decision-log", "none"]);
    assert!(!up.log().exists());
    drop(up);
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("log");
    fs::write(&file, "of an earlier run\n").unwrap();
    let up = Up::start(&["--decision-log", file.to_str().unwrap()]);
    assert!(!up.log().exists());
    assert_eq!(fs::read_to_string(elsewhere.path().join("log.1")).unwrap(), "of an earlier run\n");
    assert!(
        fs::read_to_string(&file).unwrap().starts_with("{\"apiVersion\":\"bayplan.dev/v1\",\"kind\":\"DecisionLog\"")
    );
    drop(up);
    let (code, _, said) = run(&["up", "--in-memory", "--port", "0", "--decision-log", "/dev/null/log"]);
    assert!(code == 1 && said.contains("cannot write the decision log /dev/null/log: "), "{said}");
}
