//! How long `why` takes once a cluster is loaded: `cargo run --release -p bayplan-explain --example why_speed`.
//!
//! 5,000 nodes with 30 pods each, all but full, and 10,000 pending pods of 50 templates.

use std::sync::Arc;
use std::time::Instant;

use bayplan_explain::why::{Options, explain, explain_all};
use bayplan_explain::{Profiles, State};
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{PodInfo, Registry};
use bayplan_sources::{ClusterObjects, SourceObject, resource_of};
use jiff::Timestamp;
use serde_json::{Value, json};

const NODES: usize = 5_000;
const PODS_PER_NODE: usize = 30;
const PENDING: usize = 10_000;
const TEMPLATES: usize = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let profiles = Profiles::build(&Configuration::default(), &Registry::default())?;
    let started = Instant::now();
    let mut state = State::new(objects()?);
    report("state from objects in memory", started);
    let options = Options::at(Timestamp::UNIX_EPOCH);
    let pending: Vec<Arc<PodInfo>> = state.pending().cloned().collect();
    for (what, pod) in [("fits nowhere", &pending[1]), ("fits", &pending[0])] {
        let started = Instant::now();
        let answer = explain(&mut state, &profiles, pod, &options);
        report(&format!("why of a pod that {what} ({})", answer.verdict.name()), started);
    }
    let per_node = Options { per_node: true, ..options.clone() };
    let started = Instant::now();
    let answer = explain(&mut state, &profiles, &pending[1], &per_node);
    let json = serde_json::to_string(&answer)?;
    report(&format!("the same with --per-node, {} bytes of JSON", json.len()), started);
    let started = Instant::now();
    let list = explain_all(&mut state, &profiles, pending, &options);
    report(&format!("why -A: {} groups, {:?}", list.groups.len(), list.counts), started);
    Ok(())
}

#[allow(clippy::print_stdout, reason = "it is what the example is for")]
fn report(what: &str, started: Instant) {
    println!("{:>8.1} ms  {what}", started.elapsed().as_secs_f64() * 1000.0);
}

fn objects() -> Result<ClusterObjects, serde_json::Error> {
    let mut all = ClusterObjects::default();
    for node in 0..NODES {
        let name = format!("n-{node:04}");
        let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("z-{}", node % 3)});
        let taints = if node % 10 == 0 { json!([{"key": "gpu", "effect": "NoSchedule"}]) } else { json!([]) };
        add(
            &mut all,
            "Node",
            json!({
                "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
                "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}},
            }),
        )?;
        for pod in 0..PODS_PER_NODE {
            let mut json = pod_of(&format!("p-{node}-{pod}"), "1", pod % 7, 0);
            json["spec"]["nodeName"] = name.clone().into();
            json["status"] = json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"});
            add(&mut all, "Pod", json)?;
        }
    }
    for pod in 0..PENDING {
        let template = pod % TEMPLATES;
        // One template in ten fits; half of the others may preempt.
        let cpu = if template.is_multiple_of(10) { "1500m" } else { "3" };
        add(&mut all, "Pod", pod_of(&format!("q-{pod}"), cpu, template, (template % 2) * 100))?;
    }
    Ok(all)
}

fn pod_of(name: &str, cpu: &str, template: usize, priority: usize) -> Value {
    let app = format!("app-{template}");
    let spread = json!([{
        "maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": app}},
    }]);
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}},
        "spec": {
            "schedulerName": "default-scheduler", "priority": priority, "topologySpreadConstraints": spread,
            "containers": [{"name": "c", "image": app, "resources": {"requests": {"cpu": cpu, "memory": "2Gi"}}}],
        },
    })
}

fn add(all: &mut ClusterObjects, kind: &str, mut object: Value) -> Result<(), serde_json::Error> {
    object["apiVersion"] = "v1".into();
    object["kind"] = kind.into();
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let Some(resource) = resource_of("v1", kind) else { return Ok(()) };
    let (namespace, name) = (text("namespace").into(), text("name").into());
    all.objects.push(SourceObject { resource, namespace, name, json: serde_json::value::to_raw_value(&object)? });
    Ok(())
}
