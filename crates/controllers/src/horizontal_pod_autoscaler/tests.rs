use serde_json::{Value, json};

use super::*;
use crate::script::{ANY, Script, now, refused};

const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");

fn autoscaler(spec: Value) -> Value {
    let mut spec = spec;
    spec["scaleTargetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    spec["maxReplicas"] = json!(10);
    json!({"metadata": {"name": "h", "namespace": "ns"}, "spec": spec})
}

fn cpu(percent: i32) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn controller(autoscaler: &Value, pods: usize) -> HorizontalPodAutoscalerController {
    let cache = Arc::new(Cache::default());
    cache.set(Kind::Autoscaler, autoscaler.to_string().as_bytes()).unwrap();
    for index in 0..pods {
        let pod = json!({
            "metadata": {"name": format!("p{index}"), "namespace": "ns", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
            "status": {
                "phase": "Running", "startTime": "2020-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}],
            },
        });
        cache.set(Kind::Pod, pod.to_string().as_bytes()).unwrap();
    }
    let resources = Resources::default();
    let verbs = vec!["get".to_owned()];
    resources.replace(vec![ApiResource { resource: DEPLOYMENTS, kind: "Deployment".into(), namespaced: true, verbs }]);
    HorizontalPodAutoscalerController::new(cache, resources, AutoscalerConfig::default())
}

fn scale(replicas: i32) -> Result<Value, Answer> {
    let status = json!({"replicas": replicas, "selector": "app=web"});
    Ok(json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas}, "status": status}))
}

/// What each of two pods uses.
fn usage(milli: i64) -> Result<Value, Answer> {
    let pod = |name: &str| {
        json!({
            "metadata": {"name": name}, "timestamp": now(), "window": "30s",
            "containers": [{"name": "c", "usage": {"cpu": format!("{milli}m")}}],
        })
    };
    Ok(json!({"items": [pod("p0"), pod("p1")]}))
}

fn reasons(status: &Value) -> Vec<String> {
    let conditions = status["conditions"].as_array().unwrap();
    conditions.iter().map(|it| format!("{}={} {}", it["type"], it["status"], it["reason"]).replace('"', "")).collect()
}

/// The status after one round against a server that answers everything.
fn round(controller: &HorizontalPodAutoscalerController, replicas: i32, milli: i64) -> (Value, Vec<Value>) {
    use futures::FutureExt as _;
    let api = bayplan_testkit::FakeApi::new(move |request| match (&request.verb, request.subresource) {
        (Verb::Get, Some("scale")) => scale(replicas),
        (Verb::List(_), _) => usage(milli),
        _ => Ok(json!({})),
    });
    let context = Context { now: now(), api: &api, recorder: &api };
    drop(controller.sync("ns/h", context).now_or_never().unwrap());
    let bodies: Vec<Value> = api
        .calls()
        .iter()
        .filter_map(|request| match &request.verb {
            Verb::Update(body) => Some(serde_json::from_slice(body).unwrap()),
            _ => None,
        })
        .collect();
    let status = bodies.last().map(|body| body["status"].clone()).unwrap_or_default();
    (status, bodies)
}

#[test]
fn a_round_reads_scale_and_metrics_and_writes_scale_and_status() {
    let controller = controller(&autoscaler(json!({"metrics": [cpu(50)]})), 2);
    let script = Script::new(
        "up",
        [
            ("GET ns/deployments/web/scale", Value::Null, scale(2)),
            ("LIST ns/pods", Value::Null, usage(80)),
            ("PUT ns/deployments/web/scale", ANY, refused(409)),
            ("GET ns/deployments/web/scale", Value::Null, scale(3)),
            ("PUT ns/deployments/web/scale", ANY, Ok(json!({}))),
            ("PUT ns/horizontalpodautoscalers/h/status", ANY, Ok(json!({}))),
        ],
    );
    let again = script.play(&controller, "ns/h").unwrap();
    assert_eq!(again, Requeue::After(Duration::from_secs(15)));
    assert_eq!(script.events(), ["SuccessfulRescale"]);
}

#[test]
fn the_status_says_what_was_found_and_what_was_done() {
    let up = controller(&autoscaler(json!({"metrics": [cpu(50)]})), 2);
    let (status, bodies) = round(&up, 2, 80);
    assert_eq!(bodies[0]["spec"]["replicas"], 4);
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(2), &json!(4)));
    let current = json!({"averageUtilization": 80, "averageValue": "80m"});
    assert_eq!(
        status["currentMetrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}])
    );
    assert_eq!(
        reasons(&status),
        [
            "AbleToScale=True SucceededRescale",
            "ScalingActive=True ValidMetricFound",
            "ScalingLimited=False DesiredWithinRange"
        ]
    );
    // Fewer are needed a moment later, but were not a moment ago.
    let (status, bodies) = round(&up, 4, 10);
    assert_eq!((bodies.len(), &status["desiredReplicas"]), (1, &json!(4)));
    assert_eq!(reasons(&status)[0], "AbleToScale=True ScaleDownStabilized");
}

#[test]
fn bounds_come_before_metrics_and_zero_is_left_alone() {
    for (replicas, wanted, condition) in
        [(12, Some(10), "SucceededRescale"), (1, Some(2), "SucceededRescale"), (0, None, "SucceededGetScale")]
    {
        let controller = controller(&autoscaler(json!({"minReplicas": 2, "metrics": [cpu(50)]})), 2);
        let (status, bodies) = round(&controller, replicas, 80);
        let written = (bodies.len() > 1).then(|| bodies[0]["spec"]["replicas"].as_i64().unwrap());
        assert_eq!((written, status["conditions"][0]["reason"].as_str()), (wanted, Some(condition)), "{replicas}");
    }
}

#[test]
fn metrics_that_are_not_there_are_said_to_be_missing_as_upstream_says_it() {
    let metrics = json!([
        {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
        {"type": "External", "external": {
            "metric": {"name": "q", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "Value", "value": "30"},
        }},
    ]);
    let controller = controller(&autoscaler(json!({"metrics": metrics})), 2);
    let script = Script::new(
        "absent",
        [
            ("GET ns/deployments/web/scale", Value::Null, scale(2)),
            ("LIST ns/pods/%2A/rps", Value::Null, refused(404)),
            ("LIST ns/q", Value::Null, refused(404)),
            ("PUT ns/horizontalpodautoscalers/h/status", ANY, Ok(json!({}))),
        ],
    );
    let error = script.play(&controller, "ns/h").unwrap_err().to_string();
    assert!(error.ends_with(
        "invalid metrics (2 invalid out of 2), first error is: failed to get pods metric value: unable to get metric \
         rps: unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
    ));
    assert_eq!(script.events(), ["FailedGetPodsMetric", "FailedGetExternalMetric", "FailedComputeMetricsReplicas"]);
}

#[test]
fn series_of_custom_metrics_are_selected() {
    let labels = json!({"matchLabels": {"path": "a"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]});
    let rps = json!({"name": "rps", "selector": labels});
    let object = json!({"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"});
    let whole = json!({"type": "Value", "value": "10"});
    let metrics = json!([
        {"type": "Pods", "pods": {"metric": rps, "target": {"type": "AverageValue", "averageValue": "10"}}},
        {"type": "Object", "object": {"metric": rps, "describedObject": object, "target": whole}},
    ]);
    let controller = controller(&autoscaler(json!({"metrics": metrics})), 2);
    let script = Script::new(
        "selected",
        [
            ("GET ns/deployments/web/scale", Value::Null, scale(2)),
            ("LIST ns/pods/%2A/rps?metricLabelSelector=path%3Da%2Cx", Value::Null, refused(404)),
            ("LIST ns/deployments.apps/web/rps?metricLabelSelector=path%3Da%2Cx", Value::Null, refused(404)),
            ("PUT ns/horizontalpodautoscalers/h/status", ANY, Ok(json!({}))),
        ],
    );
    assert!(script.play(&controller, "ns/h").is_err(), "there is no such API");
}

#[test]
fn pods_of_two_autoscalers_are_scaled_by_neither() {
    let one = controller(&autoscaler(json!({"metrics": [cpu(50)]})), 2);
    lock(&one.memory).entry("ns/other".into()).or_default().selector = Some(Selector::parse("app").unwrap());
    let (status, _) = round(&one, 2, 80);
    let said = status["conditions"][1]["message"].as_str().unwrap();
    assert_eq!(said, "pods by selector app=web are controlled by multiple HPAs: [{h ns} {other ns}]");
}
