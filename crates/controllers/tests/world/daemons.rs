//! The life of a DaemonSet, what it asks for as a predicate, and what two of its worlds must agree on in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bayplan_controllers::revisions;
use serde_json::{Value, json};

use super::World;
use super::server::Server;

const GENERATION: &str = "deprecated.daemonset.template.generation";

pub(crate) fn without_surge() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "40%", "maxSurge": 0}})
}

pub(crate) fn with_surge() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}})
}

fn daemon_set(strategy: Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "annotations": {GENERATION: "1"}},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "updateStrategy": strategy,
            "revisionHistoryLimit": 1,
            "minReadySeconds": 3,
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "c", "image": "agent:1"}]},
            },
        },
        "status": {
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        },
    })
}

fn node(name: &str, taints: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"taints": taints}})
}

pub(crate) fn taint(effect: &str) -> Value {
    json!([{"key": "dedicated", "effect": effect}])
}

/// Gives the template an image, and counts that as the server does.
pub(crate) fn roll(server: &Server, image: &str) {
    server.edit("daemonsets", "agent", |ds| {
        let container = &mut ds["spec"]["template"]["spec"]["containers"][0];
        if container["image"] != image {
            container["image"] = json!(image);
            let generation: u64 = ds["metadata"]["annotations"][GENERATION].as_str().unwrap().parse().unwrap();
            ds["metadata"]["annotations"][GENERATION] = json!((generation + 1).to_string());
        }
    });
}

/// The user creates a DaemonSet on four of five nodes, rolls to a second image, adds a node and clears another while
/// it rolls to a third, goes back to the second, and keeps everything off one node.
pub(crate) const STAGES: usize = 5;

pub(crate) fn begin(stage: usize, strategy: &Value, server: &Server) {
    match stage {
        0 => {
            for name in ["a", "b", "c", "d"] {
                server.put("nodes", node(name, json!([])));
            }
            server.put("nodes", node("e", taint("NoSchedule")));
            server.put("daemonsets", daemon_set(strategy.clone()));
        }
        1 => roll(server, "agent:2"),
        2 => {
            server.put("nodes", node("f", json!([])));
            server.edit("nodes", "e", |node| node["spec"]["taints"] = json!([]));
            roll(server, "agent:3");
        }
        3 => roll(server, "agent:2"),
        _ => server.edit("nodes", "a", |node| node["spec"]["taints"] = taint("NoExecute")),
    }
}

/// Lets the stages pass, each to its end.
pub(crate) fn live_through(stages: Range<usize>, strategy: &Value, mut world: World) -> World {
    for stage in stages {
        begin(stage, strategy, &world.server);
        world.settle();
    }
    world
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The node that a pod is for.
pub(super) fn target(pod: &Value) -> Option<String> {
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    pod.pointer(&format!("{required}/nodeSelectorTerms/0/matchFields/0/values/0")).map(text)
}

fn hash(object: &Value) -> String {
    text(&object["metadata"]["labels"]["controller-revision-hash"])
}

fn number(revision: &Value) -> i64 {
    revision["revision"].as_i64().unwrap()
}

impl World {
    fn daemon_set(&self) -> Value {
        let [ds] = &self.server.objects("daemonsets")[..] else { panic!("there is one DaemonSet") };
        ds.clone()
    }

    /// Every node that should has one pod of the current template, no other has any, and the status says so. A node
    /// with a taint that lets pods stay may keep one.
    pub(crate) fn assert_daemons_run(&self, when: &str) {
        let ds = self.daemon_set();
        let (revisions, pods) = (self.server.objects("controllerrevisions"), self.server.objects("pods"));
        let data = revisions::data(&ds["spec"]["template"]);
        let current: Vec<&Value> = revisions.iter().filter(|revision| revision["data"] == data).collect();
        let [current] = current[..] else { panic!("{when}: {} revisions of the template", current.len()) };
        let newest = revisions.iter().map(number).max();
        assert_eq!(Some(number(current)), newest, "{when}: the current revision is the newest");
        assert!(revisions.len() <= 2, "{when}: {} revisions are kept", revisions.len());
        let mut by_node: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for pod in &pods {
            by_node.entry(target(pod).unwrap()).or_default().push(pod);
        }
        let mut desired = 0;
        for node in self.server.objects("nodes") {
            let name = text(&node["metadata"]["name"]);
            let found = by_node.remove(&name).unwrap_or_default();
            match node["spec"]["taints"][0]["effect"].as_str() {
                None => {
                    desired += 1;
                    let hashes: Vec<String> = found.iter().map(|pod| hash(pod)).collect();
                    assert_eq!(hashes, [hash(current)], "{when}: pods of {name}");
                }
                Some("NoExecute") => assert!(found.is_empty(), "{when}: {} pods of {name}", found.len()),
                Some(_) => assert!(found.len() <= 1, "{when}: {} pods of {name}", found.len()),
            }
        }
        assert!(by_node.is_empty(), "{when}: pods of nodes that are not there");
        let status = &ds["status"];
        for count in ["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable"] {
            assert_eq!(status[count], desired, "{when}: {count}");
        }
        assert_eq!(status["updatedNumberScheduled"], desired, "{when}: updatedNumberScheduled");
        assert!(status["numberUnavailable"].is_null(), "{when}: numberUnavailable");
        assert_eq!(status["observedGeneration"], ds["metadata"]["generation"], "{when}: observedGeneration");
    }

    /// Everything but the accidents of how it came about: revisions by their order, pods by node and revision.
    pub(crate) fn daemons(&self) -> Value {
        let mut revisions = self.server.objects("controllerrevisions");
        revisions.sort_by_key(number);
        let names: Vec<String> = revisions.iter().map(|revision| text(&revision["metadata"]["name"])).collect();
        let pods: BTreeSet<(String, String)> =
            self.server.objects("pods").iter().map(|pod| (target(pod).unwrap(), hash(pod))).collect();
        let mut status = self.daemon_set()["status"].clone();
        status.as_object_mut().unwrap().remove("observedGeneration");
        json!({"revisions": names, "pods": pods, "status": status})
    }
}
