//! Bayplan on a real etcd: a cluster that kube-apiserver left there, clusters that move in and out, several members,
//! and what goes wrong with etcd itself.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod members;
mod migrate;
mod waiting;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bayplan_client::Client;
use bayplan_testkit::{Etcd, free_ports};
use flate2::read::GzDecoder;
use serde_json::Value;

const RECORDED: &str = "../sources/tests/etcd";

/// How long anything may take that is not broken; generous because shared machines stall.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that does not outlive the test.
struct Server {
    process: Child,
    /// What it printed until it was ready.
    screen: String,
}

impl Server {
    /// Starts a command and waits for its first screen.
    fn run(command: &str, folder: &Path, more: &[&str]) -> Server {
        let mut process = bayplan(command, folder, more).stdout(Stdio::piped()).spawn().unwrap();
        let (mut screen, mut ready) = (String::new(), false);
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        for line in lines.by_ref() {
            screen = format!("{screen}{line}\n");
            ready = line.contains("Ctrl-C");
            if ready {
                break;
            }
        }
        assert!(ready, "it did not come up: {screen}");
        std::thread::spawn(move || lines.for_each(drop));
        Server { process, screen }
    }

    fn start(etcd: &str, folder: &Path) -> Server {
        // The range of the recorded cluster.
        Server::run("apiserver", folder, &["--etcd-servers", etcd, "--service-cluster-ip-range", "10.0.0.0/24"])
    }

    /// Asks it to stop, and waits until it has.
    fn stop(mut self) {
        assert!(Command::new("kill").arg(self.process.id().to_string()).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
    }
}

/// A server command on a folder and a free port.
fn bayplan(command: &str, folder: &Path, more: &[&str]) -> Command {
    let mut started = Command::new(env!("CARGO_BIN_EXE_bayplan"));
    started.args([command, "--port", "0", "--data-dir", folder.to_str().unwrap()]).args(more).env_remove("RUST_LOG");
    started
}

/// The administrator of the server on a folder.
async fn administrator(folder: &Path) -> Client {
    Client::from_kubeconfig(Some(&folder.join("kubeconfig")), None).await.unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Restores the recorded snapshot into the folder in which an etcd will start.
fn restore(etcd_binary: &Path, folder: &Path) {
    let mut database = Vec::new();
    let compressed = std::fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDED).join("snapshot.db.gz"));
    GzDecoder::new(compressed.unwrap()).read_to_end(&mut database).unwrap();
    let file = folder.join("snapshot.db");
    std::fs::write(&file, database).unwrap();
    let restored = Command::new(etcd_binary.with_file_name("etcdutl"))
        .args(["snapshot", "restore", file.to_str().unwrap(), "--data-dir", folder.join("data").to_str().unwrap()])
        .output()
        .unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
}

/// The objects as kube-apiserver served them, by the path of their collection and by namespace and name.
fn recorded() -> BTreeMap<String, BTreeMap<String, Value>> {
    let mut text = String::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDED).join("objects.jsonl.gz");
    GzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    let mut collections = BTreeMap::<_, BTreeMap<_, _>>::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let version = line["object"]["apiVersion"].as_str().unwrap();
        let plural = line["resource"].as_str().unwrap().split('.').next().unwrap();
        let root = if version.contains('/') { "apis" } else { "api" };
        let path = format!("/{root}/{version}/{plural}");
        collections.entry(path).or_default().insert(name(&line["object"]), line["object"].clone());
    }
    collections
}

fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

/// What a server keeps by itself: its address, its identity, and whom extension API servers may believe.
fn is_kept_by_servers(path: &str, name: &str) -> bool {
    match name {
        "default/kubernetes" => path.ends_with("/endpoints") || path.ends_with("/endpointslices"),
        "kube-system/extension-apiserver-authentication" => true,
        _ => path.ends_with("/leases") && name.starts_with("kube-system/apiserver-"),
    }
}

async fn list(client: &Client, path: &str) -> Option<BTreeMap<String, Value>> {
    let answer = client.get(path, "application/json").await.ok()?;
    let mut list: Value = serde_json::from_slice(&answer).unwrap();
    let (version, kind) =
        (list["apiVersion"].clone(), list["kind"].as_str().unwrap().trim_end_matches("List").to_owned());
    let items = list["items"].as_array_mut().unwrap().iter_mut().map(|item| {
        item["apiVersion"] = version.clone();
        item["kind"] = kind.as_str().into();
        (name(item), item.take())
    });
    Some(items.collect())
}

#[tokio::test]
async fn a_cluster_that_kube_apiserver_left_in_etcd_is_served_as_it_was() {
    let test = "a_cluster_that_kube_apiserver_left_in_etcd_is_served_as_it_was";
    let Some(binary) = Etcd::binary(test) else { return };
    let etcd = Etcd::start_with(test, |folder| {
        restore(&binary, folder);
        Vec::new()
    });
    let (etcd, folder) = (etcd.unwrap(), tempfile::tempdir().unwrap());
    let data: PathBuf = folder.path().join("data");
    let _server = Server::start(&etcd.url(), &data);
    let client = administrator(&data).await;
    let (mut equal, mut absent) = (0, Vec::new());
    for (path, objects) in recorded() {
        let Some(listed) = list(&client, &path).await else {
            absent.push(path);
            continue;
        };
        for (name, expected) in objects.iter().filter(|(name, _)| !is_kept_by_servers(&path, name)) {
            assert_eq!(listed.get(name), Some(expected), "{path} {name}");
            equal += 1;
        }
    }
    // Kinds that are not served yet; docs/contract.md says so.
    let expected = [
        "/api/v1/componentstatuses",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/example.com/v1/widgets",
    ];
    assert_eq!(absent, expected);
    assert!(equal > 800, "{equal} objects are equal");
}

#[test]
fn an_etcd_that_cannot_be_used_is_one_clear_line() {
    let [port] = free_ports();
    let (folder, address) = (tempfile::tempdir().unwrap(), format!("http://127.0.0.1:{port}"));
    let start = |etcd: &str, more: &[&str]| {
        let data = folder.path().join("data");
        let ran = bayplan("apiserver", &data, &["--etcd-servers", etcd]).args(more).output().unwrap();
        assert_eq!(ran.status.code(), Some(1));
        String::from_utf8(ran.stderr).unwrap()
    };
    // An etcd that may still come is waited for, which is a line of its own.
    let said = start(&address, &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("refused") && lines[0].ends_with("trying for 20 s"), "{said}");
    assert!(lines[1].starts_with("bayplan: --etcd-servers: cannot reach etcd: "), "{said}");
    let cases = [
        ("127.0.0.1", &[][..], "cannot be used"),
        (&address, &["--etcd-cafile", "/nowhere/ca.crt"], "--etcd-cafile /nowhere/ca.crt: No such file"),
    ];
    for (etcd, more, expected) in cases {
        let said = start(etcd, more);
        assert!(said.contains(expected) && said.lines().count() == 1, "{etcd}: {said}");
    }
}
