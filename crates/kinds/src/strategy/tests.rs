//! What a write may set, kind by kind.

use serde_json::json;

use super::*;
use crate::resources::find_kind;

fn strategy(group: &str, kind: &str) -> &'static dyn Strategy {
    of_kind(Kind { group, version: "v1", kind })
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
        strategy("", "Pod").prepare_for_create(&mut pod, Timestamp::UNIX_EPOCH);
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
    strategy("", "Pod").prepare_for_create(&mut pod, Timestamp::UNIX_EPOCH);
    assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
    assert_eq!(
        pod["spec"]["topologySpreadConstraints"][0]["labelSelector"],
        json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["a"] }] })
    );
}

#[test]
fn status_and_spec_are_written_through_their_own_endpoints_only() {
    let old = json!({
        "metadata": { "generation": 3, "labels": { "a": "1" } }, "spec": { "replicas": 1 }, "status": { "replicas": 1 },
    });
    let new = json!({
        "metadata": { "generation": 3, "labels": { "b": "2" } }, "spec": { "replicas": 2 }, "status": { "replicas": 5 },
    });
    let deployments = strategy("apps", "Deployment");
    let mut main = new.clone();
    deployments.prepare_for_update(&mut main, &old, "", Timestamp::UNIX_EPOCH);
    assert_eq!((&main["status"], &main["spec"]), (&old["status"], &new["spec"]));
    assert_eq!(main["metadata"]["generation"], 4);
    let mut status = new.clone();
    deployments.prepare_for_update(&mut status, &old, "status", Timestamp::UNIX_EPOCH);
    assert_eq!((&status["status"], &status["spec"]), (&new["status"], &old["spec"]));
    assert_eq!(status["metadata"], old["metadata"], "labels are restored, the generation stays");
}

#[test]
fn fields_are_selected_by_in_upstreams_words() {
    let check = |group: &str, kind: &str, label: &'static str| {
        check_field_label(find_kind(group, "v1", kind).expect("it is served"), label)
    };
    assert_eq!(check("", "Pod", "spec.host"), Ok("spec.nodeName"));
    assert_eq!(check("events.k8s.io", "Event", "regarding.name"), Ok("involvedObject.name"));
    assert_eq!(check("", "Pod", "spec.bogus"), Err("field label not supported: spec.bogus".to_owned()));
    assert_eq!(
        check("events.k8s.io", "Event", "involvedObject.name"),
        Err("field label not supported: involvedObject.name".to_owned())
    );
    assert_eq!(
        check("apps", "Deployment", "spec.bogus"),
        Err(r#""spec.bogus" is not a known field selector: only "metadata.name", "metadata.namespace""#.to_owned())
    );
    let node = json!({ "metadata": { "name": "n" }, "spec": {} });
    assert_eq!(strategy("", "Node").field_value(&node, "spec.unschedulable"), Some("false".to_owned()));
}
