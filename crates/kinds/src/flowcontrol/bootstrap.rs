//! The flow schemas and priority levels that every cluster of v1.36 starts with.

use serde_json::{Value, json};

/// Two of each are mandatory: they are restored, and nobody changes their specs.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// An object of the first moments of a cluster.
#[derive(Clone, Debug)]
pub struct BootstrapConfiguration {
    /// Its name.
    pub name: &'static str,
    /// Its spec, defaulted.
    pub spec: Value,
    /// It is kept as it is. What is only suggested follows an annotation of the object.
    pub mandatory: bool,
}

fn configuration((name, spec): (&'static str, Value)) -> BootstrapConfiguration {
    BootstrapConfiguration { name, spec, mandatory: MANDATORY.contains(&name) }
}

/// The priority levels.
pub fn priority_levels() -> impl Iterator<Item = BootstrapConfiguration> {
    let limited = |shares: u32, lendable: u32, response: Value| {
        let limited =
            json!({"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response});
        json!({"type": "Limited", "limited": limited})
    };
    let queues = |queues: u32, hand: u32| {
        let queuing = json!({"queues": queues, "handSize": hand, "queueLengthLimit": 50});
        json!({"type": "Queue", "queuing": queuing})
    };
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    [
        ("exempt", exempt),
        ("catch-all", limited(5, 0, json!({"type": "Reject"}))),
        ("system", limited(30, 33, queues(64, 6))),
        ("node-high", limited(40, 25, queues(64, 6))),
        ("leader-election", limited(10, 0, queues(16, 4))),
        ("workload-high", limited(40, 50, queues(128, 6))),
        ("workload-low", limited(100, 90, queues(128, 6))),
        ("global-default", limited(20, 50, queues(128, 6))),
    ]
    .into_iter()
    .map(configuration)
}

/// The flow schemas.
pub fn flow_schemas() -> impl Iterator<Item = BootstrapConfiguration> {
    let leases = |verbs: &[&str]| {
        let group = ["coordination.k8s.io"];
        json!({"verbs": verbs, "apiGroups": group, "resources": ["leases"], "namespaces": ["*"]})
    };
    let nodes = json!({
        "verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true,
        "namespaces": ["*"],
    });
    let probes = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]});
    let (manager, scheduler) = (user("system:kube-controller-manager"), user("system:kube-scheduler"));
    let kube_system = json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}});
    let everybody = || vec![group("system:unauthenticated"), group("system:authenticated")];
    let nodes_group = || vec![group("system:nodes")];
    let electors = vec![manager.clone(), scheduler.clone(), kube_system.clone()];
    let election = json!({"subjects": electors, "resourceRules": [leases(&["get", "create", "update"])]});
    let node_rules = json!({"subjects": nodes_group(), "resourceRules": [nodes, leases(&["*"])]});
    [
        ("exempt", schema("exempt", 1, "", anything(vec![group("system:masters")]))),
        ("catch-all", schema("catch-all", 10_000, "ByUser", anything(everybody()))),
        ("system-nodes", schema("system", 500, "ByUser", anything(nodes_group()))),
        ("system-node-high", schema("node-high", 400, "ByUser", node_rules)),
        ("probes", schema("exempt", 2, "", json!({"subjects": everybody(), "nonResourceRules": [probes]}))),
        ("system-leader-election", schema("leader-election", 100, "ByUser", election)),
        ("kube-controller-manager", schema("workload-high", 800, "ByNamespace", anything(vec![manager]))),
        ("kube-scheduler", schema("workload-high", 800, "ByNamespace", anything(vec![scheduler]))),
        ("kube-system-service-accounts", schema("workload-high", 900, "ByNamespace", anything(vec![kube_system]))),
        ("service-accounts", schema("workload-low", 9000, "ByUser", anything(vec![group("system:serviceaccounts")]))),
        ("global-default", schema("global-default", 9900, "ByUser", anything(everybody()))),
    ]
    .into_iter()
    .map(configuration)
}

fn schema(level: &str, precedence: u32, distinguisher: &str, rule: Value) -> Value {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule],
    });
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({"type": distinguisher});
    }
    spec
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

fn anything(subjects: Vec<Value>) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
        }],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

/// The one spec that an object of this name may have, if it is mandatory.
pub(super) fn mandatory(mut all: impl Iterator<Item = BootstrapConfiguration>, name: &str) -> Option<Value> {
    MANDATORY.contains(&name).then(|| all.find(|one| one.name == name).map(|one| one.spec))?
}
