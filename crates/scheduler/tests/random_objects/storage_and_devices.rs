//! Volumes and devices: few of each, so that pods share them and run out of them.

use bayplan_testkit::Rng;
use serde_json::{Value, json};

use super::{NAMESPACES, ZONES, word};

const DRIVER: &str = "disks.example.com";
const DEVICE_DRIVER: &str = "devices.example.com";
const CLAIMS: [&str; 4] = ["c0", "c1", "c2", "c3"];
const VOLUMES: [&str; 6] = ["v0", "v1", "v2", "v3", "v4", "v5"];
const CLASSES: [&str; 3] = ["at-once", "later", "local"];
const MODES: [&str; 3] = ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"];

/// What exists from the beginning: classes, volumes, and a claim of each name in each namespace.
pub(crate) fn basics(rng: &mut Rng) -> Vec<Value> {
    let mut all: Vec<Value> = CLASSES.iter().map(|name| storage_class(name, rng)).collect();
    all.extend(VOLUMES.iter().map(|name| volume(name, &[], rng)));
    all.push(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"storageCapacity": rng.one_in(2)}}));
    all.push(device_class(rng));
    for namespace in NAMESPACES {
        all.extend(CLAIMS.iter().map(|name| volume_claim(namespace, name, rng)));
        all.extend(CLAIMS.iter().map(|name| device_claim(namespace, name, &[], rng)));
    }
    all
}

/// What comes with a node.
pub(crate) fn of_node(node: &str, rng: &mut Rng) -> Vec<Value> {
    let mut all = Vec::new();
    if !rng.one_in(4) {
        all.push(csi_node(node, rng));
    }
    if !rng.one_in(3) {
        all.push(slice(node, rng));
    }
    all
}

/// Gives a pod volumes or devices, if it is to have some.
pub(crate) fn equip(spec: &mut Value, rng: &mut Rng) {
    match rng.below(14) {
        5 if rng.one_in(2) => {
            // No such claim: PreFilter rejects the pod.
            spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "nowhere"}}]);
        }
        0 | 1 => spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": rng.pick(&CLAIMS)}}]),
        2 => {
            let disk = json!({"pdName": rng.pick(&VOLUMES), "readOnly": rng.one_in(2)});
            spec["volumes"] = json!([{"name": "d", "gcePersistentDisk": disk}]);
        }
        3 | 4 => {
            spec["resourceClaims"] = json!([{"name": "r", "resourceClaimName": rng.pick(&CLAIMS)}]);
            spec["containers"][0]["resources"]["claims"] = json!([{"name": "r"}]);
        }
        _ => {}
    }
}

/// Whether a pod uses volumes or devices.
pub(crate) fn is_equipped(spec: &Value) -> bool {
    spec["volumes"].is_array() || spec["resourceClaims"].is_array()
}

/// A new version of some object, and whether to delete it instead.
pub(crate) fn change(nodes: &[&str], rng: &mut Rng) -> (Value, bool) {
    let namespace = *rng.pick(&NAMESPACES);
    let object = match rng.below(11) {
        0..=2 => volume_claim(namespace, word(rng, &CLAIMS), rng),
        3 | 4 => volume(word(rng, &VOLUMES), nodes, rng),
        5 => storage_class(word(rng, &CLASSES), rng),
        6 => csi_node(word(rng, nodes), rng),
        7 => match rng.one_in(2) {
            true => storage_capacity(rng),
            false => attachment(word(rng, nodes), rng),
        },
        8 => slice(word(rng, nodes), rng),
        9 if rng.one_in(4) => device_class(rng),
        _ => device_claim(namespace, word(rng, &CLAIMS), nodes, rng),
    };
    (object, rng.one_in(8))
}

fn storage_class(name: &str, rng: &mut Rng) -> Value {
    let mut class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": if name == "local" { "kubernetes.io/no-provisioner" } else { DRIVER },
        "volumeBindingMode": if name == "at-once" { "Immediate" } else { "WaitForFirstConsumer" },
    });
    if rng.one_in(2) {
        class["allowedTopologies"] = json!([{"matchLabelExpressions": [
            {"key": "topology.kubernetes.io/zone", "values": [rng.pick(&ZONES), rng.pick(&ZONES)]}]}]);
    }
    class
}

fn volume(name: &str, nodes: &[&str], rng: &mut Rng) -> Value {
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": format!("{}Gi", 1 + rng.below(3))}, "accessModes": MODES,
            "storageClassName": rng.pick(&CLASSES), "csi": {"driver": DRIVER, "volumeHandle": name},
        },
        "status": {"phase": "Available"},
    });
    let only_on = |key: &str, value: &str| {
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": key, "operator": "In", "values": [value]}]}]}})
    };
    match rng.below(4) {
        0 => volume["spec"]["nodeAffinity"] = only_on("topology.kubernetes.io/zone", word(rng, &ZONES)),
        1 if !nodes.is_empty() => volume["spec"]["nodeAffinity"] = only_on("kubernetes.io/hostname", word(rng, nodes)),
        2 => volume["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": rng.pick(&ZONES)}),
        _ => {}
    }
    if rng.one_in(4) {
        volume["spec"]["claimRef"] = json!({"namespace": rng.pick(&NAMESPACES), "name": rng.pick(&CLAIMS)});
    }
    volume
}

fn volume_claim(namespace: &str, name: &str, rng: &mut Rng) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}")},
        "spec": {
            "accessModes": [rng.pick(&MODES)], "storageClassName": rng.pick(&CLASSES[1..]),
            "resources": {"requests": {"storage": format!("{}Gi", 1 + rng.below(3))}},
        },
    });
    match rng.below(4) {
        0 | 1 => {
            claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
            claim["spec"]["volumeName"] = (word(rng, &VOLUMES)).into();
        }
        2 if rng.one_in(3) => claim["spec"]["storageClassName"] = CLASSES[0].into(),
        _ => {}
    }
    claim
}

fn csi_node(node: &str, rng: &mut Rng) -> Value {
    let drivers = [DRIVER, "pd.csi.storage.gke.io"];
    let drivers = drivers.map(|name| json!({"name": name, "nodeID": node, "allocatable": {"count": rng.below(4)}}));
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node}, "spec": {"drivers": drivers},
    })
}

fn storage_capacity(rng: &mut Rng) -> Value {
    let zone = *rng.pick(&ZONES);
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"namespace": "default", "name": zone}, "storageClassName": "later",
        "nodeTopology": {"matchLabels": {"topology.kubernetes.io/zone": zone}},
        "capacity": format!("{}Gi", 1 + rng.below(4)),
    })
}

fn attachment(node: &str, rng: &mut Rng) -> Value {
    let volume = *rng.pick(&VOLUMES);
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": volume},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}},
    })
}

fn device_class(rng: &mut Rng) -> Value {
    let mut class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "device"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{DEVICE_DRIVER}'")}}]},
    });
    if rng.one_in(4) {
        class["spec"]["extendedResourceName"] = "example.com/gpu".into();
    }
    class
}

fn slice(node: &str, rng: &mut Rng) -> Value {
    let devices: Vec<Value> = (0..=rng.below(3))
        .map(|i| json!({"name": format!("d{i}"), "attributes": {"size": {"int": rng.below(3)}}}))
        .collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
        "spec": {
            "driver": DEVICE_DRIVER, "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices,
        },
    })
}

fn device_claim(namespace: &str, name: &str, nodes: &[&str], rng: &mut Rng) -> Value {
    let mut exactly = json!({"deviceClassName": "device", "allocationMode": "ExactCount", "count": 1 + rng.below(2)});
    if rng.one_in(3) {
        let expression = format!("device.attributes['{DEVICE_DRIVER}'].size > 0");
        exactly["selectors"] = json!([{"cel": {"expression": expression}}]);
    }
    let mut claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}")},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    });
    if !nodes.is_empty() && rng.one_in(3) {
        let node = *rng.pick(nodes);
        claim["status"]["allocation"] = json!({
            "devices": {"results": [{"request": "r", "driver": DEVICE_DRIVER, "pool": node, "device": "d0"}]},
            "nodeSelector": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]},
        });
    }
    claim
}
