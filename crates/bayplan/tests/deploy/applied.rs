//! The manifests applied by kubectl to `bayplan up`: everything is taken, the pods run, and the replicas are in
//! different zones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::chart::helm;
use crate::installed::root;

const PATIENCE: Duration = Duration::from_secs(120);

/// `bayplan up`, with a zone for each node.
struct Up {
    process: Child,
    folder: TempDir,
}

impl Up {
    fn start() -> Up {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan"));
        command.args(["up", "--nodes", "3", "--zones", "3", "--no-page", "--port", "0", "--data-dir"]);
        command.arg(folder.path().join("data")).stdout(Stdio::null());
        let up = Up { process: command.spawn().unwrap(), folder };
        let deadline = Instant::now() + PATIENCE;
        while up.kubectl(&["get", "node", "node-0003"]).is_none() {
            assert!(Instant::now() < deadline, "bayplan up does not come up");
            std::thread::sleep(Duration::from_millis(100));
        }
        up
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("data/kubeconfig")
    }

    /// What kubectl prints, unless it fails.
    fn kubectl(&self, arguments: &[&str]) -> Option<String> {
        let output = self.output(arguments);
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    fn must(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut kubectl = Command::new("kubectl");
        kubectl.args(arguments).env("KUBECONFIG", self.kubeconfig()).current_dir(root());
        kubectl.output().unwrap_or_else(|error| panic!("kubectl: {error}"))
    }

    /// The zones of the pods of one install, once all its pods are available.
    fn zones(&self, deployment: &str) -> BTreeSet<String> {
        let name = format!("deployment/{deployment}");
        self.must(&["-n", "kube-system", "rollout", "status", &name, "--timeout", "120s"]);
        let of = format!("app.kubernetes.io/instance={deployment}");
        let pods = self.must(&["-n", "kube-system", "get", "pods", "-l", &of, "-o", "json"]);
        let pods: Value = serde_json::from_str(&pods).unwrap();
        let pods = pods["items"].as_array().unwrap();
        let is_there =
            |pod: &&Value| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
        let running = pods.iter().filter(is_there);
        let zone = |pod: &Value| {
            assert_eq!(pod["spec"]["priority"], 2_000_000_000, "system-cluster-critical");
            let node = pod["spec"]["nodeName"].as_str().unwrap();
            let path = r"jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}";
            self.must(&["get", "node", node, "-o", path])
        };
        running.map(zone).collect()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "needs kubectl: .ci/run runs it"]
fn the_manifests_are_taken_and_their_pods_run_in_different_zones() {
    let up = Up::start();
    for name in ["second-scheduler", "shadow"] {
        let applied = up.must(&["apply", "-f", &format!("deploy/manifests/{name}.yaml")]);
        assert!(applied.lines().all(|line| line.ends_with(" created")), "{applied}");
    }
    assert_eq!(up.zones("bayplan-scheduler").len(), 2, "two replicas");
    assert_eq!(up.zones("bayplan-shadow").len(), 1, "one shadow");
    // The same objects with another configuration: a second scheduler moves up to the first.
    let applied = up.must(&["apply", "-f", "deploy/manifests/in-place-of-kube-scheduler.yaml"]);
    assert!(applied.contains("deployment.apps/bayplan-scheduler configured"), "{applied}");
    assert_eq!(up.zones("bayplan-scheduler").len(), 2);
    for name in ["in-place-of-kube-scheduler", "shadow"] {
        up.must(&["delete", "-f", &format!("deploy/manifests/{name}.yaml")]);
    }
    let left = up.must(&["get", "all,roles,rolebindings,clusterroles,clusterrolebindings", "-A", "-o", "name"]);
    let left: Vec<&str> = left.lines().filter(|name| name.contains("bayplan-") && !name.starts_with("pod/")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
#[ignore = "needs kubectl and helm: .ci/run runs it"]
fn a_rendered_chart_is_taken() {
    let up = Up::start();
    for mode in ["second", "shadow", "replace"] {
        let rendered = up.folder.path().join(format!("{mode}.yaml"));
        let set = format!("mode={mode},replicas=3,fullnameOverride=try-{mode}");
        std::fs::write(&rendered, crate::chart::render(&["--set", &set]).unwrap()).unwrap();
        up.must(&["apply", "-f", rendered.to_str().unwrap()]);
        assert_eq!(up.zones(&format!("try-{mode}")).len(), if mode == "shadow" { 1 } else { 3 });
    }
}

/// helm's own install and removal, with the writes that this API server takes.
#[test]
#[ignore = "needs kubectl and helm: .ci/run runs it"]
fn helm_installs_and_removes_the_chart() {
    let up = Up::start();
    let kubeconfig = up.kubeconfig();
    let with = |arguments: &[&str]| {
        let config = ["--kubeconfig", Path::new(&kubeconfig).to_str().unwrap(), "--namespace", "kube-system"];
        let output = helm(&[arguments, &config].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    with(&["install", "bayplan", "deploy/chart/bayplan", "--server-side=false"]);
    assert_eq!(up.zones("bayplan-scheduler").len(), 2);
    with(&["upgrade", "bayplan", "deploy/chart/bayplan", "--server-side=false", "--set", "replicas=3"]);
    assert_eq!(up.zones("bayplan-scheduler").len(), 3);
    with(&["uninstall", "bayplan"]);
    assert_eq!(up.kubectl(&["-n", "kube-system", "get", "deployment", "bayplan-scheduler"]), None);
}
