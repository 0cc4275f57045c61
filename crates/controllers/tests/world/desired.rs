//! The promise of the controllers as a predicate: what a Deployment and a ReplicaSet ask for is there, and nothing
//! else.

use std::collections::BTreeMap;

use bayplan_controllers::deployment::annotations::DESIRED_REPLICAS;
use bayplan_controllers::deployment::template;
use serde_json::Value;

use super::World;

impl World {
    /// Every Deployment and ReplicaSet has what it asks for.
    pub(crate) fn assert_desired(&self, when: &str) {
        let [deployments, sets, pods] =
            ["deployments", "replicasets", "pods"].map(|plural| self.server.objects(plural));
        let (owned_sets, owned_pods) = (by_owner(&sets), by_owner(&pods));
        let none = Vec::new();
        for deployment in &deployments {
            assert_rolled_out(deployment, owned_sets.get(uid(deployment)).unwrap_or(&none), when);
        }
        let mut owned = 0;
        for set in &sets {
            let pods = owned_pods.get(uid(set)).unwrap_or(&none).len();
            assert_sized(set, pods, when);
            owned += pods;
        }
        assert_eq!(owned, pods.len(), "{when}: a pod has no owner");
    }
}

impl World {
    /// A Deployment that is resized in the middle of a rollout to just the size its only active ReplicaSet has:
    /// upstream resizes nothing, so the ReplicaSet is never annotated with the new size, and no rollout goes on before
    /// that. The recordings have it so.
    pub(crate) fn stands_still(&self) -> bool {
        let [deployments, sets] = ["deployments", "replicasets"].map(|plural| self.server.objects(plural));
        let owned = by_owner(&sets);
        deployments.iter().any(|d| {
            let active = owned.get(uid(d)).into_iter().flatten().filter(|set| number(&set["spec"]["replicas"]) > 0);
            let sized_for = |set: &Value| set["metadata"]["annotations"][DESIRED_REPLICAS].as_str()?.parse().ok();
            active.into_iter().any(|set| sized_for(set) != d["spec"]["replicas"].as_i64())
        })
    }
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

fn by_owner(objects: &[Value]) -> BTreeMap<&str, Vec<&Value>> {
    let mut owned: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for object in objects {
        owned.entry(object["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap()).or_default().push(object);
    }
    owned
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn assert_rolled_out(d: &Value, sets: &[&Value], when: &str) {
    let replicas = number(&d["spec"]["replicas"]);
    let (new, old): (Vec<&Value>, Vec<&Value>) =
        sets.iter().copied().partition(|set| template::same(&set["spec"]["template"], &d["spec"]["template"]));
    let [new] = new[..] else { panic!("{when}: {} ReplicaSets of the template", new.len()) };
    assert_eq!(number(&new["spec"]["replicas"]), replicas, "{when}: size of the new ReplicaSet");
    for old in &old {
        assert_eq!(number(&old["spec"]["replicas"]), 0, "{when}: an old ReplicaSet asks for pods");
    }
    let limit = d["spec"]["revisionHistoryLimit"].as_u64().map_or(usize::MAX, |limit| limit as usize);
    assert!(old.len() <= limit, "{when}: {} old ReplicaSets are kept", old.len());
    let revision = "deployment.kubernetes.io/revision";
    let annotation = |object: &Value| object["metadata"]["annotations"][revision].clone();
    assert_eq!(annotation(d), annotation(new), "{when}: revision");
    let status = &d["status"];
    for count in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(number(&status[count]), replicas, "{when}: {count}");
    }
    assert_eq!(number(&status["unavailableReplicas"]), 0, "{when}: unavailableReplicas");
    assert_eq!(status["observedGeneration"], d["metadata"]["generation"], "{when}: observedGeneration");
    for (kind, reason) in [("Available", "MinimumReplicasAvailable"), ("Progressing", "NewReplicaSetAvailable")] {
        let conditions = status["conditions"].as_array().unwrap();
        let condition = conditions.iter().find(|condition| condition["type"] == kind);
        let condition = condition.unwrap_or_else(|| panic!("{when}: no condition {kind}"));
        let said = (condition["status"].as_str(), condition["reason"].as_str());
        assert_eq!(said, (Some("True"), Some(reason)), "{when}: {kind}");
    }
    assert_eq!(status["conditions"].as_array().unwrap().len(), 2, "{when}: other conditions");
}

fn assert_sized(set: &Value, pods: usize, when: &str) {
    let replicas = number(&set["spec"]["replicas"]);
    assert_eq!(pods as i64, replicas, "{when}: pods of {}", set["metadata"]["name"]);
    for count in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(number(&set["status"][count]), replicas, "{when}: {count} of {}", set["metadata"]["name"]);
    }
    assert_eq!(set["status"]["observedGeneration"], set["metadata"]["generation"], "{when}: observedGeneration");
    assert!(set["status"]["conditions"].is_null(), "{when}: conditions of {}", set["metadata"]["name"]);
}
