//! The flow schemas and priority levels that every cluster of v1.36 starts with.

use crate::config::{
    Distinguisher, FlowSchema, Limiting, NonResourceRule, PriorityLevel, Queuing, ResourceRule, Rule, Subject,
};

use Distinguisher::{ByNamespace, ByUser};
use Subject::{Group, ServiceAccount, User};

const EVERYBODY: [Subject; 2] = [Group("system:unauthenticated"), Group("system:authenticated")];
const NODES: [Subject; 1] = [Group("system:nodes")];
const CONTROLLER_MANAGER: Subject = User("system:kube-controller-manager");
const SCHEDULER: Subject = User("system:kube-scheduler");
const KUBE_SYSTEM: Subject = ServiceAccount("kube-system", "*");

/// The priority levels: what is mandatory (`exempt`, `catch-all`) and what is suggested.
pub fn priority_levels() -> Vec<PriorityLevel> {
    let level = |name, shares, lendable_percent, limiting| PriorityLevel {
        name,
        shares,
        lendable_percent,
        borrowing_limit_percent: None,
        limiting,
    };
    let queues = |queues, hand_size| Limiting::Queue(Queuing { queues, hand_size, queue_length_limit: 50 });
    vec![
        level("exempt", 0, 0, Limiting::Exempt),
        level("leader-election", 10, 0, queues(16, 4)),
        level("node-high", 40, 25, queues(64, 6)),
        level("system", 30, 33, queues(64, 6)),
        level("workload-high", 40, 50, queues(128, 6)),
        level("workload-low", 100, 90, queues(128, 6)),
        level("global-default", 20, 50, queues(128, 6)),
        level("catch-all", 5, 0, Limiting::Reject),
    ]
}

/// The flow schemas, in the order in which they are asked.
pub fn flow_schemas() -> Vec<FlowSchema> {
    let leases = |verbs: &[&'static str]| objects(verbs, "coordination.k8s.io", &["leases"], false);
    let of_nodes = objects(&["*"], "", &["nodes", "nodes/status"], true);
    let probes = NonResourceRule { verbs: vec!["get"], paths: vec!["/healthz", "/readyz", "/livez"] };
    let electors = [CONTROLLER_MANAGER, SCHEDULER, KUBE_SYSTEM];
    let masters = [Group("system:masters")];
    let accounts = [Group("system:serviceaccounts")];
    let none = Distinguisher::None;
    vec![
        schema("exempt", "exempt", 1, none, anything(&masters)),
        schema("probes", "exempt", 2, none, rule(&EVERYBODY, vec![], vec![probes])),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            ByUser,
            rule(&electors, vec![leases(&["get", "create", "update"])], vec![]),
        ),
        schema("system-node-high", "node-high", 400, ByUser, rule(&NODES, vec![of_nodes, leases(&["*"])], vec![])),
        schema("system-nodes", "system", 500, ByUser, anything(&NODES)),
        schema("kube-controller-manager", "workload-high", 800, ByNamespace, anything(&[CONTROLLER_MANAGER])),
        schema("kube-scheduler", "workload-high", 800, ByNamespace, anything(&[SCHEDULER])),
        schema("kube-system-service-accounts", "workload-high", 900, ByNamespace, anything(&[KUBE_SYSTEM])),
        schema("service-accounts", "workload-low", 9000, ByUser, anything(&accounts)),
        schema("global-default", "global-default", 9900, ByUser, anything(&EVERYBODY)),
        schema("catch-all", "catch-all", 10_000, ByUser, anything(&EVERYBODY)),
    ]
}

fn schema(
    name: &'static str,
    level: &'static str,
    precedence: i32,
    distinguisher: Distinguisher,
    rule: Rule,
) -> FlowSchema {
    FlowSchema { name, level, precedence, distinguisher, rules: vec![rule] }
}

fn rule(subjects: &[Subject], resources: Vec<ResourceRule>, paths: Vec<NonResourceRule>) -> Rule {
    Rule { subjects: subjects.to_vec(), resources, paths }
}

fn anything(subjects: &[Subject]) -> Rule {
    let paths = NonResourceRule { verbs: vec!["*"], paths: vec!["*"] };
    rule(subjects, vec![objects(&["*"], "*", &["*"], true)], vec![paths])
}

fn objects(verbs: &[&'static str], group: &'static str, resources: &[&'static str], cluster: bool) -> ResourceRule {
    ResourceRule {
        verbs: verbs.to_vec(),
        groups: vec![group],
        resources: resources.to_vec(),
        namespaces: vec!["*"],
        cluster_scope: cluster,
    }
}
