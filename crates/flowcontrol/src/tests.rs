use super::*;

fn classifier() -> Classifier {
    Classifier::new(&bootstrap::flow_schemas(), &bootstrap::priority_levels())
}

/// Flow schema and level of a request: `verb group/resource[/subresource] [in namespace]` or `verb /path`.
fn class(user: &str, groups: &[&str], request: &str) -> (&'static str, &'static str) {
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
    let classifier = classifier();
    let class = classifier.classify(&asked).unwrap();
    let schema = bootstrap::flow_schemas().iter().find(|schema| schema.name == class.schema).unwrap().name;
    (schema, bootstrap::priority_levels()[class.level].name)
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
        assert_eq!(class(user, groups, request), (*schema, *level), "{user}: {request}");
    }
}

#[test]
fn flows_are_told_apart_by_user_or_by_namespace() {
    let classifier = classifier();
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
    let levels = bootstrap::priority_levels();
    let at = levels.iter().position(|level| level.name == name).unwrap();
    Level::new(&levels[at], borrowing::bounds(&levels, seats)[at])
}

#[test]
fn one_request_takes_a_bounded_part_of_its_level() {
    // Upstream's numbers for 600 seats.
    for (name, most) in [("global-default", 8), ("workload-low", 37), ("workload-high", 15), ("catch-all", 1)] {
        assert_eq!(level(name, 600).width_max(), most, "{name}");
    }
}

#[test]
fn a_level_without_queues_refuses_and_an_exempt_one_never_does() {
    let now = Duration::from_secs(1);
    let mut refusing = level("catch-all", 600);
    for _ in 0..13 {
        assert!(matches!(refusing.arrive(1, 1, now, || 0), Answer::Serve(_)));
    }
    assert!(matches!(refusing.arrive(1, 1, now, || 0), Answer::Refuse(1)));
    let mut exempt = level("exempt", 600);
    for _ in 0..10_000 {
        assert!(matches!(exempt.arrive(1, 1, now, || 0), Answer::Serve(_)));
    }
    assert_eq!(exempt.wish(Duration::from_secs(2)).peak, 10_000);
}

#[test]
fn a_flood_of_one_user_waits_behind_itself() {
    let mut level = level("global-default", 600);
    let alice = flow("global-default", "alice");
    let (mut served, mut waiting, mut refused) = (0, 0, 0);
    for number in 0..5_700 {
        match level.arrive(alice, 1, Duration::ZERO, || number) {
            Answer::Serve(_) => served += 1,
            Answer::Wait(_) => waiting += 1,
            Answer::Refuse(_) => refused += 1,
        }
    }
    // Fifty in each of the six queues of the hand.
    assert_eq!((served, waiting, refused), (49, 300, 5_351));
    let bob = level.arrive(flow("global-default", "bob"), 1, Duration::ZERO, || 9_999);
    assert!(matches!(bob, Answer::Wait(_)));
}
