//! Small bodies that took minutes, and probes beside them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Map, Value, json};

use crate::TURN;
use crate::cluster::{Cluster, NAMESPACE};
use crate::stopwatch::{ANSWER_MAX, ROUNDS, ask_beside, probe};

/// How many of a body are sent at once.
const AT_ONCE: usize = 3;
/// How much larger an answer may be than what was asked.
const ANSWER_BYTES_MORE: usize = 512 * 1024;

struct Attack {
    name: &'static str,
    line: String,
    content_type: &'static str,
    body: Vec<u8>,
    codes: &'static [u16],
}

fn create(name: &'static str, plural: &str, body: &Value, codes: &'static [u16]) -> Attack {
    let group = if plural == "roles" { "/apis/rbac.authorization.k8s.io/v1" } else { "/api/v1" };
    let line = format!("POST {group}/namespaces/{NAMESPACE}/{plural}?dryRun=All");
    Attack { name, line, content_type: "application/json", body: body.to_string().into(), codes }
}

fn owners(count: usize) -> Value {
    let owner = |n| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("o{n}"), "uid": format!("u{n}")});
    json!({"metadata": {"name": "a", "ownerReferences": (0..count).map(owner).collect::<Vec<_>>()}})
}

fn role() -> Value {
    let names = |prefix: &str| -> Vec<String> { (0..100).map(|n| format!("{prefix}{n}")).collect() };
    let rule = json!({"apiGroups": names("g"), "resources": names("r"), "verbs": names("v")});
    json!({"metadata": {"name": "a"}, "rules": [rule]})
}

fn labels() -> Value {
    let labels: Map<String, Value> = (0..20_000).map(|n| (format!("bad label {n}!"), json!("bad value!"))).collect();
    json!({"metadata": {"name": "a", "labels": labels}})
}

/// Moves that shift a list: the first element goes to the end, again and again.
fn shifts() -> Attack {
    let make = json!({"op": "add", "path": "/metadata/finalizers", "value": vec!["a.example/f"; 20_000]});
    let shift = json!({"op": "move", "from": "/metadata/finalizers/0", "path": "/metadata/finalizers/-"});
    let operations: Vec<Value> = std::iter::once(make).chain(std::iter::repeat_n(shift, 9_000)).collect();
    patch("9,000 moves in a list of 20,000", &Value::from(operations), &[422])
}

/// Moves of a large part of the object to another name and back.
fn renames() -> Attack {
    let rename = |n: usize| {
        let (from, path) = if n.is_multiple_of(2) { ("/data", "/datum") } else { ("/datum", "/data") };
        json!({"op": "move", "from": from, "path": path})
    };
    patch("10,000 renames", &(0..10_000).map(rename).collect(), &[200])
}

fn patch(name: &'static str, operations: &Value, codes: &'static [u16]) -> Attack {
    let line = format!("PATCH /api/v1/namespaces/{NAMESPACE}/configmaps/kube-root-ca.crt?dryRun=All");
    Attack { name, line, content_type: "application/json-patch+json", body: operations.to_string().into(), codes }
}

fn attacks() -> Vec<Attack> {
    let containers = |n| json!({"metadata": {"name": "a"}, "spec": {"containers": vec![json!({}); n]}});
    vec![
        create("5,000 owners", "configmaps", &owners(5_000), &[201]),
        create("20,000 owners", "configmaps", &owners(20_000), &[201]),
        create("a role of a million permissions", "roles", &role(), &[403]),
        create("80,000 empty containers", "pods", &containers(80_000), &[422]),
        create("as many empty containers as are looked at", "pods", &containers(49_000), &[422]),
        create("20,000 bad labels", "configmaps", &labels(), &[422]),
        shifts(),
        renames(),
    ]
}

/// Sends one of them so many times at once; answers how long the last answer took, and what was wrong.
async fn send(cluster: &Cluster, attack: &Attack) -> (Duration, Vec<String>) {
    let sent = Instant::now();
    let headers = [("Content-Type", attack.content_type)];
    let one = async || match cluster.ask(&attack.line, &headers, &cluster.namespace_admin, &attack.body).await {
        Ok((code, size)) if attack.codes.contains(&code) && size <= attack.body.len() + ANSWER_BYTES_MORE => None,
        Ok((code, size)) => Some(format!("{code} with {size} bytes")),
        Err(error) => Some(error.to_string()),
    };
    let wrong = join_all((0..AT_ONCE).map(|_| one())).await;
    (sent.elapsed(), wrong.into_iter().flatten().collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "bounds in seconds, for a release build"]
async fn small_bodies_are_answered_within_a_second_and_probes_beside_them() {
    let _turn = TURN.lock().await;
    let cluster = Arc::new(Cluster::start().await);
    let mut late = Vec::new();
    for attack in attacks() {
        let mut figures = String::new();
        for _ in 0..ROUNDS {
            let ((took, wrong), probes) =
                ask_beside(send(&cluster, &attack), async || probe(&cluster, "/readyz").await).await;
            figures = format!("{}: {took:?}, wrong: {wrong:?}, probes {probes:?}", attack.name);
            println!("{figures}");
            assert!(wrong.is_empty(), "{figures}");
            if took <= ANSWER_MAX && probes.are_prompt() {
                figures.clear();
                break;
            }
        }
        late.extend((!figures.is_empty()).then_some(figures));
    }
    assert!(late.is_empty(), "{}", late.join("\n"));
}
