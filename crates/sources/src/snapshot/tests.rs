//! What a snapshot holds, what it does not, and what is left of a broken one.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::{Redaction, write_snapshot};
use crate::{ClusterObjects, Given, OriginKind, SourceReader};

fn read(bytes: &[u8]) -> ClusterObjects {
    let mut reader = SourceReader::default();
    reader.read("x", &mut &*bytes, Given::Directly);
    reader.finish()
}

fn cluster(objects: &[Value]) -> ClusterObjects {
    let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
    read(text.as_bytes())
}

fn snapshot(objects: &ClusterObjects, redaction: Redaction) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_snapshot(objects, redaction, &mut bytes).unwrap();
    bytes
}

fn text(snapshot: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(snapshot).read_to_string(&mut text).unwrap();
    text
}

fn values(objects: &ClusterObjects) -> Vec<Value> {
    objects.objects.iter().map(|object| serde_json::from_str(object.json.get()).unwrap()).collect()
}

fn acme_selector() -> Value {
    json!({
        "matchLabels": {"acme": "acme-x"},
        "matchExpressions": [{"key": "acme.com/key", "operator": "In", "values": ["acme-y"]}],
    })
}

fn acme_pod_spec() -> Value {
    let selector = acme_selector();
    let terms = json!([{
        "matchExpressions": [{"key": "acme-pool", "operator": "Gt", "values": ["5"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["acme-node"]}],
    }]);
    let container = json!({
        "name": "acme-app", "image": "registry.acme.com/app", "command": ["SECRET"], "args": ["SECRET"],
        "env": [{"name": "PASSWORD", "value": "SECRET"}], "envFrom": [{"secretRef": {"name": "SECRET"}}],
        "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1",
            "deviceclass.resource.kubernetes.io/acme-class": "1"}},
        "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP", "name": "acme-port"}],
        "livenessProbe": {"exec": {"command": ["SECRET"]}},
    });
    let affinity_term = json!({"labelSelector": selector, "namespaces": ["acme-ns"], "namespaceSelector": selector,
        "topologyKey": "acme-zone", "matchLabelKeys": ["acme"]});
    json!({
        "nodeName": "acme-node", "schedulerName": "acme-scheduler", "priorityClassName": "acme-priority",
        "nodeSelector": {"acme-pool": "7", "kubernetes.io/hostname": "acme-node"},
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": terms[0]}]},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [affinity_term]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
                "podAffinityTerm": affinity_term}]},
        },
        "tolerations": [{"key": "acme-taint", "operator": "Equal", "value": "acme-value", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "acme-zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}],
        "containers": [container], "initContainers": [container],
        "schedulingGates": [{"name": "acme.com/gate"}],
        "volumes": [
            {"name": "acme-data", "persistentVolumeClaim": {"claimName": "acme-claim"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"metadata": {"annotations": {"a": "SECRET"}},
                "spec": {"storageClassName": "acme-sc"}}}},
            {"name": "acme-secret", "secret": {"secretName": "SECRET"}},
            {"name": "acme-csi", "csi": {"driver": "csi.example", "volumeAttributes": {"password": "SECRET"}}},
        ],
        "resourceClaims": [{"name": "acme-gpu", "resourceClaimName": "acme-claim"}],
        "serviceAccountName": "SECRET", "imagePullSecrets": [{"name": "SECRET"}],
    })
}

/// Objects in which everything that a user chooses says ACME, and everything secret SECRET.
fn acme() -> Vec<Value> {
    let meta = |name: &str| {
        json!({
            "name": name, "namespace": "acme-ns", "uid": "acme-uid", "generateName": "acme-", "resourceVersion": "7",
            "labels": {"acme": "acme-x", "acme.com/key": "acme-y", "app.kubernetes.io/name": "acme-app"},
            "annotations": {
                "acme.com/note": "SECRET", "kubectl.kubernetes.io/last-applied-configuration": "SECRET",
                "volume.kubernetes.io/selected-node": "acme-node",
            },
            "finalizers": ["acme.com/finalizer", "kubernetes.io/pvc-protection"],
            "managedFields": [{"manager": "SECRET"}],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "acme-rs",
                "uid": "acme-rs-uid", "controller": true}],
        })
    };
    let (selector, pod_spec) = (acme_selector(), acme_pod_spec());
    vec![
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "acme-node",
            "labels": {"kubernetes.io/hostname": "acme-node", "acme-pool": "7", "kubernetes.io/arch": "amd64"}},
            "spec": {"providerID": "SECRET", "taints": [{"key": "acme-taint", "value": "acme-value",
                "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4"}, "addresses": [{"address": "SECRET"}],
                "images": [{"names": ["registry.acme.com/app:latest"], "sizeBytes": 5}],
                    "nodeInfo": {"machineID": "SECRET"}}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta("acme-pod"), "spec": pod_spec, "status": {
            "phase": "Pending", "nominatedNodeName": "acme-node", "podIP": "SECRET",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "acme does not fit"}],
            "containerStatuses": [{"name": "acme-app", "imageID": "SECRET",
                "state": {"waiting": {"message": "SECRET"}}}]}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("acme-deployment"),
            "spec": {"replicas": 3, "selector": selector, "template": {"metadata": {"labels": {"acme": "acme-x"}},
                "spec": pod_spec}}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("acme-pod-scratch"),
            "spec": {"storageClassName": "acme-sc", "volumeName": "acme-pv"}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta("acme-pv"),
            "spec": {"claimRef": {"namespace": "acme-ns", "name": "acme-claim", "uid": "acme-uid"},
            "csi": {"driver": "csi.example", "volumeHandle": "acme-handle", "volumeAttributes": {"a": "SECRET"},
                "nodeStageSecretRef": {"name": "SECRET"}}}}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "acme-sc"},
            "provisioner": "csi.example", "parameters": {"key": "SECRET"},
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "acme-zone", "values": ["acme-z1"]}]}]}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta("acme-pdb"),
            "spec": {"selector": selector, "minAvailable": "50%"}, "status": {"disruptionsAllowed": 1,
                "disruptedPods": {"acme-pod": "2026-01-01T00:00:00Z"}}}),
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta("acme-claim"),
            "spec": {"devices": {"requests": [{"name": "acme-req", "firstAvailable": [{"name": "acme-sub",
                "deviceClassName": "acme-class"}]}], "config": [{"opaque": {"parameters": {"a": "SECRET"}}}]}},
            "status": {"allocation": {"devices": {"results": [{"request": "acme-req/acme-sub",
                "driver": "gpu.example", "pool": "acme-node", "device": "acme-gpu-0"}]}},
                    "reservedFor": [{"resource": "pods", "name": "acme-pod", "uid": "acme-uid"}]}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("SECRET"), "data": {"a": "SECRET"}}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example"}}),
    ]
}

#[test]
fn secrets_environment_and_arguments_never_enter_a_snapshot() {
    for redaction in [Redaction::None, Redaction::Names] {
        let text = text(&snapshot(&cluster(&acme()), redaction));
        assert!(!text.contains("SECRET"), "{text}");
        assert!(!text.contains("PASSWORD"), "{text}");
    }
}

#[test]
fn nothing_that_a_user_chose_is_left_after_redaction() {
    let text = text(&snapshot(&cluster(&acme()), Redaction::Names)).to_lowercase();
    let around = text.find("acme").map(|at| &text[at.saturating_sub(60)..text.len().min(at + 40)]);
    assert_eq!(around, None);
    for kept in ["nvidia.com/gpu", "kubernetes.io/hostname", "noschedule", "csi.example", "amd64", "unschedulable"] {
        assert!(text.contains(kept), "{kept}");
    }
}

#[test]
fn redacted_names_still_refer_to_each_other() {
    let objects = read(&snapshot(&cluster(&acme()), Redaction::Names));
    let values = values(&objects);
    let [node, pod, deployment, claim, volume, class, budget, device_claim, driver] = &values[..] else {
        panic!("{values:?}")
    };
    let name = |object: &Value| object["metadata"]["name"].clone();
    assert!(name(node).as_str().unwrap().starts_with("node-"));
    assert_eq!(pod["spec"]["nodeName"], name(node));
    assert_eq!(pod["spec"]["nodeSelector"]["kubernetes.io/hostname"], name(node));
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], name(node));
    assert_eq!(pod["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], name(node));
    assert_eq!(pod["spec"]["tolerations"][0]["key"], node["spec"]["taints"][0]["key"]);
    assert_eq!(pod["spec"]["containers"][0]["image"], node["status"]["images"][0]["names"][0]);
    // The labels of the node and the selectors of the pod have the same keys, and numbers stay numbers.
    let pool = node["metadata"]["labels"].as_object().unwrap().iter().find(|(_, value)| *value == "7").unwrap().0;
    assert_eq!(pod["spec"]["nodeSelector"][pool], "7");
    let (pod_name, volume_name) = (name(pod), &pod["spec"]["volumes"][1]["name"]);
    assert_eq!(name(claim), format!("{}-{}", pod_name.as_str().unwrap(), volume_name.as_str().unwrap()));
    assert_eq!(claim["spec"]["volumeName"], name(volume));
    assert_eq!(claim["spec"]["storageClassName"], name(class));
    assert_eq!(class["provisioner"], name(driver));
    assert_eq!(volume["spec"]["claimRef"]["name"], name(device_claim));
    assert_eq!(
        budget["status"]["disruptedPods"].as_object().unwrap().keys().next().unwrap(),
        pod_name.as_str().unwrap()
    );
    let results = &device_claim["status"]["allocation"]["devices"]["results"][0];
    assert_eq!(results["pool"], name(node));
    let request = &device_claim["spec"]["devices"]["requests"][0];
    let joined =
        format!("{}/{}", request["name"].as_str().unwrap(), request["firstAvailable"][0]["name"].as_str().unwrap());
    assert_eq!(results["request"], joined);
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], deployment["spec"]["template"]["metadata"]["labels"]);
}

#[test]
fn a_snapshot_says_when_it_was_taken_and_what_is_missing() {
    let mut objects = cluster(&acme());
    objects.origin.time = Some("2026-03-01T10:00:00Z".parse().unwrap());
    objects.origin.resource_version = Some("4711".into());
    objects.listed.insert("services");
    let read = read(&snapshot(&objects, Redaction::None));
    assert_eq!(read.origin.kind, OriginKind::Snapshot);
    assert_eq!((read.origin.time, read.origin.resource_version.as_deref()), (objects.origin.time, Some("4711")));
    assert_eq!(read.missing(), objects.missing());
    assert!(!read.missing().contains(&"services") && read.missing().contains(&"csinodes.storage.k8s.io"));
    let shown = |objects: &ClusterObjects| objects.objects.iter().map(|o| o.name.clone()).collect::<Vec<_>>();
    assert_eq!(shown(&read), shown(&objects));
}

#[test]
fn a_snapshot_of_a_snapshot_is_the_same() {
    let first = snapshot(&cluster(&acme()), Redaction::None);
    let again = snapshot(&read(&first), Redaction::None);
    let objects = |bytes: &[u8]| text(bytes).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(objects(&first), objects(&again));
}

#[test]
fn a_broken_snapshot_gives_what_came_before_the_damage() {
    let nodes: Vec<Value> = (0..3000)
        .map(|i| {
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{i}"),
            "uid": format!("{:x}", i * 2_654_435_761_u64)}})
        })
        .collect();
    let whole = snapshot(&cluster(&nodes), Redaction::None);
    let cut = read(&whole[..whole.len() / 2]);
    assert!(cut.objects.len() > 100 && cut.objects.len() < 3000, "{}", cut.objects.len());
    assert_eq!(cut.notes.len(), 1);
    assert!(
        cut.notes[0].contains("was cut") && cut.notes[0].contains("objects before that are used"),
        "{:?}",
        cut.notes
    );

    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0xa5);
    let damaged = read(&damaged);
    assert_eq!(damaged.notes.len(), 1, "{:?}", damaged.notes);

    let later = text(&whole).replacen("\"format\":1", "\"format\":2", 1);
    let refused = read(later.as_bytes());
    assert!(refused.notes[0].contains("it has form 2") && refused.objects.is_empty(), "{:?}", refused.notes);

    let short = text(&whole).replacen("\"objects\":3000", "\"objects\":3001", 1);
    assert!(read(short.as_bytes()).notes[0].contains("it should hold 3001 objects and holds 3000"));
}
