//! Questions to a real API server: `bayplan up`, asked by users who may only read, in the ways that kubeconfigs name.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

#[path = "../cluster/mod.rs"]
mod cluster;
mod kubeconfig;
mod relay;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bayplan_model::api::Resource;
use bayplan_testkit::{binary, pod};
use cluster::{Cluster, NAMESPACE};
use kubeconfig::Kubeconfig;
use relay::Relay;
use serde_json::{Value, json};

/// How long the scheduler may take; generous because shared machines stall.
const PATIENCE: Duration = Duration::from_secs(60);

/// Exit code, standard output and standard error.
struct Answer {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

/// Runs the binary with a kubeconfig.
async fn ask(kubeconfig: &Path, arguments: &str) -> Answer {
    let mut command = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")));
    command.args(arguments.split_whitespace()).arg("--kubeconfig").arg(kubeconfig);
    for variable in ["RUST_LOG", "KUBECONFIG", "HTTPS_PROXY", "https_proxy", "KUBERNETES_SERVICE_HOST"] {
        command.env_remove(variable);
    }
    // The relays run beside it.
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Answer { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A cluster with a pod that fits nowhere, and the rights of readers.
async fn cluster() -> Cluster {
    let cluster = Cluster::start().await;
    let reads = json!(["get", "list", "watch"]);
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": reads}]);
    let nodes_and_pods = json!([{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": reads}]);
    let nodes = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": reads}]);
    for (user, rules) in [("reader", everything), ("narrow", nodes_and_pods), ("blind", nodes)] {
        cluster.grant(user, rules).await;
    }
    let large = pod("large").namespace(NAMESPACE).image("none").request("cpu", "1000").json();
    cluster.create(&Resource::new("", "v1", "pods"), NAMESPACE, large).await;
    cluster
}

/// Asks until the scheduler's events are there.
async fn until_tried(kubeconfig: &Path) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask(kubeconfig, &format!("why pod/large -n {NAMESPACE} -o json")).await.json();
        if answer["attempts"].is_object() || Instant::now() > deadline {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_cluster_is_asked_with_the_rights_to_read_and_by_get_alone() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::recording(cluster.connector(), cluster.address()).await;
    let reader = Kubeconfig::new(&relay.url()).token(&cluster.token("reader").await).write(folder.path());

    let answer = until_tried(&reader).await;
    assert_eq!((&answer["verdict"], &answer["source"]["kind"]), (&json!("Never"), &json!("live")));
    assert_eq!(answer["source"].get("missing"), None, "{answer:#}");
    assert_eq!(answer["nodes"]["total"], cluster::NODES);
    assert_eq!((&answer["attempts"]["from"], &answer["attempts"]["atLeast"]), (&json!("events"), &json!(true)));
    assert_eq!(answer["lastAttempt"]["from"], json!(["condition", "events"]), "{answer:#}");
    assert_eq!(answer["lastAttempt"]["message"], answer["message"], "the scheduler there says the same");

    let nodes = cluster.list(&Resource::new("", "v1", "nodes"), "").await;
    let node = nodes[0]["metadata"]["name"].as_str().unwrap();
    let snapshot = folder.path().join("cluster.bpz");
    let taken = ask(&reader, &format!("snapshot -o {}", snapshot.display())).await;
    assert_eq!(taken.code, 0, "{}", taken.stderr);
    for (question, code) in [
        ("why -A".to_owned(), 11),
        (format!("why node/{node}"), 0),
        (format!("why deployment/none -n {NAMESPACE}"), 3),
        (format!("whatif --cordon {node} --ties name"), 0),
    ] {
        let answer = ask(&reader, &question).await;
        assert_eq!(answer.code, code, "{question}: {}{}", answer.stdout, answer.stderr);
    }
    let requests = relay.requests();
    assert!(requests.len() > 100, "{requests:?}");
    let others: Vec<&String> = requests.iter().filter(|line| !line.starts_with("GET ")).collect();
    assert_eq!(others, Vec::<&String>::new());

    // What the snapshot holds is asked in the same words, the attempts included.
    let from = ask_files(&snapshot, &format!("why pod/large -n {NAMESPACE} -o json")).await.json();
    assert_eq!((&from["message"], &from["attempts"]["from"]), (&answer["message"], &json!("events")));
}

async fn ask_files(from: &Path, arguments: &str) -> Answer {
    let mut command = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")));
    command.args(arguments.split_whitespace()).arg("--from").arg(from);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Answer { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_for_some_kinds_are_enough_and_what_is_missing_is_one_line_each() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let of = async |user: &str| {
        let config = Kubeconfig::new(&cluster.url()).authority(&cluster.authority());
        config.token(&cluster.token(user).await).write(folder.path())
    };
    let question = format!("why pod/large -n {NAMESPACE} -o json");

    let answer = ask(&of("narrow").await, &question).await;
    assert_eq!(answer.code, 11, "{}", answer.stderr);
    let missing: Vec<Value> = answer.json()["source"]["missing"].as_array().unwrap().clone();
    for resource in ["poddisruptionbudgets.policy", "persistentvolumes", "csinodes.storage.k8s.io"] {
        assert!(missing.contains(&resource.into()), "{missing:?}");
        let lines = answer.stderr.lines().filter(|line| line.contains(&format!("{resource} may not be read"))).count();
        assert_eq!(lines, 1, "{}", answer.stderr);
    }
    assert!(!missing.contains(&"pods".into()));
    assert!(answer.stderr.contains("events may not be read, so attempts are not counted"), "{}", answer.stderr);

    let answer = ask(&of("blind").await, &question).await;
    assert_eq!((answer.code, &*answer.stdout), (3, ""), "{}", answer.stderr);
    assert!(answer.stderr.starts_with("bayplan: pods may not be read on "), "{}", answer.stderr);
    assert_eq!(answer.stderr.lines().count(), 1, "{}", answer.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfigs_work_as_clouds_hand_them_out() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let token = cluster.token("reader").await;
    let question = format!("why pod/large -n {NAMESPACE} --message");
    let config = || Kubeconfig::new(&cluster.url()).authority(&cluster.authority());
    let works = async |what: &str, config: Kubeconfig| {
        let answer = ask(&config.write(folder.path()), &question).await;
        assert_eq!(answer.code, 11, "{what}: {}", answer.stderr);
        assert!(answer.stdout.starts_with("0/4 nodes are available"), "{what}: {}", answer.stdout);
    };
    let fails = async |what: &str, config: Kubeconfig, words: &str| {
        let answer = ask(&config.write(folder.path()), &question).await;
        assert_eq!((answer.code, &*answer.stdout), (3, ""), "{what}");
        assert!(answer.stderr.contains(words), "{what}: {}", answer.stderr);
        assert_eq!(answer.stderr.lines().count(), 1, "{what}: {}", answer.stderr);
    };

    works("an exec plugin", config().exec(folder.path(), &token)).await;
    fails("an exec plugin that is not there", config().exec_command("no-such-plugin"), "no-such-plugin").await;

    let proxy = Relay::http_proxy(None).await;
    works("proxy-url", config().token(&token).proxy(&proxy.url())).await;
    assert!(proxy.requests().iter().all(|line| line.starts_with("CONNECT ")) && !proxy.requests().is_empty());
    let proxy = Relay::http_proxy(Some(cluster.identity())).await;
    works("an https proxy, believed as the server is", config().token(&token).proxy(&proxy.url())).await;
    assert!(!proxy.requests().is_empty());
    fails("a proxy of another kind", config().token(&token).proxy("ftp://127.0.0.1:1"), "none of http, https and")
        .await;
    fails("a proxy that is away", config().token(&token).proxy("http://127.0.0.1:1"), "proxy").await;

    // An address that the server's certificate does not name.
    let relay = Relay::plain("127.0.0.2", cluster.address()).await;
    let by_address = || Kubeconfig::new(&relay.url()).authority(&cluster.authority()).token(&token);
    fails("another address", by_address(), "certificate").await;
    works("tls-server-name", by_address().server_name("kubernetes")).await;
}
