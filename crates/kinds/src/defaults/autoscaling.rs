//! Horizontal pod autoscalers.

use serde_json::{Value, json};

use super::{Object, child, child_or_new, default};

pub(super) fn horizontal_pod_autoscaler(object: &mut Object, version: &str) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "minReplicas", 1);
    if version == "v1" {
        return;
    }
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
        spec.insert("metrics".into(), Value::Array(vec![metric]));
    }
    if let Some(behavior) = child(spec, "behavior") {
        let percent = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
        let pods = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
        if let Some(up) = child_or_new(behavior, "scaleUp") {
            default(up, "stabilizationWindowSeconds", 0);
            default(up, "selectPolicy", "Max");
            default(up, "policies", vec![pods, percent.clone()]);
        }
        if let Some(down) = child_or_new(behavior, "scaleDown") {
            default(down, "selectPolicy", "Max");
            default(down, "policies", vec![percent]);
        }
    }
}
