//! Compares the volumes found by the storage index with a walk over all volumes, on random histories.

use std::sync::Arc;

use bayplan_model::affinity::NodeMatcher;
use bayplan_model::label_selector::Selector;
use bayplan_model::node::Node;
use bayplan_model::storage::{ClaimRef, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim};
use bayplan_testkit::Rng;
use serde_json::{Value, json};

use super::claims::serves;
use super::search::find_volume;
use crate::cluster::storage::largest_volume;
use crate::cluster::{Cluster, Object};

fn decode<T: serde::de::DeserializeOwned>(json: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(json).unwrap())
}

const NAMES: [&str; 6] = ["v0", "v1", "v2", "v3", "v4", "v5"];

fn volume(rng: &mut Rng, step: usize) -> Arc<PersistentVolume> {
    let mut volume = json!({
        "metadata": {
            "name": rng.pick(&NAMES), "resourceVersion": step.to_string(),
            "labels": {"tier": rng.pick(&["a", "b"])},
        },
        "spec": {
            "capacity": {"storage": rng.pick(&["1Gi", "2Gi"])},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": rng.pick(&["local", "other"]),
        },
        "status": {"phase": rng.pick(&["Available", "Available", "Pending"])},
    });
    let term =
        |key: &str, value: &str| json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
    let terms = match rng.below(5) {
        0 => json!([term("kubernetes.io/hostname", ["n0", "n1"][rng.below(2)])]),
        1 => json!([term("zone", ["a", "b"][rng.below(2)])]),
        2 => json!([term("zone", "a"), term("kubernetes.io/hostname", "n1")]),
        3 => json!([{"matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a"]},
            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n0"]},
        ]}]),
        _ => Value::Null,
    };
    if !terms.is_null() {
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    }
    if rng.below(4) == 0 {
        volume["spec"]["claimRef"] =
            json!({"namespace": "d", "name": rng.pick(&["c0", "c1"]), "uid": rng.pick(&["", "u"])});
    }
    decode(volume)
}

fn claim(rng: &mut Rng) -> Arc<PersistentVolumeClaim> {
    let mut claim = json!({
        "metadata": {"namespace": "d", "name": rng.pick(&["c0", "c1", "c2"]), "uid": rng.pick(&["u", "w"])},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": rng.pick(&["local", "other"]),
            "resources": {"requests": {"storage": rng.pick(&["1Gi", "1500Mi"])}},
        },
    });
    if rng.below(3) == 0 {
        claim["spec"]["selector"] = json!({"matchLabels": {"tier": rng.pick(&["a", "b"])}});
    }
    decode(claim)
}

type Taken = [(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)];

/// The truth: every volume is looked at.
fn plain(cluster: &Cluster, claim: &PersistentVolumeClaim, node: &Node, taken: &Taken) -> Option<String> {
    let serving = cluster.persistent_volumes().filter(|v| v.class() == claim.class() && serves(claim, v));
    let mut best: Option<&Arc<PersistentVolume>> = None;
    for volume in serving.filter(|v| taken.iter().all(|(_, taken)| taken.metadata.name != v.metadata.name)) {
        let required = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        let reachable = required.is_none_or(|r| NodeMatcher::new(r).matches_labels(&node.metadata.labels, ""));
        if volume.is_reserved_for(claim) {
            return reachable.then(|| volume.metadata.name.clone());
        }
        if reachable && best.is_none_or(|best| volume.capacity() < best.capacity()) {
            best = Some(volume);
        }
    }
    best.map(|volume| volume.metadata.name.clone())
}

fn check(cluster: &Cluster, rng: &mut Rng, context: &str) {
    for (name, zone) in [("n0", "a"), ("n1", "a"), ("n2", "b")] {
        let labels = json!({"kubernetes.io/hostname": name, "zone": zone});
        let node: Arc<Node> = decode(json!({"metadata": {"name": name, "labels": labels}}));
        let mut taken = Vec::new();
        for _ in 0..3 {
            let claim = claim(rng);
            let found = find_volume(cluster, &claim, &node, &taken);
            let name = found.as_ref().map(|volume| volume.metadata.name.clone());
            assert_eq!(name, plain(cluster, &claim, &node, &taken), "{context}: {claim:?}");
            taken.extend(found.map(|volume| (claim, volume)));
        }
        let bytes = [1, 5, 10][rng.below(3)];
        let mut capacities = cluster.objects.csi_storage_capacities.iter();
        let expected = capacities.any(|capacity| {
            capacity.storage_class_name == "local"
                && largest_volume(capacity).is_some_and(|limit| limit >= bytes)
                && capacity.node_topology.is_some()
                && Selector::of(capacity.node_topology.as_ref()).is_ok_and(|s| s.matches(&node.metadata.labels))
        });
        let seen = cluster.objects.storage.has_capacity("local", bytes, &node.metadata.labels);
        assert_eq!(seen, expected, "{context}: capacity near {name}");
        let attached = |a: &&Arc<bayplan_model::storage::VolumeAttachment>| a.spec.node_name == name;
        let expected: Vec<_> = cluster.objects.volume_attachments.iter().filter(attached).collect();
        let seen = cluster.objects.storage.attachments(name).into_iter().flat_map(|on_node| on_node.values());
        assert_eq!(seen.collect::<Vec<_>>(), expected, "{context}: attachments of {name}");
    }
    for volume in cluster.persistent_volumes() {
        assert_eq!(cluster.persistent_volume(&volume.metadata.name), Some(volume), "{context}");
    }
}

#[test]
fn the_index_finds_the_volumes_that_a_walk_over_all_of_them_finds() {
    for seed in 1..200u64 {
        let mut rng = Rng::new(seed);
        let mut cluster = Cluster::new();
        let mut assumed: Vec<Arc<PersistentVolume>> = Vec::new();
        for step in 0..80 {
            match rng.below(9) {
                0..=3 => drop(cluster.objects.store(&Object::PersistentVolume(volume(&mut rng, step)))),
                4 => drop(cluster.objects.remove(&Object::PersistentVolume(volume(&mut rng, step)))),
                5 => {
                    if let Some(seen) = cluster.persistent_volume(NAMES[rng.below(NAMES.len())]) {
                        let mut bound = (**seen).clone();
                        let to = claim(&mut rng).metadata.clone();
                        bound.spec.claim_ref = Some(ClaimRef { namespace: to.namespace, name: to.name, uid: to.uid });
                        let bound = Arc::new(bound);
                        cluster.assume_volume(bound.clone()).unwrap();
                        assumed.push(bound);
                    }
                }
                6 => {
                    if !assumed.is_empty() {
                        let at = rng.below(assumed.len());
                        cluster.restore_volume(&assumed.swap_remove(at));
                    }
                }
                7 => {
                    let capacity: Arc<CsiStorageCapacity> = decode(json!({
                        "metadata": {"namespace": "d", "name": rng.pick(&["k0", "k1", "k2"])},
                        "storageClassName": rng.pick(&["local", "other"]),
                        "capacity": rng.pick(&["1", "5", "10"]),
                        "nodeTopology": {"matchLabels": {"zone": rng.pick(&["a", "b"])}},
                    }));
                    let object = Object::CsiStorageCapacity(capacity);
                    drop(if rng.below(4) > 0 {
                        cluster.objects.store(&object)
                    } else {
                        cluster.objects.remove(&object)
                    });
                }
                _ => {
                    let object = Object::VolumeAttachment(decode(json!({
                        "metadata": {"name": rng.pick(&["a0", "a1", "a2"])},
                        "spec": {"attacher": "csi", "nodeName": rng.pick(&["n0", "n1", "n2"])},
                    })));
                    drop(if rng.below(4) > 0 {
                        cluster.objects.store(&object)
                    } else {
                        cluster.objects.remove(&object)
                    });
                }
            }
            check(&cluster, &mut rng, &format!("seed {seed}, step {step}"));
        }
    }
}
