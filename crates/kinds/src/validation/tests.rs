//! Rules in upstream's words.

use serde_json::json;

use super::*;
use crate::defaults;

fn problems(group: &'static str, kind: &'static str, object: Value) -> Vec<String> {
    let kind = Kind { group, version: "v1", kind };
    let mut object =
        crate::codec::canonical(kind, object, crate::codec::FieldValidation::Ignore).expect("it decodes").object;
    defaults::apply_kind(kind, &mut object);
    create_kind(kind, true, &object).iter().map(ToString::to_string).collect()
}

#[test]
fn an_ordinary_pod_is_fine() {
    let pod = json!({
        "metadata": { "name": "p", "namespace": "default" },
        "spec": { "containers": [{ "name": "c", "image": "nginx" }] },
    });
    assert_eq!(problems("", "Pod", pod), Vec::<String>::new());
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
        problems("", "Pod", pod),
        [
            "spec.containers[0].image: Required value",
            "spec.containers[1].name: Duplicate value: \"c\"",
            "spec.containers[1].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which \
             means \"match all values and all keys\"",
        ]
    );
}

#[test]
fn a_selector_must_find_the_template() {
    let deployment = json!({
        "metadata": { "name": "d", "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": "a" } },
            "template": {
                "metadata": { "labels": { "app": "b" } },
                "spec": { "containers": [{ "name": "c", "image": "nginx" }] },
            },
        },
    });
    assert_eq!(
        problems("apps", "Deployment", deployment),
        ["spec.template.metadata.labels: Invalid value: {\"app\":\"b\"}: `selector` does not match template `labels`"]
    );
}

#[test]
fn pods_keep_all_but_a_few_fields() {
    let kind = Kind { group: "", version: "v1", kind: "Pod" };
    let metadata = json!({ "name": "p", "namespace": "n", "resourceVersion": "1" });
    let pod = |image: &str, node: &str| {
        json!({ "metadata": metadata, "spec": { "nodeName": node, "containers": [{ "name": "c", "image": image,
            "imagePullPolicy": "Always", "terminationMessagePolicy": "File" }], "restartPolicy": "Always",
            "dnsPolicy": "Default" } })
    };
    assert!(update_kind(kind, "", &pod("b", "n1"), &pod("a", "n1")).is_empty(), "images may change");
    let moved = update_kind(kind, "", &pod("a", "n2"), &pod("a", "n1"));
    assert_eq!(moved.len(), 1);
    assert!(moved[0].message.starts_with("Forbidden: pod updates may not change fields other than"));
}
