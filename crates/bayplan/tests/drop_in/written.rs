//! What `bayplan scheduler` writes about pods it binds, cannot place and evicts, beside what kube-scheduler writes.

use std::collections::BTreeMap;

use bayplan_testkit::free_ports;
use serde_json::{Value, json};

use crate::assets::Process;
use crate::control_plane::{ControlPlane, eventually};
use crate::metrics::{Family, families};
use crate::normal::{Names, differences, event, normal, writers};

/// Pods by name, each with what was written about it.
type Record = BTreeMap<String, Value>;

/// Families that only a tenth of the attempts, drawn at random, is counted in.
const SAMPLED: [&str; 1] = ["scheduler_plugin_execution_duration_seconds"];
/// Families of what Bayplan does otherwise, or tells at other moments: docs/contract.md says so.
const ABSENT: [&str; 7] = [
    "scheduler_batch_attempts_total",
    "scheduler_batch_cache_flushed_total",
    "scheduler_get_node_hint_duration_seconds",
    "scheduler_inflight_events",
    "scheduler_queueing_hint_execution_duration_seconds",
    "scheduler_store_schedule_results_duration_seconds",
    "scheduler_unschedulable_pods",
];
/// Families whose series follow from what was played, not from how long it took.
const SETTLED: [&str; 5] = [
    "scheduler_cache_size",
    "scheduler_pending_pods",
    "scheduler_pod_scheduling_attempts",
    "scheduler_preemption_victims",
    "scheduler_schedule_attempts_total",
];

/// What a scheduler wrote about pods, and what its endpoints show.
struct Observed {
    record: Record,
    metrics: BTreeMap<String, Family>,
    configuration: Value,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_nominations_events_and_metrics_are_kube_schedulers() {
    let Some(plane) = ControlPlane::start().await else { return };
    prepare(&plane).await;
    let ours =
        played(&plane, "ours", |arguments| Some(plane.bayplan("bayplan", &[&["scheduler"], arguments].concat())))
            .await
            .unwrap();
    check(&ours.record);
    let theirs = played(&plane, "theirs", |arguments| plane.upstream("kube-scheduler", arguments)).await;
    let Some(theirs) = theirs else { return };
    for (pod, written) in &theirs.record {
        let differences = differences(&ours.record[pod], written);
        assert!(differences.is_empty(), "{pod}\n{}", differences.join("\n"));
    }
    assert_eq!(differences(&ours.configuration, &theirs.configuration), [""; 0]);
    compare_metrics(&ours.metrics, &theirs.metrics);
}

/// Every family is there, with the same labels and buckets.
fn compare_metrics(ours: &BTreeMap<String, Family>, theirs: &BTreeMap<String, Family>) {
    let names = |families: &BTreeMap<String, Family>| -> Vec<String> {
        let is_due = |name: &&String| !SAMPLED.contains(&name.as_str()) && !ABSENT.contains(&name.as_str());
        families.keys().filter(is_due).cloned().collect()
    };
    assert_eq!(names(ours), names(theirs), "left is ours, right is kube-scheduler's");
    for (name, (ours, theirs)) in theirs.iter().filter_map(|(name, theirs)| Some((name, (ours.get(name)?, theirs)))) {
        assert_eq!(ours.kind, theirs.kind, "{name}");
        assert_eq!((&ours.labels, &ours.buckets), (&theirs.labels, &theirs.buckets), "{name}");
        if SETTLED.contains(&name.as_str()) {
            assert_eq!(ours.series, theirs.series, "{name}");
        }
    }
}

/// What must hold with or without kube-scheduler beside it.
fn check(record: &Record) {
    for (pod, node) in [("plain", "a"), ("tolerating", "c"), ("protected", "b"), ("important", "a")] {
        assert_eq!(record[pod]["node"], node, "{pod}");
    }
    for (pod, reason) in [
        ("huge", "Insufficient cpu"),
        ("selective", "didn't match Pod's node affinity/selector"),
        ("claiming", "persistentvolumeclaim \"absent\" not found"),
        ("polite", "preemptionPolicy=Never"),
    ] {
        let message = record[pod]["conditions"][0]["message"].as_str().unwrap();
        assert!(message.contains(reason), "{pod}: {message}");
    }
    assert_eq!(record["huge"]["writers"][0]["subresource"], "status");
    assert_eq!(record["important, waiting"]["nominated"], "a");
    let events = record["victim"]["events"].as_array().unwrap();
    assert!(events.iter().any(|event| event["reason"] == "Preempted"), "{events:?}");
    let conditions = record["victim"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|condition| condition["type"] == "DisruptionTarget"), "{conditions:?}");
}

async fn prepare(plane: &ControlPlane) {
    for (name, spec) in [
        ("a", json!({})),
        ("b", json!({})),
        ("c", json!({"taints": [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]})),
        ("d", json!({"unschedulable": true})),
    ] {
        plane.create(node(name, spec)).await;
    }
    for (name, value, policy) in
        [("high", 1000, "PreemptLowerPriority"), ("polite", 1000, "Never"), ("low", 10, "Never")]
    {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "preemptionPolicy": policy,
        });
        plane.create(class).await;
    }
}

fn node(name: &str, spec: Value) -> Value {
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": name}},
        "spec": spec,
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(namespace: &str, name: &str, cpu: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
    });
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

/// Plays all scenes before one scheduler, in a namespace of their own; none when there is no such scheduler.
async fn played(
    plane: &ControlPlane,
    namespace: &str,
    start: impl FnOnce(&[&str]) -> Option<Process>,
) -> Option<Observed> {
    plane.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
    let [port] = free_ports();
    let scheduler = start(&[
        "--config",
        &plane.scheduler_config("scheduler", json!({})),
        "--bind-address=127.0.0.1",
        &format!("--secure-port={port}"),
        &format!("--cert-dir={}", plane.folder().join(namespace).display()),
        "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics,/configz",
    ])?;
    let mut stage = Stage { plane, namespace, record: Record::new() };
    stage.bound().await;
    stage.failed().await;
    stage.preempted().await;

    let client = plane.unverified_client(port).await;
    let read = async |path: &str| String::from_utf8(client.get(path, "*/*").await.unwrap().to_vec()).unwrap();
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(read(path).await, "ok", "{path}");
    }
    let metrics = families(&read("/metrics").await, "scheduler_");
    let configuration = serde_json::from_str(&read("/configz").await).unwrap();
    scheduler.stop();
    Some(Observed { record: stage.record, metrics, configuration })
}

struct Stage<'a> {
    plane: &'a ControlPlane,
    namespace: &'a str,
    record: Record,
}

impl Stage<'_> {
    async fn bound(&mut self) {
        let on = |zone: &str| json!({"topology.kubernetes.io/zone": zone});
        self.create("plain", "100m", json!({"nodeSelector": on("a")})).await;
        let toleration = json!([{"key": "dedicated", "operator": "Exists"}]);
        self.create("tolerating", "100m", json!({"nodeSelector": on("c"), "tolerations": toleration})).await;
        self.create("gated", "100m", json!({"schedulingGates": [{"name": "example.com/wait"}]})).await;
        for name in ["plain", "tolerating"] {
            self.await_event(name, "Scheduled").await;
            self.keep(name, name, &[]).await;
        }
        self.keep("gated", "gated", &[]).await;
    }

    async fn failed(&mut self) {
        let volume = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "absent"}}]);
        let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}]});
        for (name, cpu, spec) in [
            ("huge", "100", json!({})),
            ("selective", "100m", json!({"nodeSelector": {"topology.kubernetes.io/zone": "elsewhere"}})),
            ("claiming", "100m", json!({"volumes": volume})),
            ("lonely", "100m", json!({"affinity": {"podAffinity": affinity}})),
            ("nameless", "100m", json!({"nodeSelector": {"kubernetes.io/hostname": "d"}})),
            ("polite", "100", json!({"priorityClassName": "polite"})),
        ] {
            self.create(name, cpu, spec).await;
            self.await_event(name, "FailedScheduling").await;
            self.await_status(name, "conditions").await;
            self.keep(name, name, &[]).await;
            self.remove(name).await;
        }
    }

    /// Two nodes with a less important pod each; the one that a budget protects must stay.
    async fn preempted(&mut self) {
        for (name, zone) in [("victim", "a"), ("protected", "b")] {
            let spec = json!({"priorityClassName": "low", "nodeSelector": {"topology.kubernetes.io/zone": zone}});
            self.create(name, "3", spec).await;
            self.await_event(name, "Scheduled").await;
        }
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "protected", "namespace": self.namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "protected"}}},
        });
        self.plane.create(budget).await;
        self.create("important", "3", json!({"priorityClassName": "high"})).await;
        self.await_status("important", "nominatedNodeName").await;
        self.await_event("important", "FailedScheduling").await;
        self.await_event("victim", "Preempted").await;
        self.keep("important, waiting", "important", &["victim"]).await;
        self.keep("victim", "victim", &["important"]).await;
        self.remove("victim").await;
        self.await_event("important", "Scheduled").await;
        self.keep("important", "important", &[]).await;
        self.keep("protected", "protected", &[]).await;
        for name in ["important", "protected", "plain", "tolerating", "gated"] {
            self.remove(name).await;
        }
    }

    async fn create(&self, name: &str, cpu: &str, spec: Value) {
        self.plane.create(pod(self.namespace, name, cpu, spec)).await;
    }

    async fn remove(&self, name: &str) {
        self.plane.remove_pod(self.namespace, name).await;
    }

    async fn events(&self, name: &str) -> Vec<Value> {
        let mut events = self.plane.list("Event", self.namespace).await;
        events.retain(|event| event["regarding"]["name"] == name);
        events
    }

    async fn await_status(&self, name: &str, field: &str) {
        eventually(&format!("{}/{name} has {field}", self.namespace), async || {
            let pod = self.plane.find("Pod", self.namespace, name).await?;
            (!pod["status"][field].is_null()).then_some(())
        })
        .await;
    }

    async fn await_event(&self, name: &str, reason: &str) {
        let what = format!("{}/{name} has the event {reason}", self.namespace);
        eventually(&what, async || self.events(name).await.iter().any(|event| event["reason"] == reason).then_some(()))
            .await;
    }

    /// Notes what is written about a pod, in words that do not depend on the run.
    async fn keep(&mut self, title: &str, name: &str, others: &[&str]) {
        let mut names = Names::from([(self.namespace.to_owned(), "NAMESPACE".to_owned())]);
        for other in others.iter().chain([&name]) {
            if let Some(pod) = self.plane.find("Pod", self.namespace, other).await {
                names.insert(pod["metadata"]["uid"].as_str().unwrap().to_owned(), format!("<uid of {other}>"));
            }
        }
        let pod = self.plane.find("Pod", self.namespace, name).await.unwrap();
        let mut events: Vec<Value> = self.events(name).await.iter().map(|each| event(each, &names)).collect();
        events.iter_mut().for_each(instance);
        events.sort_by_key(Value::to_string);
        events.dedup();
        let status = normal(&pod["status"], &names);
        let writers = writers(&pod).as_array().cloned().unwrap_or_default();
        let written = json!({
            "node": pod["spec"]["nodeName"],
            "nominated": pod["status"]["nominatedNodeName"],
            "conditions": status["conditions"],
            "events": events,
            "writers": writers.iter().filter(|writer| writer["manager"] == "kube-scheduler").collect::<Vec<_>>(),
        });
        self.record.insert(title.into(), written);
    }
}

/// An instance is called after its scheduler and its host; the host is not compared.
pub(crate) fn instance(event: &mut Value) {
    let controller = event["reportingController"].as_str().unwrap_or_default();
    let instance = event["reportingInstance"].as_str().unwrap_or_default();
    let host = instance.strip_prefix(controller).and_then(|rest| rest.strip_prefix('-'));
    if host.is_some_and(|host| !host.is_empty()) {
        event["reportingInstance"] = format!("{controller}-HOST").into();
    }
}
