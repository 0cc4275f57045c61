//! What `kubectl get` prints.

use jiff::Timestamp;
use serde_json::Value;

use crate::object::{given, list, number, text};
use crate::printing::{age_of, name_of};

/// The metrics that are shown before the rest is only counted.
const SHOWN_MAX: usize = 2;

pub(super) fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let target = &spec["scaleTargetRef"];
    let min = if given(spec, "minReplicas") { number(spec, "minReplicas").to_string() } else { "<unset>".into() };
    vec![
        name_of(object),
        format!("{}/{}", text(target, "kind"), text(target, "name")).into(),
        metrics(list(spec, "metrics"), list(status, "currentMetrics")).into(),
        min.into(),
        number(spec, "maxReplicas").into(),
        number(status, "currentReplicas").into(),
        age_of(object, now),
    ]
}

fn metrics(wanted: &[Value], current: &[Value]) -> String {
    if wanted.is_empty() {
        return "<none>".to_owned();
    }
    let shown = wanted.iter().enumerate().take(SHOWN_MAX);
    let shown: Vec<String> = shown.map(|(index, metric)| one(metric, current.get(index))).collect();
    let shown = shown.join(", ");
    if wanted.len() > SHOWN_MAX { format!("{shown} + {} more...", wanted.len() - SHOWN_MAX) } else { shown }
}

fn one(metric: &Value, current: Option<&Value>) -> String {
    let field = match text(metric, "type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let target = &metric[field]["target"];
    // Statuses are looked up by position, and may be of another type.
    let status = current.map(|status| &status[field]).filter(|status| status.is_object());
    let value = |name: &str| match status.map(|status| &status["current"][name]) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(percent)) => format!("{percent}%"),
        _ => "<unknown>".to_owned(),
    };
    // Go prints a quantity that is not there as nothing.
    let raw = |name: &str| match status {
        Some(status) if given(&status["current"], name) => value(name),
        Some(_) => "<nil>".to_owned(),
        None => "<unknown>".to_owned(),
    };
    match field {
        "pods" => format!("{}/{}", raw("averageValue"), text(target, "averageValue")),
        "external" | "object" if given(target, "averageValue") => {
            format!("{}/{} (avg)", value("averageValue"), text(target, "averageValue"))
        }
        "external" | "object" => format!("{}/{}", raw("value"), text(target, "value")),
        _ => {
            let name = text(&metric[field], "name");
            if given(target, "averageValue") {
                return format!("{name}: {}/{}", raw("averageValue"), text(target, "averageValue"));
            }
            let wanted = match target["averageUtilization"].as_i64() {
                Some(percent) => format!("{percent}%"),
                None => "<auto>".to_owned(),
            };
            format!("{name}: {}/{wanted}", value("averageUtilization"))
        }
    }
}
