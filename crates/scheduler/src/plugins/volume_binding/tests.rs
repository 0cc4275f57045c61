//! Which nodes do for a pod's claims, and what may let a rejected pod fit.

use crate::plugins::testing::plugin;

const OBJECTS: &str = "
    Node a {labels: {zone: a}}
    Node b {labels: {zone: b}}
    StorageClass local {provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}
    StorageClass cloud {provisioner: csi.example.com, volumeBindingMode: WaitForFirstConsumer}
    StorageClass now {provisioner: csi.example.com, volumeBindingMode: Immediate}
";
const POD: &str = "{volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}";
const BOTH: [&str; 2] = ["a: Success", "b: Success"];

/// A line that rejects a node for this reason.
fn rejected(node: &str, reason: &str) -> String {
    format!("{node}: UnschedulableAndUnresolvable: {reason}")
}

/// A volume of class `local` that is reached from one zone.
fn volume(name: &str, zone: &str, size: &str) -> String {
    format!(
        "PersistentVolume {name} {{storageClassName: local, capacity: {{storage: {size}}}, \
         accessModes: [ReadWriteOnce], phase: Available, nodeAffinity: {{required: {{nodeSelectorTerms: [\
         {{matchExpressions: [{{key: zone, operator: In, values: [{zone}]}}]}}]}}}}}}\n"
    )
}

#[test]
fn claims_must_be_there_and_in_order() {
    for (sentence, pod, objects, reason) in [
        ("a claim must exist", POD, "", r#"persistentvolumeclaim "data" not found"#),
        (
            "the claim of an ephemeral volume is made by a controller",
            "{volumes: [{name: v, ephemeral: {}}]}",
            "",
            r#"waiting for ephemeral volume controller to create the persistentvolumeclaim "pod-v""#,
        ),
        (
            "and must belong to the pod",
            "{volumes: [{name: v, ephemeral: {}}]}",
            "PersistentVolumeClaim pod-v",
            "PVC default/pod-v was not created for pod default/pod (pod is not owner)",
        ),
        (
            "a claim whose volume was lost",
            POD,
            "PersistentVolumeClaim data {phase: Lost, volumeName: pv}",
            r#"persistentvolumeclaim "data" bound to non-existent persistentvolume "pv""#,
        ),
        (
            "a claim that is going",
            POD,
            "PersistentVolumeClaim data {deletionTimestamp: '2026-01-01T00:00:00Z'}",
            r#"persistentvolumeclaim "data" is being deleted"#,
        ),
        (
            "a claim that should have been bound without the pod",
            POD,
            "PersistentVolumeClaim data {storageClassName: now}",
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ] {
        let expected = rejected("pod", reason);
        plugin("VolumeBinding").given(OBJECTS).filters(&[(sentence, pod, objects, &[&expected])]);
    }
    plugin("VolumeBinding").given(OBJECTS).filters(&[(
        "a pod without claims is skipped",
        "{volumes: [{name: v}]}",
        "",
        &["a: Skip", "b: Skip"],
    )]);
}

#[test]
fn a_bound_claim_ties_the_pod_to_its_volume() {
    let bound = "PersistentVolumeClaim data {volumeName: pv, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}\n";
    let far = rejected("b", "node(s) didn't match PersistentVolume's node affinity");
    let gone = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
    plugin("VolumeBinding").given(OBJECTS).filters(&[
        ("a volume that is reached from anywhere", POD, &format!("{bound}PersistentVolume pv"), &BOTH),
        ("a volume in zone a", POD, &format!("{bound}{}", volume("pv", "a", "1Gi")), &["a: Success", &far]),
        ("a volume that is gone", POD, bound, &[&rejected("a", gone), &rejected("b", gone)]),
    ]);
}

#[test]
fn a_claim_that_waits_for_its_pod_needs_a_free_volume_or_a_provisioner() {
    let local = "PersistentVolumeClaim data {storageClassName: local, accessModes: [ReadWriteOnce], \
                 requests: {storage: 2Gi}}\n";
    let cloud = "PersistentVolumeClaim data {storageClassName: cloud, requests: {storage: 2Gi}}\n";
    let none = "node(s) didn't find available persistent volumes to bind";
    let (a, b) = (&*rejected("a", none), &*rejected("b", none));
    let full = rejected("b", "node(s) did not have enough free storage");
    let capacity = "
        CSIDriver csi.example.com {storageCapacity: true}
        CSIStorageCapacity x {storageClassName: cloud, capacity: 5Gi, nodeTopology: {matchLabels: {zone: a}}}
        CSIStorageCapacity y {storageClassName: cloud, capacity: 1Gi, nodeTopology: {matchLabels: {zone: b}}}
    ";
    let topology = "StorageClass cloud {provisioner: csi.example.com, volumeBindingMode: WaitForFirstConsumer, \
                    allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a]}]}]}";
    let selected =
        "PersistentVolumeClaim data {storageClassName: cloud, annotations: {volume.kubernetes.io/selected-node: a}}";
    let taken = volume("pv", "a", "2Gi").replace("phase:", "claimRef: {namespace: default, name: other}, phase:");
    plugin("VolumeBinding").given(OBJECTS).filters(&[
        ("a free volume in zone a", POD, &format!("{local}{}", volume("pv", "a", "2Gi")), &["a: Success", b]),
        ("a volume that is too small", POD, &format!("{local}{}", volume("pv", "a", "1Gi")), &[a, b]),
        ("a volume that is reserved for another claim", POD, &format!("{local}{taken}"), &[a, b]),
        ("a provisioner can make a volume anywhere", POD, cloud, &BOTH),
        ("unless its class says where", POD, &format!("{cloud}{topology}"), &["a: Success", b]),
        ("or its driver says how much is left where", POD, &format!("{cloud}{capacity}"), &["a: Success", &full]),
        ("a provisioner is at work for a node already", POD, selected, &["a: Success", b]),
    ]);
}

#[test]
fn two_claims_do_not_share_a_volume() {
    let pod = "{volumes: [{name: v, persistentVolumeClaim: {claimName: one}}, \
               {name: w, persistentVolumeClaim: {claimName: two}}]}";
    let claims = "PersistentVolumeClaim one {storageClassName: local, requests: {storage: 1Gi}}\n\
                  PersistentVolumeClaim two {storageClassName: local, requests: {storage: 2Gi}}\n";
    let b = rejected("b", "node(s) didn't find available persistent volumes to bind");
    let a = rejected("a", "node(s) didn't find available persistent volumes to bind");
    let (small, large) = (volume("small", "a", "1Gi"), volume("large", "a", "2Gi"));
    plugin("VolumeBinding").given(OBJECTS).filters(&[
        ("the smaller claim takes the smaller volume", pod, &format!("{claims}{large}{small}"), &["a: Success", &b]),
        ("one volume is not enough", pod, &format!("{claims}{large}"), &[&a, &b]),
    ]);
}

#[test]
fn what_changes_volumes_or_where_they_can_be_wakes_the_pod() {
    plugin("VolumeBinding").hints(&[
        ("the pod's claim is created", POD, "add PersistentVolumeClaim data", "Queue"),
        ("another claim is created", POD, "add PersistentVolumeClaim other", "Skip"),
        ("any volume comes", POD, "add PersistentVolume pv", "Queue"),
        ("a node changes its labels", POD, "update Node a {} => {labels: {zone: a}}", "Queue"),
        ("a class comes", POD, "add StorageClass c {provisioner: x}", "Queue"),
        (
            "a class allows other zones",
            POD,
            "update StorageClass c {provisioner: x} \
             => {provisioner: x, allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a]}]}]}",
            "Queue",
        ),
        (
            "a class changes otherwise",
            POD,
            "update StorageClass c {provisioner: x} => {provisioner: x, reclaimPolicy: Retain}",
            "Skip",
        ),
        (
            "capacity grows",
            POD,
            "update CSIStorageCapacity x {storageClassName: c, capacity: 1Gi} => {storageClassName: c, capacity: 2Gi}",
            "Queue",
        ),
        (
            "capacity shrinks",
            POD,
            "update CSIStorageCapacity x {storageClassName: c, capacity: 2Gi} => {storageClassName: c, capacity: 1Gi}",
            "Skip",
        ),
    ]);
}
