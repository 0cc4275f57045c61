//! `autoscaling/v1` and `autoscaling/v2`, each made of the other. What the first has no fields for is in annotations.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::annotations::{
    self, Amount, Behavior, Condition, ContainerResourceSource, ContainerResourceStatus, ExternalSource,
    ExternalStatus, MetricSpec, MetricStatus, ObjectSource, ObjectStatus, PodsSource, PodsStatus, Policy, Reference,
    ResourceSource, ResourceStatus, Rules, Selector,
};
use crate::object::{Object, given, list, number, text};

/// The target of an autoscaler that names none, in percent.
pub(super) const DEFAULT_CPU_UTILIZATION: i64 = 80;

/// The metric that the first version has a field for.
pub(super) fn cpu_utilization(percent: i64) -> Value {
    let target = json!({ "type": "Utilization", "averageUtilization": percent });
    json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } })
}

fn is_cpu(metric: &Value) -> bool {
    text(metric, "type") == "Resource" && text(&metric["resource"], "name") == "cpu"
}

fn is_cpu_utilization(metric: &Value) -> bool {
    is_cpu(metric) && given(&metric["resource"]["target"], "averageUtilization")
}

/// Turns an object of the second version into one of the first.
pub(super) fn to_v1(object: &mut Object) {
    annotations::drop(object, annotations::ALL);
    let spec = object.remove("spec").unwrap_or_default();
    let status = object.remove("status").unwrap_or_default();
    object.insert("spec".into(), spec_v1(&spec));
    object.insert("status".into(), status_v1(&status));
    let others: Vec<MetricSpec> =
        list(&spec, "metrics").iter().filter(|metric| !is_cpu_utilization(metric)).map(metric_spec_v1).collect();
    if !others.is_empty() {
        annotations::write(object, annotations::METRICS, &others);
    }
    if given(&spec, "behavior") {
        let rules =
            |direction: &str| Some(&spec["behavior"][direction]).filter(|rules| rules.is_object()).map(rules_v1);
        let behavior = Behavior { scale_up: rules("scaleUp"), scale_down: rules("scaleDown") };
        annotations::write(object, annotations::BEHAVIOR, &behavior);
    }
    let current: Vec<MetricStatus> = list(&status, "currentMetrics").iter().map(metric_status_v1).collect();
    if !current.is_empty() {
        annotations::write(object, annotations::CURRENT_METRICS, &current);
    }
    let conditions: Vec<Condition> = list(&status, "conditions").iter().map(condition_v1).collect();
    if !conditions.is_empty() {
        annotations::write(object, annotations::CONDITIONS, &conditions);
    }
}

/// Turns an object of the first version into one of the second, without its defaults.
pub(super) fn to_v2(object: &mut Object) {
    let spec = object.remove("spec").unwrap_or_default();
    let status = object.remove("status").unwrap_or_default();
    let mut metrics: Vec<Value> = Vec::new();
    if let Some(others) = annotations::read::<Vec<MetricSpec>>(object, annotations::METRICS) {
        metrics.extend(others.iter().map(metric_spec_v2));
    }
    if let Some(percent) = spec["targetCPUUtilizationPercentage"].as_i64() {
        metrics.push(cpu_utilization(percent));
    }
    if metrics.is_empty() {
        metrics.push(cpu_utilization(DEFAULT_CPU_UTILIZATION));
    }
    let mut made = kept(&spec, &["scaleTargetRef", "minReplicas", "maxReplicas"]);
    made.insert("metrics".into(), metrics.into());
    let behavior = annotations::read::<Behavior>(object, annotations::BEHAVIOR);
    if let Some(behavior) = behavior.filter(|behavior| behavior.scale_up.is_some() || behavior.scale_down.is_some()) {
        let directions = [("scaleUp", behavior.scale_up), ("scaleDown", behavior.scale_down)];
        let directions = directions.into_iter().filter_map(|(name, rules)| Some((name.to_owned(), rules_v2(&rules?))));
        made.insert("behavior".into(), Value::Object(directions.collect()));
    }
    object.insert("spec".into(), Value::Object(made));
    let status = status_v2(object, &status);
    object.insert("status".into(), status);
    annotations::drop(object, annotations::ALL);
}

/// The fields of these names, as they are.
fn kept(object: &Value, names: &[&str]) -> Map<String, Value> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), object.get(*name)?.clone()))).collect()
}

fn spec_v1(spec: &Value) -> Value {
    let mut made = kept(spec, &["scaleTargetRef", "minReplicas", "maxReplicas"]);
    if let Some(cpu) = list(spec, "metrics").iter().find(|metric| is_cpu_utilization(metric)) {
        let percent = &cpu["resource"]["target"]["averageUtilization"];
        made.insert("targetCPUUtilizationPercentage".into(), percent.clone());
    }
    Value::Object(made)
}

fn status_v1(status: &Value) -> Value {
    let mut made = kept(status, &["observedGeneration", "lastScaleTime"]);
    for field in ["currentReplicas", "desiredReplicas"] {
        made.insert(field.into(), number(status, field).into());
    }
    let cpu = list(status, "currentMetrics").iter().filter(|metric| is_cpu(metric));
    let mut percents = cpu.filter_map(|metric| metric["resource"]["current"]["averageUtilization"].as_i64());
    if let Some(percent) = percents.next_back() {
        made.insert("currentCPUUtilizationPercentage".into(), percent.into());
    }
    Value::Object(made)
}

fn status_v2(object: &Object, status: &Value) -> Value {
    let mut made = kept(status, &["observedGeneration", "lastScaleTime"]);
    made.insert("desiredReplicas".into(), number(status, "desiredReplicas").into());
    if number(status, "currentReplicas") != 0 {
        made.insert("currentReplicas".into(), number(status, "currentReplicas").into());
    }
    // The annotation says more than the field does.
    let annotated = annotations::read::<Vec<MetricStatus>>(object, annotations::CURRENT_METRICS);
    let current: Vec<Value> = match (annotated, status["currentCPUUtilizationPercentage"].as_i64()) {
        (Some(current), _) => current.iter().map(metric_status_v2).collect(),
        (None, Some(percent)) => {
            let current = json!({"name": "cpu", "current": {"averageUtilization": percent}});
            vec![json!({"type": "Resource", "resource": current})]
        }
        (None, None) => Vec::new(),
    };
    made.insert("currentMetrics".into(), if current.is_empty() { Value::Null } else { current.into() });
    let conditions: Vec<Condition> = annotations::read(object, annotations::CONDITIONS).unwrap_or_default();
    if !conditions.is_empty() {
        made.insert("conditions".into(), conditions.iter().map(condition_v2).collect());
    }
    Value::Object(made)
}

fn amount(object: &Value, field: &str) -> Option<Amount> {
    object[field].as_str().map(|text| Amount(text.to_owned()))
}

fn percent(object: &Value, field: &str) -> Option<i32> {
    object[field].as_i64().and_then(|percent| i32::try_from(percent).ok())
}

fn selector(metric: &Value) -> Option<Selector> {
    Some(&metric["selector"])
        .filter(|selector| selector.is_object())
        .map(|it| Selector::deserialize(it).unwrap_or_default())
}

fn reference(value: &Value) -> Reference {
    let text = |field: &str| text(value, field).to_owned();
    Reference { kind: text("kind"), name: text("name"), api_version: text("apiVersion") }
}

fn metric_spec_v1(metric: &Value) -> MetricSpec {
    let source = |field: &str| Some(&metric[field]).filter(|source| source.is_object());
    let name = |source: &Value, field: &str| text(source, field).to_owned();
    MetricSpec {
        source: name(metric, "type"),
        object: source("object").map(|it| ObjectSource {
            target: reference(&it["describedObject"]),
            metric_name: name(&it["metric"], "name"),
            target_value: amount(&it["target"], "value").unwrap_or_default(),
            selector: selector(&it["metric"]),
            average_value: amount(&it["target"], "averageValue"),
        }),
        pods: source("pods").map(|it| PodsSource {
            metric_name: name(&it["metric"], "name"),
            target_average_value: amount(&it["target"], "averageValue").unwrap_or_default(),
            selector: selector(&it["metric"]),
        }),
        resource: source("resource").map(|it| ResourceSource {
            name: name(it, "name"),
            target_average_utilization: percent(&it["target"], "averageUtilization"),
            target_average_value: amount(&it["target"], "averageValue"),
        }),
        container_resource: source("containerResource").map(|it| ContainerResourceSource {
            name: name(it, "name"),
            target_average_utilization: percent(&it["target"], "averageUtilization"),
            target_average_value: amount(&it["target"], "averageValue"),
            container: name(it, "container"),
        }),
        external: source("external").map(|it| ExternalSource {
            metric_name: name(&it["metric"], "name"),
            metric_selector: selector(&it["metric"]),
            target_value: amount(&it["target"], "value"),
            target_average_value: amount(&it["target"], "averageValue"),
        }),
    }
}

fn metric_status_v1(metric: &Value) -> MetricStatus {
    let source = |field: &str| Some(&metric[field]).filter(|source| source.is_object());
    let name = |source: &Value, field: &str| text(source, field).to_owned();
    MetricStatus {
        source: name(metric, "type"),
        object: source("object").map(|it| ObjectStatus {
            target: reference(&it["describedObject"]),
            metric_name: name(&it["metric"], "name"),
            current_value: amount(&it["current"], "value").unwrap_or_default(),
            selector: selector(&it["metric"]),
            average_value: amount(&it["current"], "averageValue"),
        }),
        pods: source("pods").map(|it| PodsStatus {
            metric_name: name(&it["metric"], "name"),
            current_average_value: amount(&it["current"], "averageValue").unwrap_or_default(),
            selector: selector(&it["metric"]),
        }),
        resource: source("resource").map(|it| ResourceStatus {
            name: name(it, "name"),
            current_average_utilization: percent(&it["current"], "averageUtilization"),
            current_average_value: amount(&it["current"], "averageValue").unwrap_or_default(),
        }),
        container_resource: source("containerResource").map(|it| ContainerResourceStatus {
            name: name(it, "name"),
            current_average_utilization: percent(&it["current"], "averageUtilization"),
            current_average_value: amount(&it["current"], "averageValue").unwrap_or_default(),
            container: name(it, "container"),
        }),
        external: source("external").map(|it| ExternalStatus {
            metric_name: name(&it["metric"], "name"),
            metric_selector: selector(&it["metric"]),
            current_value: amount(&it["current"], "value").unwrap_or_default(),
            current_average_value: amount(&it["current"], "averageValue"),
        }),
    }
}

/// An object without the fields that have no value.
fn present(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

fn identifier(name: &str, selector: Option<&Selector>) -> Value {
    present(json!({"name": name, "selector": selector}))
}

fn reference_v2(reference: &Reference) -> Value {
    json!(reference)
}

fn metric_spec_v2(metric: &MetricSpec) -> Value {
    // A value is a target of its own, unless there is an average; the first version writes zero for none.
    let object = metric.object.as_ref().map(|it| {
        let is_average = it.average_value.is_some();
        let value = Some(&it.target_value).filter(|value| !is_average || value.0 != "0");
        let kind = if is_average { "AverageValue" } else { "Value" };
        json!({
            "describedObject": reference_v2(&it.target), "metric": identifier(&it.metric_name, it.selector.as_ref()),
            "target": present(json!({"type": kind, "value": value, "averageValue": it.average_value})),
        })
    });
    let pods = metric.pods.as_ref().map(|it| {
        json!({
            "metric": identifier(&it.metric_name, it.selector.as_ref()),
            "target": {"type": "AverageValue", "averageValue": it.target_average_value},
        })
    });
    let of_resource = |utilization: Option<i32>, average: &Option<Amount>| {
        let kind = if utilization.is_none() { "AverageValue" } else { "Utilization" };
        present(json!({"type": kind, "averageUtilization": utilization, "averageValue": average}))
    };
    let resource = metric.resource.as_ref().map(
        |it| json!({"name": it.name, "target": of_resource(it.target_average_utilization, &it.target_average_value)}),
    );
    let container = metric.container_resource.as_ref().map(|it| {
        let target = of_resource(it.target_average_utilization, &it.target_average_value);
        json!({"name": it.name, "container": it.container, "target": target})
    });
    let external = metric.external.as_ref().map(|it| {
        let kind = if it.target_value.is_none() { "AverageValue" } else { "Value" };
        let target = json!({"type": kind, "value": it.target_value, "averageValue": it.target_average_value});
        json!({"metric": identifier(&it.metric_name, it.metric_selector.as_ref()), "target": present(target)})
    });
    present(json!({
        "type": metric.source, "object": object, "pods": pods, "resource": resource, "containerResource": container,
        "external": external,
    }))
}

fn metric_status_v2(metric: &MetricStatus) -> Value {
    let object = metric.object.as_ref().map(|it| {
        json!({
            "describedObject": reference_v2(&it.target), "metric": identifier(&it.metric_name, it.selector.as_ref()),
            "current": present(json!({"value": it.current_value, "averageValue": it.average_value})),
        })
    });
    let pods = metric.pods.as_ref().map(|it| {
        json!({
            "metric": identifier(&it.metric_name, it.selector.as_ref()),
            "current": {"averageValue": it.current_average_value},
        })
    });
    // The first version writes zero for none here, too.
    let of_resource = |utilization: Option<i32>, average: &Amount| {
        let average = Some(average).filter(|average| utilization.is_none() || average.0 != "0");
        present(json!({"averageUtilization": utilization, "averageValue": average}))
    };
    let resource = metric.resource.as_ref().map(|it| {
        json!({"name": it.name, "current": of_resource(it.current_average_utilization, &it.current_average_value)})
    });
    let container = metric.container_resource.as_ref().map(|it| {
        let current = of_resource(it.current_average_utilization, &it.current_average_value);
        json!({"name": it.name, "container": it.container, "current": current})
    });
    let external = metric.external.as_ref().map(|it| {
        let current = json!({"value": it.current_value, "averageValue": it.current_average_value});
        json!({"metric": identifier(&it.metric_name, it.metric_selector.as_ref()), "current": present(current)})
    });
    present(json!({
        "type": metric.source, "object": object, "pods": pods, "resource": resource, "containerResource": container,
        "external": external,
    }))
}

fn condition_v1(condition: &Value) -> Condition {
    let text = |field: &str| text(condition, field).to_owned();
    Condition {
        kind: text("type"),
        status: text("status"),
        last_transition_time: condition["lastTransitionTime"].clone(),
        reason: text("reason"),
        message: text("message"),
    }
}

fn condition_v2(condition: &Condition) -> Value {
    let mut made = json!({
        "type": condition.kind, "status": condition.status, "lastTransitionTime": condition.last_transition_time,
    });
    for (field, text) in [("reason", &condition.reason), ("message", &condition.message)] {
        if !text.is_empty() {
            made[field] = text.as_str().into();
        }
    }
    made
}

fn rules_v1(rules: &Value) -> Rules {
    let policy = |policy: &Value| Policy {
        kind: text(policy, "type").to_owned(),
        value: percent(policy, "value").unwrap_or_default(),
        period_seconds: percent(policy, "periodSeconds").unwrap_or_default(),
    };
    Rules {
        stabilization_window_seconds: percent(rules, "stabilizationWindowSeconds"),
        select_policy: rules["selectPolicy"].as_str().map(str::to_owned),
        policies: rules["policies"].as_array().map(|policies| policies.iter().map(policy).collect()),
        tolerance: amount(rules, "tolerance"),
    }
}

fn rules_v2(rules: &Rules) -> Value {
    let policy =
        |policy: &Policy| json!({"type": policy.kind, "value": policy.value, "periodSeconds": policy.period_seconds});
    let policies = rules.policies.as_ref().filter(|policies| !policies.is_empty());
    present(json!({
        "stabilizationWindowSeconds": rules.stabilization_window_seconds,
        "selectPolicy": rules.select_policy,
        "policies": policies.map(|policies| policies.iter().map(policy).collect::<Value>()),
        "tolerance": rules.tolerance,
    }))
}
