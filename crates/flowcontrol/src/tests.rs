use bayplan_kinds::flow_control::{BootstrapConfiguration, flow_schemas, priority_levels};
use serde_json::{Value, json};

use super::*;

fn object(wanted: &BootstrapConfiguration) -> Value {
    json!({"metadata": {"name": wanted.name, "uid": format!("uid-of-{}", wanted.name)}, "spec": wanted.spec})
}

/// The levels that every cluster starts with.
pub(crate) fn levels() -> Vec<PriorityLevel> {
    priority_levels().map(|wanted| PriorityLevel::read(&object(&wanted)).unwrap()).collect()
}

/// All objects that every cluster starts with, or those that are mandatory.
pub(crate) fn objects(only_mandatory: bool) -> Objects {
    let wanted = |one: &BootstrapConfiguration| one.mandatory || !only_mandatory;
    Objects {
        levels: priority_levels()
            .filter(wanted)
            .map(|wanted| Arc::new(PriorityLevel::read(&object(&wanted)).unwrap()))
            .collect(),
        schemas: flow_schemas()
            .filter(wanted)
            .map(|wanted| Arc::new(FlowSchema::read(&object(&wanted)).unwrap()))
            .collect(),
    }
}

fn plan() -> Plan {
    Plan::new(&objects(false), &objects(true), &[], 600)
}

/// Flow schema and level of a request: `verb group/resource[/subresource] [in namespace]` or `verb /path`.
fn class(user: &str, groups: &[&str], request: &str) -> (String, String) {
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    let mut words = request.split(' ');
    let (verb, what, namespace) = (words.next().unwrap(), words.next().unwrap(), words.nth(1).unwrap_or_default());
    let mut asked = Request { user, groups: &groups, verb, namespace, ..Request::default() };
    if what.starts_with('/') {
        asked.path = what;
    } else {
        let mut parts = what.split('/');
        asked.is_resource = true;
        asked.group = parts.next().unwrap();
        asked.resource = parts.next().unwrap();
        asked.subresource = parts.next().unwrap_or_default();
        if asked.group == "core" {
            asked.group = "";
        }
    }
    let plan = plan();
    let class = plan.classifier.classify(&asked).unwrap();
    (class.schema.name.clone(), plan.levels[class.level].level.name.clone())
}

#[test]
fn requests_are_classified_as_upstream_does() {
    let authenticated = &["system:authenticated"][..];
    let node = &["system:nodes", "system:authenticated"][..];
    let account = &["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"][..];
    let leases = "coordination.k8s.io/leases";
    let table: &[(&str, &[&str], String, &str, &str)] = &[
        ("admin", &["system:masters", "system:authenticated"], "list core/pods".into(), "exempt", "exempt"),
        ("admin", &["system:masters"], "get /metrics".into(), "exempt", "exempt"),
        ("system:anonymous", &["system:unauthenticated"], "get /healthz".into(), "probes", "exempt"),
        ("system:anonymous", &["system:unauthenticated"], "get /readyz/etcd".into(), "probes", "exempt"),
        ("system:anonymous", &["system:unauthenticated"], "get /livez".into(), "probes", "exempt"),
        ("system:anonymous", &["system:unauthenticated"], "get /healthzzz".into(), "global-default", "global-default"),
        ("system:anonymous", &["system:unauthenticated"], "post /healthz".into(), "global-default", "global-default"),
        (
            "system:kube-scheduler",
            authenticated,
            format!("update {leases} in kube-system"),
            "system-leader-election",
            "leader-election",
        ),
        (
            "system:kube-scheduler",
            authenticated,
            format!("list {leases} in kube-system"),
            "kube-scheduler",
            "workload-high",
        ),
        (
            "system:kube-scheduler",
            authenticated,
            "create core/pods/binding in a".into(),
            "kube-scheduler",
            "workload-high",
        ),
        (
            "system:kube-controller-manager",
            authenticated,
            "create core/pods in a".into(),
            "kube-controller-manager",
            "workload-high",
        ),
        (
            "system:serviceaccount:kube-system:x",
            account,
            format!("get {leases} in a"),
            "system-leader-election",
            "leader-election",
        ),
        (
            "system:serviceaccount:kube-system:x",
            account,
            "list core/pods".into(),
            "kube-system-service-accounts",
            "workload-high",
        ),
        ("system:serviceaccount:kube-system2:x", account, "list core/pods".into(), "service-accounts", "workload-low"),
        ("system:node:n", node, "patch core/nodes/status".into(), "system-node-high", "node-high"),
        ("system:node:n", node, "patch core/nodes/proxy".into(), "system-nodes", "system"),
        ("system:node:n", node, format!("update {leases} in kube-node-lease"), "system-node-high", "node-high"),
        // Leases have a namespace; a request without one is not what the rule means.
        ("system:node:n", node, format!("list {leases}"), "system-nodes", "system"),
        ("system:node:n", node, "update core/pods/status in a".into(), "system-nodes", "system"),
        ("alice", authenticated, format!("update {leases} in a"), "global-default", "global-default"),
        ("alice", authenticated, "get /version".into(), "global-default", "global-default"),
        ("nobody's", &[], "get /version".into(), "catch-all", "catch-all"),
    ];
    for (user, groups, request, schema, level) in table {
        assert_eq!(class(user, groups, request), ((*schema).to_owned(), (*level).to_owned()), "{user}: {request}");
    }
}

#[test]
fn flows_are_told_apart_by_user_or_by_namespace() {
    let classifier = plan().classifier;
    let everybody = ["system:authenticated".to_owned()];
    let flow = |user, namespace| {
        let request =
            Request { user, namespace, groups: &everybody, is_resource: true, verb: "get", ..Request::default() };
        classifier.classify(&request).unwrap().flow
    };
    assert_ne!(flow("alice", "a"), flow("bob", "a"));
    assert_eq!(flow("alice", "a"), flow("alice", "b"));
    assert_ne!(flow("system:kube-scheduler", "a"), flow("system:kube-scheduler", "b"));
}

fn level(name: &str, seats: usize) -> Level<u32> {
    let levels = levels();
    let at = levels.iter().position(|level| level.name == name).unwrap();
    let mut level = Level::new(&levels[at], borrowing::bounds(levels.iter(), seats)[at], Duration::ZERO);
    level.set_seats(level.bounds().nominal, Duration::ZERO);
    level
}

const ONE: Estimate = Estimate::Seats(1);

#[test]
fn one_request_takes_a_bounded_part_of_its_level() {
    // Upstream's numbers for 600 seats.
    for (name, most) in
        [("global-default", Some(8)), ("workload-low", Some(37)), ("workload-high", Some(15)), ("catch-all", None)]
    {
        assert_eq!(level(name, 600).width_max(), most, "{name}");
    }
}

#[test]
fn a_level_without_queues_refuses_and_an_exempt_one_never_does() {
    let now = Duration::from_secs(1);
    let mut refusing = level("catch-all", 600);
    for _ in 0..13 {
        assert!(matches!(refusing.arrive(1, refusing.work(ONE), now, || 0), Answer::Serve(_)));
    }
    assert!(matches!(
        refusing.arrive(1, refusing.work(ONE), now, || 0),
        Answer::Refuse(Refusal { retry_after: 1, reason: "concurrency-limit" })
    ));
    let mut exempt = level("exempt", 600);
    for _ in 0..10_000 {
        assert!(matches!(exempt.arrive(1, exempt.work(ONE), now, || 0), Answer::Serve(_)));
    }
    assert_eq!(exempt.wish(Duration::from_secs(2)).demand.peak, 10_000);
}

#[test]
fn a_flood_of_one_user_waits_behind_itself() {
    let mut level = level("global-default", 600);
    let alice = flow("global-default", "alice");
    let (mut served, mut waiting, mut refused) = (0, 0, 0);
    for number in 0..5_700 {
        match level.arrive(alice, level.work(ONE), Duration::ZERO, || number) {
            Answer::Serve(_) => served += 1,
            Answer::Wait(_) => waiting += 1,
            Answer::Refuse(_) => refused += 1,
        }
    }
    // Fifty in each of the six queues of the hand.
    assert_eq!((served, waiting, refused), (49, 300, 5_351));
    let bob = level.arrive(flow("global-default", "bob"), level.work(ONE), Duration::ZERO, || 9_999);
    assert!(matches!(bob, Answer::Wait(_)));
}

#[test]
fn a_level_that_is_reconfigured_keeps_its_requests_and_serves_them_by_the_new_rules() {
    let now = Duration::from_secs(1);
    let mut level = level("global-default", 600);
    let (mut served, mut waiting) = (Vec::new(), 0);
    for _ in 0..60 {
        match level.arrive(7, level.work(ONE), now, || 0) {
            Answer::Serve(ticket) => served.push(ticket),
            Answer::Wait(_) => waiting += 1,
            Answer::Refuse(refusal) => panic!("{refusal:?}"),
        }
    }
    assert_eq!((served.len(), waiting, level.is_idle()), (49, 11, false));
    let refusing = PriorityLevel { limiting: Limiting::Reject, ..levels().remove(7) };
    level.reconfigure(&refusing, borrowing::Bounds { nominal: 5, min: 5, max: 5 }, true);
    level.set_seats(5, now);
    assert!(level.dispatch(now).is_none());
    assert!(matches!(level.arrive(7, level.work(ONE), now, || 0), Answer::Refuse(_)));
    for ticket in served.drain(..) {
        assert!(level.finish(&ticket, now).is_none());
    }
    let tickets: Vec<Ticket> = std::iter::from_fn(|| level.dispatch(now)).map(|(_, ticket)| ticket).collect();
    assert_eq!((tickets.len(), level.requests(), level.is_idle()), (5, (6, 5), false));
    let mut tickets = tickets;
    while let Some(ticket) = tickets.pop() {
        level.finish(&ticket, now);
        tickets.extend(level.dispatch(now).map(|(_, ticket)| ticket));
    }
    assert!(level.is_idle() && level.is_quiescing());
    assert_eq!(level.tally(), Tally { dispatched: 60, rejected: 1, cancelled: 0 });
}
