//! What two worlds must agree on in the end: everything but the accidents of how they got there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::World;

const REVISION: &str = "deployment.kubernetes.io/revision";

impl World {
    /// The objects, without what differs between two histories that both went well.
    pub(crate) fn outcome(&self) -> Value {
        let names = self.names_of_uids();
        let all = |plural: &str| {
            let objects = self.server.objects(plural).into_iter();
            objects.map(|object| comparable(object, &names)).collect::<Vec<_>>()
        };
        let sets: Vec<Value> = all("replicasets").into_iter().map(forget_old_sizes).collect();
        let mut pods: Vec<Value> = all("pods").into_iter().map(forget_name).collect();
        pods.sort_by_key(Value::to_string);
        json!({"deployments": all("deployments"), "replicaSets": sets, "pods": pods})
    }

    /// The same without the numbers of revisions, only their order: a manager whose Deployment is out of date takes an
    /// old ReplicaSet for the newest, and makes it so; the numbers go on from there.
    pub(crate) fn outcome_by_order(&self) -> Value {
        let mut outcome = self.outcome();
        let parts = ["deployments", "replicaSets"];
        let revision = |object: &Value| text(&object["metadata"]["annotations"][REVISION]).parse::<u64>().unwrap();
        let objects = parts.iter().flat_map(|part| outcome[*part].as_array().unwrap());
        let numbers: BTreeSet<u64> = objects.map(revision).collect();
        for part in parts {
            for object in outcome[part].as_array_mut().unwrap() {
                let place = numbers.iter().position(|number| *number == revision(object));
                let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
                annotations.insert(REVISION.into(), json!(place));
                annotations.remove(&format!("{REVISION}-history"));
            }
        }
        outcome
    }

    /// UIDs come from the revision at which an object was created; owners are compared by what bears the UID instead.
    fn names_of_uids(&self) -> BTreeMap<String, String> {
        let objects = ["deployments", "replicasets"].map(|plural| self.server.objects(plural));
        let objects = objects.iter().flatten().map(|object| &object["metadata"]);
        objects.map(|meta| (text(&meta["uid"]), format!("UID of {}", text(&meta["name"])))).collect()
    }
}

fn comparable(mut object: Value, names: &BTreeMap<String, String>) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    // A fault adds or saves writes and seconds: versions, UIDs and times count them.
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(field);
    }
    for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
        let uid = text(&owner["uid"]);
        owner["uid"] = json!(names.get(&uid).unwrap_or(&uid));
    }
    // How many steps a ReplicaSet was resized in depends on what had become available when the controllers looked;
    // that the last step was observed does not.
    let generation = metadata.remove("generation").unwrap_or_default();
    if let Some(observed) = object["status"].as_object_mut().unwrap().remove("observedGeneration") {
        object["status"]["observesLastGeneration"] = json!(observed == generation);
    }
    if let Some(Value::Array(conditions)) = object["status"].get_mut("conditions") {
        for condition in conditions.iter_mut() {
            let fields = condition.as_object_mut().unwrap();
            fields.remove("lastUpdateTime");
            fields.remove("lastTransitionTime");
            if fields["type"] == "Progressing" {
                forget_named_set(&mut fields["message"]);
            }
        }
        // A condition that changes moves to the end, so the order tells which of them changed last: a time, too.
        conditions.sort_by_key(|condition| condition["type"].to_string());
    }
    object
}

/// A condition whose status and reason stay keeps its message. A Deployment may go from complete to complete without
/// anybody saying so in between: while a Recreate rollout has no pods at all, or when no status could be written until
/// the end. Which ReplicaSet the message names depends on that.
fn forget_named_set(message: &mut Value) {
    let parts: Vec<String> = text(message).split('"').map(str::to_owned).collect();
    if let [before, _, after] = parts.as_slice() {
        *message = json!(format!("{before}…{after}"));
    }
}

/// Nobody resizes a ReplicaSet without pods: it keeps the size its Deployment had at whichever moment it was emptied.
fn forget_old_sizes(mut set: Value) -> Value {
    if set["spec"]["replicas"] == 0 {
        let annotations = set["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.retain(|annotation, _| !annotation.ends_with("-replicas"));
    }
    set
}

/// Pods are named by chance.
fn forget_name(mut pod: Value) -> Value {
    pod["metadata"].as_object_mut().unwrap().remove("name");
    pod
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
