use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Registry, TieBreak};
use bayplan_sources::ClusterObjects;
use bayplan_testkit::{node, pod};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

fn try_ask(objects: &[Value], actions: Vec<Action>) -> Result<WhatIf, Error> {
    let profiles = Profiles::build(&Configuration::default(), &Registry::default()).unwrap();
    let options = Options {
        ties: TieBreak::SmallestName,
        preempt: true,
        as_written: false,
        percentage: None,
        namespace: "default".into(),
        more_copies_max: 50,
        now: Timestamp::from_second(1_800_000_000).unwrap(),
    };
    whatif(State::new(ClusterObjects::of(objects)), &profiles, actions, &options)
}

fn ask(objects: &[Value], actions: Vec<Action>) -> WhatIf {
    try_ask(objects, actions).unwrap()
}

fn apply(objects: &[Value]) -> Action {
    Action::Apply { objects: objects.to_vec(), replicas: None, from: "test".into() }
}

fn name(text: &str) -> ObjectName {
    ObjectName::parse(text, "default").unwrap()
}

fn workload(kind: &str, api_version: &str, replicas: usize, cpu: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "parallelism": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "restartPolicy": if kind == "Job" { "Never" } else { "Always" },
                    "containers": [{"name": "c", "image": "web", "resources": {"requests": {"cpu": cpu}}}],
                },
            },
        },
    })
}

/// A pod that a ReplicaSet of a Deployment owns.
fn owned(name: &str, cpu: &str, on: &str, priority: i32) -> Value {
    let mut owned = pod(name).label("app", "db").request("cpu", cpu).priority(priority).on_node(on).json();
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "db-1", "uid": "r", "controller": true}]);
    owned["status"]["phase"] = "Running".into();
    owned
}

fn placed(answer: &WhatIf) -> Vec<(&str, &str)> {
    answer.placed.iter().map(|placed| (placed.pod.as_str(), placed.node.as_str())).collect()
}

#[test]
fn workloads_are_expanded_as_their_controllers_would() {
    let nodes = [node("n1").json(), node("n2").json()];
    for (kind, api_version, first) in [
        ("Deployment", "apps/v1", "default/web-"),
        ("ReplicaSet", "apps/v1", "default/web-0"),
        ("StatefulSet", "apps/v1", "default/web-0"),
        ("Job", "batch/v1", "default/web-0"),
        ("ReplicationController", "v1", "default/web-0"),
    ] {
        let mut object = workload(kind, api_version, 3, "1");
        if kind == "ReplicationController" {
            object["spec"]["selector"] = json!({"app": "web"});
        }
        let answer = ask(&nodes, vec![apply(&[object])]);
        assert_eq!((answer.placed.len(), answer.pending.len()), (3, 0), "{kind}: {:?}", answer.pending);
        assert!(answer.placed[0].pod.starts_with(first), "{kind}: {:?}", answer.placed);
        // Two nodes of 4 cpu take 8 pods of one.
        assert_eq!(answer.more_copies, Some(5), "{kind}");
    }
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": workload("Job", "batch/v1", 2, "1")["spec"]}},
    });
    assert_eq!(placed(&ask(&nodes, vec![apply(&[cron])])), [("default/tick-0-0", "n1"), ("default/tick-0-1", "n2")]);
}

#[test]
fn a_daemon_set_runs_on_the_nodes_that_it_tolerates() {
    let tainted = node("n3").taint("dedicated", "db", "NoSchedule").json();
    let full = [node("n1").json(), node("n2").json(), tainted, owned("big", "4", "n2", 100)];
    let mut daemons = workload("DaemonSet", "apps/v1", 1, "1");
    daemons["spec"].as_object_mut().unwrap().remove("replicas");
    let answer = ask(&full, vec![apply(&[daemons])]);
    assert_eq!(placed(&answer), [("default/web-n1", "n1")]);
    // The controller makes a pod for a full node, and none for one that it does not tolerate.
    let pending: Vec<String> = answer.pending.iter().map(|pending| pending.pod.to_string()).collect();
    assert_eq!(pending, ["default/web-n2"]);
}

#[test]
fn a_stateful_set_gets_the_claims_of_its_templates_and_each_counts() {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "local": {"path": "/v"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]}]}}},
        "status": {"phase": "Available"},
    });
    let mut set = workload("StatefulSet", "apps/v1", 2, "1");
    set["spec"]["volumeClaimTemplates"] = json!([{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}}},
    }]);
    let answer = ask(&[node("n1").json(), node("n2").json(), class, volume], vec![apply(&[set])]);
    assert_eq!(placed(&answer), [("default/web-0", "n2")]);
    let message = answer.pending[0].message.as_deref().unwrap();
    assert!(message.contains("didn't find available persistent volumes to bind"), "{message}");
}

#[test]
fn a_drain_moves_pods_as_far_as_budgets_allow() {
    let budget = |allowed: i32| {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "db", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "db"}}}, "status": {"disruptionsAllowed": allowed},
        })
    };
    let cluster = |allowed: i32| {
        let mut daemon = owned("agent", "1", "n1", 0);
        daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet".into();
        let (a, b) = (owned("a", "1", "n1", 0), owned("b", "1", "n1", 0));
        vec![node("n1").json(), node("n2").json(), a, b, daemon, budget(allowed)]
    };
    let drain = || vec![Action::Drain(vec!["n1".into()])];
    // Each successor is there before the next one leaves, so that a budget of one suffices.
    let answer = ask(&cluster(1), drain());
    let moved: Vec<(&str, &str, &str)> =
        answer.moved.iter().map(|moved| (moved.pod.as_str(), moved.from.as_str(), moved.to.as_str())).collect();
    assert_eq!(moved, [("default/a", "n1", "n2"), ("default/b", "n1", "n2")]);
    assert!(answer.stuck.is_empty() && answer.pending.is_empty());
    let answer = ask(&cluster(0), drain());
    assert!(answer.moved.is_empty());
    let stuck: Vec<&str> = answer.stuck.iter().map(|stuck| stuck.pod.as_str()).collect();
    assert_eq!(stuck, ["default/a", "default/b"]);
    assert!(answer.stuck[0].why.contains("PodDisruptionBudget db"), "{:?}", answer.stuck);
}

#[test]
fn victims_leave_for_more_important_pods_and_come_back_where_they_fit() {
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000,
    });
    let mut urgent = workload("Deployment", "apps/v1", 1, "4");
    urgent["spec"]["template"]["spec"]["priorityClassName"] = "high".into();
    let cluster = [node("n1").json(), node("n2").json(), class, owned("a", "3", "n1", 0), owned("b", "1", "n2", 0)];
    let answer = ask(&cluster, vec![apply(&[urgent.clone()])]);
    // One pod of 1 cpu is cheaper to displace than one of 3; it fits beside the other.
    assert_eq!(answer.placed.len(), 1);
    let preempted: Vec<(&str, &str)> =
        answer.preempted.iter().map(|preempted| (preempted.pod.as_str(), preempted.node.as_str())).collect();
    assert_eq!(preempted.len(), 1);
    let (victim, node) = preempted[0];
    assert_eq!((answer.placed[0].node.as_str(), answer.preempted[0].by.as_str()), (node, &*answer.placed[0].pod));
    let back = answer.moved.iter().any(|moved| moved.pod == victim)
        || answer.pending.iter().any(|pending| pending.pod.to_string() == victim);
    assert!(back, "{answer:?}");
    let profiles = Profiles::build(&Configuration::default(), &Registry::default()).unwrap();
    let options = Options {
        ties: TieBreak::SmallestName,
        preempt: false,
        as_written: false,
        percentage: None,
        namespace: String::new(),
        more_copies_max: 0,
        now: Timestamp::UNIX_EPOCH,
    };
    let without =
        whatif(State::new(ClusterObjects::of(&cluster)), &profiles, vec![apply(&[urgent])], &options).unwrap();
    assert_eq!((without.preempted.len(), without.placed.len(), without.pending.len()), (0, 0, 1));
}

#[test]
fn new_nodes_take_the_pods_that_were_waiting() {
    let general = |name: &str, zone: &str| node(name).zone(zone).label("agentpool", "general").json();
    let mut daemon = owned("agent", "1", "n1", 0);
    daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet".into();
    let waiting = [pod("w1").request("cpu", "3").json(), pod("w2").request("cpu", "3").json()];
    let cluster = [general("n1", "a"), general("n2", "b"), daemon, owned("x", "3", "n1", 0), owned("y", "4", "n2", 0)];
    let cluster: Vec<Value> = cluster.into_iter().chain(waiting).collect();
    let add = |count| vec![Action::AddNodes { count, like: NodeTemplate::Pool("general".into()) }];
    let answer = ask(&cluster, add(2));
    let zones: Vec<(&str, usize)> = answer.placed_by.zone.iter().map(|(zone, count)| (zone.as_str(), *count)).collect();
    assert_eq!(zones, [("a", 1), ("b", 1)], "one node in each zone: {:?}", answer.placed);
    // The node of zone a is a copy with the agent that runs there.
    assert_eq!((answer.after.nodes, answer.after.pods, answer.after.pending), (4, 6, 0));
    let error = try_ask(&cluster, vec![Action::AddNodes { count: 1, like: NodeTemplate::Pool("gpu".into()) }]);
    assert_eq!(error.unwrap_err().to_string(), "no pool and no node is named gpu; the pools are: general");
}

#[test]
fn workloads_are_scaled_both_ways_and_deleted() {
    let mut deployment = workload("Deployment", "apps/v1", 2, "1");
    deployment["metadata"] = json!({"name": "web", "namespace": "default", "uid": "d"});
    let cluster = [node("n1").json(), node("n2").json(), deployment.clone()];
    let scale = |replicas| Action::Scale { workload: name("deploy/web"), replicas };
    let answer = ask(&cluster, vec![scale(4), scale(1)]);
    assert_eq!((answer.placed.len(), answer.deleted.len(), answer.after.pods), (1, 0, 1));
    assert_eq!(answer.actions[1], "scale deployment default/web from 4 to 1 pod");
    let answer = ask(&cluster, vec![scale(4), Action::Delete(name("deploy/web"))]);
    assert_eq!((answer.placed.len(), answer.after.pods), (0, 0));
    for (action, said) in [
        (Action::Scale { workload: name("deploy/none"), replicas: 1 }, "deployment default/none is not in the cluster"),
        (Action::Delete(name("pod/none")), "pod default/none is not in the cluster"),
        (Action::Drain(vec!["none".into()]), "node none is not in the cluster"),
        (Action::Scale { workload: name("pod/web"), replicas: 1 }, "pod default/web cannot be scaled"),
    ] {
        let error = try_ask(&cluster, vec![action]).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn a_deleted_node_sends_its_pods_elsewhere_and_a_priority_lets_one_in() {
    let cluster = [node("n1").json(), node("n2").json(), owned("a", "3", "n1", 0), owned("b", "1", "n2", 0)];
    let answer = ask(&cluster, vec![Action::Delete(name("node/n1"))]);
    assert_eq!((answer.moved[0].pod.as_str(), answer.moved[0].to.as_str()), ("default/a", "n2"));
    let waiting = [node("n1").json(), owned("a", "3", "n1", 0), pod("w").request("cpu", "3").priority(0).json()];
    let raise = Action::SetPriority { of: name("pod/w"), priority: Priority::Value(7) };
    let answer = ask(&waiting, vec![raise]);
    assert_eq!(placed(&answer), [("default/w", "n1")]);
    assert_eq!((answer.preempted[0].pod.as_str(), answer.pending.len()), ("default/a", 1));
}

#[test]
fn what_an_api_server_would_refuse_is_refused() {
    let mut unknown = workload("Deployment", "apps/v1", 1, "1");
    unknown["spec"]["template"]["spec"]["priorityClassName"] = "none".into();
    let error = try_ask(&[node("n").json()], vec![apply(&[unknown])]).unwrap_err().to_string();
    assert!(error.contains("no PriorityClass with name none was found"), "{error}");
    let other = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}});
    let answer = ask(&[node("n").json()], vec![apply(&[other])]);
    assert_eq!(answer.notes, ["Thing x is left out: no decision reads its kind"]);
}

#[test]
fn conditions_compare_the_numbers_of_an_answer() {
    let answer = ask(&[node("n").json()], vec![apply(&[workload("Deployment", "apps/v1", 5, "1")])]);
    assert_eq!((answer.placed.len(), answer.pending.len()), (4, 1));
    for (condition, holds) in [
        ("pending>0", true),
        ("pending >= 2", false),
        ("placed==4", true),
        ("placed != 4", false),
        ("utilisation.cpu>=1", true),
        ("utilisation.cpu<0.9", false),
        ("largestHole.cpu<500m", true),
        ("largestHole.memory>1Gi", true),
        ("moreCopies<=0", true),
        ("utilisation.bananas>0", false),
    ] {
        assert_eq!(condition.parse::<Condition>().unwrap().holds(&answer), holds, "{condition}");
    }
    let text = render(&answer, Detail::Summary);
    assert!(text.contains("4 placed, 1 pending") && text.contains("Insufficient cpu"), "{text}");
}

#[test]
fn names_are_read_as_kubectl_reads_them() {
    for (text, expected) in [
        ("deploy/web", Ok("deployment default/web")),
        ("deployments.apps/web", Ok("deployment default/web")),
        ("sts/shop/db", Ok("statefulset shop/db")),
        ("node/n-1", Ok("node n-1")),
        ("node/a/b", Err("not of the form kind/name")),
        ("banana/x", Err("is not one of pod, node")),
        ("pod/", Err("not of the form kind/name")),
        ("web", Err("is not one of")),
    ] {
        match (ObjectName::parse(text, "default"), expected) {
            (Ok(name), Ok(display)) => assert_eq!(name.display(), display),
            (Err(error), Err(needle)) => assert!(error.contains(needle), "{error}"),
            (read, _) => panic!("{text}: {read:?}"),
        }
    }
}
