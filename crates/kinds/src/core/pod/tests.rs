//! What a write of a pod may set, and what is wrong with one, in upstream's words.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::KIND;
use crate::codec::{self, FieldValidation};

fn problems(pod: Value) -> Vec<String> {
    let decoded = codec::canonical(KIND.group_version_kind(), pod, FieldValidation::Ignore).expect("it decodes");
    let mut pod = decoded.object;
    KIND.default(&mut pod);
    KIND.validate_create(&pod).iter().map(ToString::to_string).collect()
}

#[test]
fn a_new_pod_is_pending_with_its_quality_of_service() {
    let guaranteed =
        json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "1000m", "memory": "1Gi" } });
    let burstable = json!({ "requests": { "cpu": "1" } });
    for (resources, want) in [(guaranteed, "Guaranteed"), (burstable, "Burstable"), (json!({}), "BestEffort")] {
        let mut pod = json!({
            "metadata": { "generation": 42 },
            "spec": { "containers": [{ "name": "c", "resources": resources }] },
            "status": { "phase": "Running" },
        });
        KIND.prepare_for_create(&mut pod, Timestamp::UNIX_EPOCH);
        assert_eq!(pod["status"], json!({ "phase": "Pending", "qosClass": want }));
        assert_eq!(pod["metadata"]["generation"], 1);
    }
}

#[test]
fn gates_and_label_keys_are_worked_out_on_create() {
    let mut pod = json!({
        "metadata": { "labels": { "app": "a" } },
        "spec": {
            "containers": [], "schedulingGates": [{ "name": "g" }],
            "topologySpreadConstraints": [{ "labelSelector": {}, "matchLabelKeys": ["app", "none"] }],
        },
    });
    KIND.prepare_for_create(&mut pod, Timestamp::UNIX_EPOCH);
    assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
    assert_eq!(
        pod["spec"]["topologySpreadConstraints"][0]["labelSelector"],
        json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["a"] }] })
    );
}

#[test]
fn an_ordinary_pod_is_fine() {
    let pod = json!({
        "metadata": { "name": "p", "namespace": "default" },
        "spec": { "containers": [{ "name": "c", "image": "nginx" }] },
    });
    assert_eq!(problems(pod), Vec::<String>::new());
}

#[test]
fn what_is_wrong_is_said_with_its_path() {
    let pod = json!({
        "metadata": { "name": "p", "namespace": "default" },
        "spec": {
            "containers": [{ "name": "c" }, { "name": "c", "image": "a", "ports": [{ "containerPort": 70000 }] }],
            "tolerations": [{ "operator": "Equal" }],
        },
    });
    assert_eq!(
        problems(pod),
        [
            "spec.containers[0].image: Required value",
            "spec.containers[1].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "spec.containers[1].name: Duplicate value: \"c\"",
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, \
             which means \"match all values and all keys\"",
        ]
    );
}

#[test]
fn pods_keep_all_but_a_few_fields() {
    let metadata = json!({ "name": "p", "namespace": "n", "resourceVersion": "1" });
    let pod = |image: &str, node: &str| {
        json!({ "metadata": metadata, "spec": { "nodeName": node, "containers": [{ "name": "c", "image": image,
            "imagePullPolicy": "Always", "terminationMessagePolicy": "File" }], "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30, "dnsPolicy": "Default" } })
    };
    assert!(KIND.validate_update("", &pod("b", "n1"), &pod("a", "n1")).is_empty(), "images may change");
    let moved = KIND.validate_update("", &pod("a", "n2"), &pod("a", "n1"));
    assert_eq!(moved.len(), 1);
    assert!(moved[0].message.starts_with("Forbidden: pod updates may not change fields other than"));
}
