//! Volumes and devices for random histories: few of each, so that pods share them and run out of them.

use serde_json::{Value, json};

use crate::{Luck, NAMESPACES, ZONES};

const DRIVER: &str = "disks.example.com";
const DEVICE_DRIVER: &str = "devices.example.com";
const CLAIMS: [&str; 4] = ["c0", "c1", "c2", "c3"];
const VOLUMES: [&str; 6] = ["v0", "v1", "v2", "v3", "v4", "v5"];
const CLASSES: [&str; 3] = ["at-once", "later", "local"];
const MODES: [&str; 3] = ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"];

/// What is there from the beginning: classes, and a claim of each name in each namespace.
pub(crate) fn basics(luck: &mut Luck) -> Vec<Value> {
    let mut all: Vec<Value> = CLASSES.iter().map(|name| storage_class(name, luck)).collect();
    all.extend(VOLUMES.iter().map(|name| volume(name, &[], luck)));
    all.push(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"storageCapacity": luck.one_in(2)}}));
    all.push(device_class(luck));
    for namespace in NAMESPACES {
        all.extend(CLAIMS.iter().map(|name| volume_claim(namespace, name, luck)));
        all.extend(CLAIMS.iter().map(|name| device_claim(namespace, name, &[], luck)));
    }
    all
}

/// What comes with a node.
pub(crate) fn of_node(node: &str, luck: &mut Luck) -> Vec<Value> {
    let mut all = Vec::new();
    if !luck.one_in(4) {
        all.push(csi_node(node, luck));
    }
    if !luck.one_in(3) {
        all.push(slice(node, luck));
    }
    all
}

/// Gives a pod volumes or devices, if it is to have some.
pub(crate) fn equip(spec: &mut Value, luck: &mut Luck) {
    match luck.below(14) {
        0 | 1 => spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": luck.pick(&CLAIMS)}}]),
        2 => {
            let disk = json!({"pdName": luck.pick(&VOLUMES), "readOnly": luck.one_in(2)});
            spec["volumes"] = json!([{"name": "d", "gcePersistentDisk": disk}]);
        }
        3 | 4 => {
            spec["resourceClaims"] = json!([{"name": "r", "resourceClaimName": luck.pick(&CLAIMS)}]);
            spec["containers"][0]["resources"]["claims"] = json!([{"name": "r"}]);
        }
        _ => {}
    }
}

/// Whether a pod uses volumes or devices.
pub(crate) fn is_equipped(spec: &Value) -> bool {
    spec["volumes"].is_array() || spec["resourceClaims"].is_array()
}

/// The next version of something, and whether it is gone with it.
pub(crate) fn change(nodes: &[&str], luck: &mut Luck) -> (Value, bool) {
    let namespace = luck.pick(&NAMESPACES);
    let object = match luck.below(11) {
        0..=2 => volume_claim(namespace, luck.pick(&CLAIMS), luck),
        3 | 4 => volume(luck.pick(&VOLUMES), nodes, luck),
        5 => storage_class(luck.pick(&CLASSES), luck),
        6 => csi_node(luck.pick(nodes), luck),
        7 => match luck.one_in(2) {
            true => storage_capacity(luck),
            false => attachment(luck.pick(nodes), luck),
        },
        8 => slice(luck.pick(nodes), luck),
        9 if luck.one_in(4) => device_class(luck),
        _ => device_claim(namespace, luck.pick(&CLAIMS), nodes, luck),
    };
    (object, luck.one_in(8))
}

fn storage_class(name: &str, luck: &mut Luck) -> Value {
    let mut class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": if name == "local" { "kubernetes.io/no-provisioner" } else { DRIVER },
        "volumeBindingMode": if name == "at-once" { "Immediate" } else { "WaitForFirstConsumer" },
    });
    if luck.one_in(2) {
        class["allowedTopologies"] = json!([{"matchLabelExpressions": [
            {"key": "topology.kubernetes.io/zone", "values": [luck.pick(&ZONES), luck.pick(&ZONES)]}]}]);
    }
    class
}

fn volume(name: &str, nodes: &[&str], luck: &mut Luck) -> Value {
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": format!("{}Gi", 1 + luck.below(3))}, "accessModes": MODES,
            "storageClassName": luck.pick(&CLASSES), "csi": {"driver": DRIVER, "volumeHandle": name},
        },
        "status": {"phase": "Available"},
    });
    let only_on = |key: &str, value: &str| {
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": key, "operator": "In", "values": [value]}]}]}})
    };
    match luck.below(4) {
        0 => volume["spec"]["nodeAffinity"] = only_on("topology.kubernetes.io/zone", luck.pick(&ZONES)),
        1 if !nodes.is_empty() => volume["spec"]["nodeAffinity"] = only_on("kubernetes.io/hostname", luck.pick(nodes)),
        2 => volume["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": luck.pick(&ZONES)}),
        _ => {}
    }
    if luck.one_in(4) {
        volume["spec"]["claimRef"] = json!({"namespace": luck.pick(&NAMESPACES), "name": luck.pick(&CLAIMS)});
    }
    volume
}

fn volume_claim(namespace: &str, name: &str, luck: &mut Luck) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}")},
        "spec": {
            "accessModes": [luck.pick(&MODES)], "storageClassName": luck.pick(&CLASSES[1..]),
            "resources": {"requests": {"storage": format!("{}Gi", 1 + luck.below(3))}},
        },
    });
    match luck.below(4) {
        0 | 1 => {
            claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
            claim["spec"]["volumeName"] = luck.pick(&VOLUMES).into();
        }
        2 if luck.one_in(3) => claim["spec"]["storageClassName"] = CLASSES[0].into(),
        _ => {}
    }
    claim
}

fn csi_node(node: &str, luck: &mut Luck) -> Value {
    let drivers = [DRIVER, "pd.csi.storage.gke.io"];
    let drivers = drivers.map(|name| json!({"name": name, "nodeID": node, "allocatable": {"count": luck.below(4)}}));
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node}, "spec": {"drivers": drivers}})
}

fn storage_capacity(luck: &mut Luck) -> Value {
    let zone = luck.pick(&ZONES);
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"namespace": "default", "name": zone}, "storageClassName": "later",
        "nodeTopology": {"matchLabels": {"topology.kubernetes.io/zone": zone}},
        "capacity": format!("{}Gi", 1 + luck.below(4)),
    })
}

fn attachment(node: &str, luck: &mut Luck) -> Value {
    let volume = luck.pick(&VOLUMES);
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": volume},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}},
    })
}

fn device_class(luck: &mut Luck) -> Value {
    let mut class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "device"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{DEVICE_DRIVER}'")}}]},
    });
    if luck.one_in(4) {
        class["spec"]["extendedResourceName"] = "example.com/gpu".into();
    }
    class
}

fn slice(node: &str, luck: &mut Luck) -> Value {
    let devices: Vec<Value> = (0..=luck.below(3))
        .map(|i| json!({"name": format!("d{i}"), "attributes": {"size": {"int": luck.below(3)}}}))
        .collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
        "spec": {
            "driver": DEVICE_DRIVER, "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices,
        },
    })
}

fn device_claim(namespace: &str, name: &str, nodes: &[&str], luck: &mut Luck) -> Value {
    let mut exactly = json!({"deviceClassName": "device", "allocationMode": "ExactCount", "count": 1 + luck.below(2)});
    if luck.one_in(3) {
        let expression = format!("device.attributes['{DEVICE_DRIVER}'].size > 0");
        exactly["selectors"] = json!([{"cel": {"expression": expression}}]);
    }
    let mut claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}")},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    });
    if !nodes.is_empty() && luck.one_in(3) {
        let node = luck.pick(nodes);
        claim["status"]["allocation"] = json!({
            "devices": {"results": [{"request": "r", "driver": DEVICE_DRIVER, "pool": node, "device": "d0"}]},
            "nodeSelector": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]},
        });
    }
    claim
}
