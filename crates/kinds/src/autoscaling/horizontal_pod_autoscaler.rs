//! HorizontalPodAutoscalers of both versions; they are read, but not served.

use serde_json::{Value, json};

use crate::defaulting::{child, child_or_new, default};
use crate::kind::{Kind, Scope};
use crate::object::Object;
use crate::strategy::{StatusRule, Strategy};

pub(crate) static V2: Kind = Kind {
    group: "autoscaling",
    version: "v2",
    kind: "HorizontalPodAutoscaler",
    scope: Scope::Namespaced,
    defaults: defaults_v2,
    strategy: Strategy { status: StatusRule::Owned, ..Strategy::PLAIN },
    ..Kind::PLAIN
};

pub(crate) static V1: Kind = Kind {
    group: "autoscaling",
    kind: "HorizontalPodAutoscaler",
    scope: Scope::Namespaced,
    defaults: defaults_v1,
    strategy: Strategy { status: StatusRule::Owned, ..Strategy::PLAIN },
    ..Kind::PLAIN
};

fn defaults_v1(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        default(spec, "minReplicas", 1);
    }
}

fn defaults_v2(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "minReplicas", 1);
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
