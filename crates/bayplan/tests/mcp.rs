//! A session of the Model Context Protocol with the real binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bayplan_testkit::{node, pod};
use serde_json::{Value, json};

struct Session {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl Session {
    /// Starts a session about a dump (`--from`) or a cluster (`--kubeconfig`).
    fn start(flag: &str, cluster: &Path) -> Session {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bayplan"))
            .args(["mcp", flag])
            .arg(cluster)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut session = Session { child, input, output, last_id: 0 };
        let client = json!({"name": "a test", "version": "1"});
        let answer = session
            .ask("initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}));
        assert_eq!(answer["result"]["serverInfo"]["name"], "bayplan", "{answer}");
        session.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        session
    }

    fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
        input.flush().unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}));
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], self.last_id, "{answer}");
        answer
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Ends the session as clients do: by closing the input.
    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn a_client_lists_the_tools_and_gets_the_answers_of_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("cluster.json");
    let items = [node("n").json(), pod("big").request("cpu", "900").json()];
    std::fs::write(&dump, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).unwrap();
    let mut session = Session::start("--from", &dump);

    let tools = session.ask("tools/list", json!({}));
    let names: Vec<&str> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["why", "whatif", "simulate", "shadow"]);
    assert!(
        tools["result"]["tools"].as_array().unwrap().iter().all(|tool| tool["annotations"]["readOnlyHint"] == true)
    );

    let why = session.call("why", json!({"target": "pod/big", "namespace": "default"}));
    let answer = &why["result"]["structuredContent"];
    assert_eq!((&answer["kind"], &answer["nodes"]["total"]), (&json!("Explanation"), &json!(1)), "{why}");
    assert_ne!(why["result"]["isError"], true);

    let manifest = pod("small").request("cpu", "1").json().to_string();
    let whatif = session.call("whatif", json!({"actions": [{"delete": "pod/big"}, {"manifest": manifest}]}));
    let placed = &whatif["result"]["structuredContent"]["placed"];
    assert_eq!(placed, &json!([{"pod": "default/small", "node": "n"}]), "{whatif}");

    let arrivals = json!([
        {"time": 0, "action": "create", "pod": pod("job").request("cpu", "3").json(), "runSeconds": 60},
        {"time": 30, "action": "create", "pod": pod("next").request("cpu", "3").json()},
        {"time": 120, "action": "delete", "pod": "default/next"},
    ]);
    let simulation = session.call("simulate", json!({"arrivals": arrivals, "configurations": {"one": "", "two": ""}}));
    let answer = &simulation["result"]["structuredContent"];
    assert_eq!((&answer["kind"], &answer["configs"][1]["name"]), (&json!("Simulation"), &json!("two")), "{simulation}");
    let metrics = &answer["configs"][0]["metrics"];
    assert_eq!((&metrics["podsPlaced"], &metrics["waitSeconds"]["max"]), (&json!(2), &json!(120.0)), "{metrics}");

    let shadow = session.call("shadow", json!({"seconds": 1}));
    assert!(shadow["result"]["content"][0]["text"].as_str().unwrap().contains("live cluster"), "{shadow}");

    let unknown = session.call("why", json!({"target": "pod/nobody"}));
    assert_eq!(unknown["result"]["isError"], true, "{unknown}");
    let refused = session.call("why", json!({"kubeconfig": "/somewhere"}));
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(session.call("rm", json!({}))["error"]["message"].as_str().unwrap().contains("no tool"));
    session.end();
}

/// A cluster in the background; ended with the test.
struct Up(Child);

impl Up {
    fn start(data: &Path) -> Up {
        let arguments = ["up", "--port", "0", "--no-page", "--nodes", "2", "--data-dir"];
        let mut child = Command::new(env!("CARGO_BIN_EXE_bayplan"))
            .args(arguments)
            .arg(data)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.take_while(|line| !line.contains("Ctrl-C")).count() > 0);
        Up(child)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_client_has_a_live_cluster_watched_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let _up = Up::start(&folder.path().join("data"));
    let mut session = Session::start("--kubeconfig", &folder.path().join("data/kubeconfig"));
    let shadow = session.call("shadow", json!({"seconds": 1}));
    assert_eq!(shadow["result"]["structuredContent"]["kind"], "ShadowReport", "{shadow}");
    session.end();
}
