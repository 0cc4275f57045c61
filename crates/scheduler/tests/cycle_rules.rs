//! Rules of the cycle that the recorded answers do not cover: how far a search goes, and what becomes of a nomination.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::sync::Arc;

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::{Attempt, Nominator, Profile, Search};
use bayplan_scheduler::{Cluster, Effect, Input, Nomination, Object, PodInfo, Registry, Scheduler, TieBreak};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Nodes `n000`, `n001`, … of which every third is cordoned.
fn cluster(nodes: usize) -> Cluster {
    let mut cluster = Cluster::new();
    for i in 0..nodes {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{i:03}")},
            "spec": {"unschedulable": i % 3 == 2},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
        });
        cluster.store(Object::decode(&node).unwrap().unwrap());
    }
    cluster
}

fn pod(spec: Value, status: Value) -> PodInfo {
    let pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": spec, "status": status});
    PodInfo::new(Arc::new(serde_json::from_value(pod).unwrap()))
}

fn configuration(plugins: &Value) -> Configuration {
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": plugins}],
    });
    Configuration::from_value(config).unwrap()
}

fn profile(plugins: &Value) -> Profile {
    Profile::build(&configuration(plugins).profiles[0], &Registry::default()).unwrap()
}

#[test]
fn a_search_ends_at_the_first_node_too_many_and_the_next_one_begins_there() {
    let all = profile(&json!({}));
    let unscored = profile(&json!({"score": {"disabled": [{"name": "*"}]}}));
    for (profile, nodes, percentage, start, feasible, evaluated) in [
        // Two of three nodes are feasible; a hundred suffice, and the rejected nodes up to the next feasible one count.
        (&all, 300, Some(10), 0, 100, 150),
        (&all, 300, Some(10), 150, 100, 150),
        (&all, 600, Some(20), 1, 120, 180),
        (&all, 300, Some(100), 7, 200, 300),
        (&all, 300, None, 0, 200, 300),
        // Below a hundred nodes the percentage does not apply.
        (&all, 99, Some(1), 0, 66, 99),
        // Without scores the first feasible node suffices.
        (&unscored, 300, Some(50), 2, 1, 2),
    ] {
        let (cluster, nominator, pod) = (cluster(nodes), Nominator::default(), pod(json!({}), json!({})));
        let mut attempt = Attempt::new(profile, &cluster, &nominator, &pod, Timestamp::UNIX_EPOCH);
        let found = attempt.find(Search { start, percentage }).unwrap();
        assert_eq!((found.feasible.len(), found.evaluated), (feasible, evaluated), "{nodes} {percentage:?} {start}");
    }
}

#[test]
fn the_reason_against_the_nominated_node_is_kept_even_when_the_search_leaves_it_out() {
    let by_name = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n002"]}]},
    ]});
    let spec = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": by_name}}});
    let (profile, cluster, nominator) = (profile(&json!({})), cluster(4), Nominator::default());
    let pod = pod(spec, json!({"nominatedNodeName": "n000"}));
    let mut attempt = Attempt::new(&profile, &cluster, &nominator, &pod, Timestamp::UNIX_EPOCH);
    let found = attempt.find(Search::ALL).unwrap();
    assert_eq!(
        found.diagnosis.message(),
        "0/4 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable, \
         2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    );
}

#[test]
fn a_profile_without_post_filter_plugins_clears_the_nomination() {
    let plugins = json!({"postFilter": {"disabled": [{"name": "*"}]}});
    let (profile, cluster, nominator) = (profile(&plugins), cluster(0), Nominator::default());
    let pod = pod(json!({}), json!({"nominatedNodeName": "gone"}));
    let mut attempt = Attempt::new(&profile, &cluster, &nominator, &pod, Timestamp::UNIX_EPOCH);
    let mut found = attempt.find(Search::ALL).unwrap();
    let answer = attempt.post_filter(&mut found.diagnosis, 0);
    assert_eq!(answer.nomination, Nomination::Override(String::new()));
}

#[test]
fn a_pod_on_a_node_that_is_not_there_makes_no_node() {
    // Without NodeResourcesFit, only its absence speaks against the node.
    let plugins = json!({"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}});
    let configuration = configuration(&plugins);
    let mut scheduler = Scheduler::new(&configuration, &Registry::default(), TieBreak::SmallestName).unwrap();
    let mut add = |kind: &str, name: &str, spec: Value| {
        let object = json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "d", "uid": name}, "spec": spec,
        });
        scheduler.handle(Input::upsert(Object::decode(&object).unwrap().unwrap()), Timestamp::UNIX_EPOCH);
        scheduler.schedule_one(Timestamp::UNIX_EPOCH);
        scheduler.take_effects().into_iter().find_map(|effect| match effect {
            Effect::Bind(binding) => Some(binding.node().to_owned()),
            _ => None,
        })
    };
    add("Node", "there", json!({}));
    assert_eq!(add("Pod", "first", json!({"schedulerName": "default-scheduler"})).as_deref(), Some("there"));
    assert_eq!(add("Pod", "lost", json!({"nodeName": "gone"})), None);
    assert_eq!(add("Pod", "second", json!({"schedulerName": "default-scheduler"})).as_deref(), Some("there"));
}

#[test]
fn the_event_names_the_exit_at_which_the_cycle_ended() {
    let named = json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["elsewhere"]}]},
    ]});
    let named = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": named}}});
    let claim = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "absent"}}]});
    let large = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}]});
    for (nodes_come, nodes_go, spec, expected) in [
        (0, 0, json!({}), "no nodes available to schedule pods"),
        (3, 3, json!({}), "no nodes available to schedule pods"),
        (3, 3, claim.clone(), "no nodes available to schedule pods"),
        (1, 0, claim, "0/1 nodes are available: persistentvolumeclaim \"absent\" not found."),
        (2, 1, named, "0/1 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."),
        (2, 1, large, "0/1 nodes are available: 1 Insufficient cpu."),
    ] {
        let mut scheduler =
            Scheduler::new(&Configuration::default(), &Registry::default(), TieBreak::SmallestName).unwrap();
        let node = |name: usize| {
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{name}")},
                "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
            });
            Object::decode(&node).unwrap().unwrap()
        };
        (0..nodes_come).for_each(|name| scheduler.handle(Input::upsert(node(name)), Timestamp::UNIX_EPOCH));
        (0..nodes_go).for_each(|name| scheduler.handle(Input::delete(node(name)), Timestamp::UNIX_EPOCH));
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": spec,
        });
        pod["spec"]["schedulerName"] = "default-scheduler".into();
        scheduler.handle(Input::upsert(Object::decode(&pod).unwrap().unwrap()), Timestamp::UNIX_EPOCH);
        assert!(scheduler.schedule_one(Timestamp::UNIX_EPOCH));
        let note = scheduler.take_effects().into_iter().find_map(|effect| match effect {
            Effect::Record { event, .. } => Some(event.note),
            _ => None,
        });
        let note = note.unwrap();
        assert!(note.starts_with(expected), "{nodes_come} nodes, less {nodes_go}: {note}");
    }
}
