//! Templates of pods that use every plugin somewhere.

use bayplan_testkit::Rng;
use serde_json::{Value, json};

use super::{APPS, KEYS, NAMESPACES, storage_and_devices};

/// A pod without name and UID.
pub(crate) fn template(rng: &mut Rng) -> Value {
    let labels = json!({"app": rng.pick(&APPS)});
    let cpu = format!("{}m", 100 * rng.below(9));
    let memory = format!("{}Mi", 128 * rng.below(9));
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": rng.pick(&NAMESPACES), "labels": labels},
        "spec": {"schedulerName": "default-scheduler", "priority": rng.below(3) * 10, "containers": [{
            "name": "c", "image": rng.pick(&["big", "small"]),
            "resources": {"requests": {"cpu": cpu, "memory": memory}},
        }]},
    });
    if rng.one_in(3) {
        let (api, kind) = if rng.one_in(3) { ("v1", "ReplicationController") } else { ("apps/v1", "ReplicaSet") };
        let owner = json!({"apiVersion": api, "kind": kind, "name": rng.pick(&APPS), "uid": "o", "controller": true});
        pod["metadata"]["ownerReferences"] = json!([owner]);
    }
    let spec = &mut pod["spec"];
    add_node_requirements(spec, rng);
    if rng.one_in(3) {
        let constraints: Vec<Value> = (0..=rng.below(3)).map(|_| spread_constraint(rng)).collect();
        spec["topologySpreadConstraints"] = constraints.into();
    }
    spec["affinity"] = affinity(rng);
    storage_and_devices::equip(spec, rng);
    pod
}

/// Tolerations, selectors, host ports, extended resources and kubelet features, each for some pods.
fn add_node_requirements(spec: &mut Value, rng: &mut Rng) {
    if rng.one_in(4) {
        spec["tolerations"] = json!([{"key": rng.pick(&["a", "b"]), "operator": "Exists"}]);
    }
    if rng.one_in(4) {
        spec["nodeSelector"] = json!({"disk": rng.pick(&["ssd", "hdd"])});
    }
    if rng.one_in(6) {
        spec["containers"][0]["ports"] = json!([{"hostPort": 80 + rng.below(2)}]);
    }
    if rng.one_in(6) {
        spec["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1".into();
    }
    if rng.one_in(8) {
        spec["hostNetwork"] = true.into();
        spec["hostUsers"] = false.into();
    }
}

fn spread_constraint(rng: &mut Rng) -> Value {
    json!({
        "maxSkew": 1 + rng.below(2), "topologyKey": rng.pick(&KEYS[..3]),
        "whenUnsatisfiable": rng.pick(&["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": {"matchLabels": {"app": rng.pick(&APPS)}},
        "nodeTaintsPolicy": rng.pick(&["Honor", "Ignore"]),
        "nodeAffinityPolicy": rng.pick(&["Honor", "Ignore"]),
    })
}

fn affinity(rng: &mut Rng) -> Value {
    let mut affinity = json!({});
    if rng.one_in(12) {
        // PreFilter narrows the search to nodes by name, which are there or not.
        let by_name = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
        let terms = match rng.below(3) {
            0 => json!([{"matchFields": [by_name("n30"), by_name("n31")]}]),
            1 => json!([{"matchFields": [by_name("n30")]}, {"matchFields": [by_name("n31")]}]),
            _ => json!([{"matchFields": [by_name("nowhere")]}]),
        };
        affinity["nodeAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    }
    if rng.one_in(4) {
        let disk = json!({"key": "disk", "operator": "In", "values": [rng.pick(&["ssd", "hdd"])]});
        affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([{
            "weight": 1 + rng.below(100), "preference": {"matchExpressions": [disk]},
        }]);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        if rng.one_in(5) {
            affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([affinity_term(rng)]);
        }
        if rng.one_in(5) {
            let weighted: Vec<Value> = (0..=rng.below(2))
                .map(|_| json!({"weight": 1 + rng.below(100), "podAffinityTerm": affinity_term(rng)}))
                .collect();
            affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"] = weighted.into();
        }
    }
    affinity
}

fn affinity_term(rng: &mut Rng) -> Value {
    let mut term = json!({
        "topologyKey": rng.pick(&KEYS), "labelSelector": {"matchLabels": {"app": rng.pick(&APPS)}},
    });
    match rng.below(4) {
        0 => term["namespaceSelector"] = json!({"matchLabels": {"kind": rng.pick(&NAMESPACES)}}),
        1 => term["namespaces"] = json!([rng.pick(&NAMESPACES)]),
        _ => {}
    }
    term
}
