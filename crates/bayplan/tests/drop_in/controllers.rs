//! `bayplan controller-manager` and kube-controller-manager through the same transcripts of kubectl, and what they
//! leave.
//!
//! There are no nodes and no scheduler here: pods get ready when a transcript says `ready`, so that every step of a
//! rollout can be looked at.

use std::path::Path;

use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::normal::{Names, UNORDERED, differences, event, normal};
use crate::transcript;

/// The controllers that both bring.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,\
    garbage-collector-controller,namespace-controller,persistentvolumeclaim-protection-controller";

/// `ready <count> <image>`: the first pods of an image that do not run yet get running and ready.
const READY: &str = r#"
ready() {
  local of_image="?(@.spec.containers[0].image=='$2')"
  kubectl get pods -o jsonpath="{range .items[$of_image]}{.status.phase} {.metadata.name}{'\n'}{end}" |
    sed -n 's/^Pending //p' | head -n "$1" | while read -r pod; do
      kubectl patch pod "$pod" --subresource=status --type=merge -o name -p '{"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
      }}' > /dev/null
    done
}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_read_and_end_as_with_kube_controller_manager() {
    compare(CONTROLLERS, &["rollout", "strategies"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_and_dependents_fare_as_with_kube_controller_manager() {
    compare(CONTROLLERS, &["owners", "namespace"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_are_those_of_kube_controller_manager() {
    let controllers = "endpoints-controller,endpointslice-controller,endpointslice-mirroring-controller,\
        garbage-collector-controller";
    compare(controllers, &["services"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stateful_and_daemon_sets_read_and_end_as_with_kube_controller_manager() {
    compare(CONTROLLERS, &["statefulset", "daemonset"]).await;
}

/// Plays the transcripts with both managers; what kubectl prints and what is left must be the same.
async fn compare(controllers: &str, transcripts: &[&str]) {
    let Some(plane) = ControlPlane::start().await else { return };
    let arguments = [
        format!("--kubeconfig={}", plane.kubeconfig("admin").display()),
        format!("--controllers={controllers}"),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        "--kube-api-qps=1000".into(),
        "--kube-api-burst=1000".into(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ours = {
        let _manager = plane.bayplan("bayplan", &[&["controller-manager"], &arguments[..]].concat());
        played(&plane, "ours", transcripts).await
    };
    let Some(_manager) = plane.upstream("kube-controller-manager", &arguments) else { return };
    let theirs = played(&plane, "theirs", transcripts).await;
    for ((what, ours), (_, theirs)) in ours.iter().zip(&theirs) {
        let differences = differences(ours, theirs);
        assert!(differences.is_empty(), "{what}\n{}", differences.join("\n"));
    }
}

/// Plays each transcript in a namespace of its own and answers what was left of each.
async fn played(plane: &ControlPlane, who: &str, transcripts: &[&str]) -> Vec<(String, Value)> {
    let prologue = plane.folder().join("prologue");
    std::fs::write(&prologue, READY).unwrap();
    let mut left = Vec::new();
    for transcript in transcripts {
        let namespace = format!("{who}-{transcript}");
        plane.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        let kubeconfig = plane.folder().join(format!("{namespace}.kubeconfig"));
        let admin = std::fs::read_to_string(plane.kubeconfig("admin")).unwrap();
        let user = "    user: bayplan\n";
        std::fs::write(&kubeconfig, admin.replace(user, &format!("{user}    namespace: {namespace}\n"))).unwrap();

        let path = format!("{}/tests/drop_in/controllers/{transcript}.txt", env!("CARGO_MANIFEST_DIR"));
        transcript::play(Path::new(&path), |command| {
            let mut shell = plane.shell(command);
            shell.env("KUBECONFIG", &kubeconfig).env("NAMESPACE", &namespace).env("BASH_ENV", &prologue);
            shell.output().unwrap()
        });
        left.push((transcript.to_string(), remains(plane, &namespace).await));
    }
    left
}

/// What is in a namespace, in words that do not depend on the run.
pub(crate) async fn remains(plane: &ControlPlane, namespace: &str) -> Value {
    let mut names = Names::from([(namespace.to_owned(), "NAMESPACE".to_owned())]);
    for service in plane.list("Service", namespace).await {
        if let Some(address) = service["spec"]["clusterIP"].as_str().filter(|address| *address != "None") {
            names.insert(address.to_owned(), "ADDRESS".to_owned());
        }
    }
    let mut remains = json!({});
    let kinds = ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ControllerRevision", "Pod"];
    for kind in kinds.into_iter().chain(["PersistentVolumeClaim", "Service", "Endpoints", "EndpointSlice"]) {
        let mut objects = plane.list(kind, namespace).await;
        if kind == "EndpointSlice" {
            // How many writes a slice took says how many changes of pods were seen at once.
            objects.iter_mut().for_each(|slice| drop(slice["metadata"]["generation"].take()));
        }
        remains[kind] = sorted(objects.iter().map(|object| scrubbed(normal(object, &names))));
    }
    let events = plane.list("Event", namespace).await;
    remains["Event"] = sorted(events.iter().map(|each| scrubbed(event(each, &names))));
    remains
}

fn sorted(values: impl Iterator<Item = Value>) -> Value {
    let mut values: Vec<Value> = values.collect();
    values.sort_by_key(Value::to_string);
    values.into()
}

/// Without hashes and random suffixes, and with lists in order whose order means nothing.
fn scrubbed(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(key, value): (String, Value)| {
                let value = match scrubbed(value) {
                    Value::Array(items) if UNORDERED.contains(&key.as_str()) => sorted(items.into_iter()),
                    other => other,
                };
                (scrubbed_text(&key), value)
            };
            Value::Object(fields.into_iter().map(field).collect())
        }
        Value::Array(items) => items.into_iter().map(scrubbed).collect(),
        Value::String(text) => scrubbed_text(&text).into(),
        other => other,
    }
}

pub(crate) fn scrubbed_text(text: &str) -> String {
    let is_inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let mut scrubbed = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_inside) {
        let (before, word) = rest.split_at(start);
        let end = word.find(|c| !is_inside(c)).unwrap_or(word.len());
        scrubbed += before;
        scrubbed += &scrubbed_word(&word[..end]);
        rest = &word[end..];
    }
    scrubbed + rest
}

fn scrubbed_word(word: &str) -> String {
    // No vowels and no digits that could be taken for them, so words of English are never taken for random ones.
    let is_random = |part: &&str| part.len() >= 5 && part.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c));
    let parts: Vec<&str> = word.split('-').collect();
    if parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) {
        return "UID".into();
    }
    let parts = parts.into_iter().map(|part| if is_random(&part) { "*" } else { part });
    parts.collect::<Vec<_>>().join("-")
}

#[test]
fn only_what_is_random_is_scrubbed() {
    for (text, scrubbed) in [
        ("Created pod: web-5d4f7c6b8d-x2x9z", "Created pod: web-*-*"),
        ("k:{\"uid\":\"0f3c8b7e-98a1-4c55-9d3f-0123456789ab\"}", "k:{\"uid\":\"UID\"}"),
        (
            "deployment-controller scaled web-canary from 3 to 10",
            "deployment-controller scaled web-canary from 3 to 10",
        ),
    ] {
        assert_eq!(scrubbed_text(text), scrubbed);
    }
}
