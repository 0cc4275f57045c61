//! The horizontal pod autoscaler.

use std::sync::Arc;
use std::time::Duration;

use bayplan_controllers::horizontal_pod_autoscaler::normalize::{Finding, History, Proposal};
use bayplan_controllers::horizontal_pod_autoscaler::object::Behavior;
use bayplan_controllers::horizontal_pod_autoscaler::replicas::{
    PodMetric, PodMetrics, StartUp, Target, Tolerances, for_value_per_replica,
};
use bayplan_controllers::pod::Pod;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Outcome, Types, equal, parse};

pub(super) const TYPES: Types =
    &[("hpaReplicas", replicas), ("hpaUsageRatio", usage_ratio), ("hpaNormalize", normalize)];

/// The time of all computations.
fn now() -> Timestamp {
    Timestamp::from_second(1_780_000_000).unwrap_or_default()
}

/// The recorder computed a moment after it had written down the ages.
fn moment() -> Timestamp {
    now() + SignedDuration::from_millis(5)
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplicasInput {
    resource: String,
    current_replicas: i32,
    target_utilization: Option<i32>,
    target_average_milli: Option<i64>,
    tolerance_down: f64,
    tolerance_up: f64,
    cpu_initialization_period_seconds: u64,
    initial_readiness_delay_seconds: u64,
    pods: Option<Vec<PodInput>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodInput {
    name: String,
    phase: String,
    #[serde(default)]
    deleting: bool,
    #[serde(default)]
    ready_condition: String,
    #[serde(default)]
    ready_transition_seconds_ago: i64,
    start_seconds_ago: Option<i64>,
    request_milli: i64,
    metric_milli: Option<i64>,
    #[serde(default)]
    metric_seconds_ago: i64,
    #[serde(default)]
    window_seconds: u64,
}

impl PodInput {
    fn pod(&self, resource: &str) -> Value {
        let mut requests = json!({});
        if self.request_milli >= 0 {
            requests[resource] = json!(format!("{}m", self.request_milli));
        }
        let mut pod = json!({
            "metadata": {"name": self.name, "namespace": "ns"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": self.phase},
        });
        if self.deleting {
            pod["metadata"]["deletionTimestamp"] = json!(now());
        }
        if let Some(seconds) = self.start_seconds_ago {
            pod["status"]["startTime"] = json!(ago(seconds));
        }
        if !self.ready_condition.is_empty() {
            let since = ago(self.ready_transition_seconds_ago);
            let ready = json!({"type": "Ready", "status": self.ready_condition, "lastTransitionTime": since});
            pod["status"]["conditions"] = json!([ready]);
        }
        pod
    }

    fn metric(&self) -> Option<(String, PodMetric)> {
        let window = Duration::from_secs(self.window_seconds);
        let metric = PodMetric { time: ago(self.metric_seconds_ago), window, milli: self.metric_milli? };
        Some((self.name.clone(), metric))
    }
}

fn replicas(case: &Value) -> Outcome {
    let input: ReplicasInput = parse(&case["input"])?;
    let given = input.pods.unwrap_or_default();
    let mut pods: Vec<Arc<Pod>> = Vec::new();
    for pod in &given {
        pods.push(Arc::new(parse(&pod.pod(&input.resource))?));
    }
    let metrics: PodMetrics = given.iter().filter_map(PodInput::metric).collect();
    let target = Target {
        current: input.current_replicas,
        pods: &pods,
        tolerances: Tolerances { scale_down: input.tolerance_down, scale_up: input.tolerance_up },
        start_up: StartUp {
            cpu_initialization_period: Duration::from_secs(input.cpu_initialization_period_seconds),
            initial_readiness_delay: Duration::from_secs(input.initial_readiness_delay_seconds),
        },
        now: moment(),
    };
    let actual = match (input.target_utilization, input.target_average_milli) {
        (Some(percent), _) => target.for_utilization(metrics, &input.resource, "", percent).map(
            |answer| json!({"replicas": answer.replicas, "utilization": answer.percent, "rawMilli": answer.milli}),
        ),
        (None, average) => target
            .for_average(metrics, &input.resource, average.unwrap_or(0))
            .map(|(replicas, usage)| json!({"replicas": replicas, "usageMilli": usage})),
    };
    let expected = &case["expect"];
    match (actual, expected["error"].as_str()) {
        // If several pods lack a request, any of them may be named.
        (Err(why), Some(error)) if why.starts_with("missing request") && error.starts_with("missing request") => Ok(()),
        (Err(why), _) => equal(&json!({"error": why}), expected),
        (Ok(actual), _) => equal(&actual, expected),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsageRatioInput {
    current_replicas: i32,
    target_milli: i64,
    object_value_milli: i64,
    external_values_milli: Option<Vec<i64>>,
    pods: usize,
    ready_pods: usize,
    tolerance: f64,
}

fn usage_ratio(case: &Value) -> Outcome {
    let input: UsageRatioInput = parse(&case["input"])?;
    let mut pods: Vec<Arc<Pod>> = Vec::new();
    for index in 0..input.pods {
        let status = if index < input.ready_pods { "True" } else { "False" };
        let pod = json!({
            "metadata": {"name": format!("p{index}")},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]},
        });
        pods.push(Arc::new(parse(&pod)?));
    }
    let tolerances = Tolerances { scale_down: input.tolerance, scale_up: input.tolerance };
    let zero = Duration::ZERO;
    let target = Target {
        current: input.current_replicas,
        pods: &pods,
        tolerances,
        start_up: StartUp { cpu_initialization_period: zero, initial_readiness_delay: zero },
        now: moment(),
    };
    let external: i64 = input.external_values_milli.iter().flatten().sum();
    let mut actual = json!({});
    for (name, usage) in [("object", input.object_value_milli), ("external", external)] {
        actual[name] = match target.for_value(usage, input.target_milli) {
            Ok(replicas) => json!({"error": "<nil>", "replicas": replicas, "usageMilli": usage}),
            Err(why) => json!({"error": why}),
        };
        let (replicas, average) = for_value_per_replica(input.current_replicas, usage, input.target_milli, tolerances);
        // Nothing is recorded of a target without replicas.
        if case["expect"].get(format!("{name}PerPod")).is_some() {
            actual[format!("{name}PerPod")] = json!({"replicas": replicas, "usageMilli": average});
        }
    }
    equal(&actual, &case["expect"])
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NormalizeInput {
    current_replicas: i32,
    desired_replicas: i32,
    min_replicas: i32,
    max_replicas: i32,
    downscale_stabilization_seconds: u64,
    behavior: Option<Behavior>,
    recommendations: Option<Vec<Recorded>>,
    scale_up_events: Option<Vec<Recorded>>,
    scale_down_events: Option<Vec<Recorded>>,
}

/// A recommendation or a scale event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    #[serde(alias = "change", alias = "recommendation", alias = "replicas")]
    number: i32,
    seconds_ago: i64,
}

fn entries(recorded: Option<Vec<Recorded>>) -> Vec<(i32, Timestamp)> {
    recorded.into_iter().flatten().map(|entry| (entry.number, ago(entry.seconds_ago))).collect()
}

fn normalize(case: &Value) -> Outcome {
    let input: NormalizeInput = parse(&case["input"])?;
    let mut history = History {
        recommendations: entries(input.recommendations),
        ups: entries(input.scale_up_events),
        downs: entries(input.scale_down_events),
    };
    let normalized = history.normalize(Proposal {
        current: input.current_replicas,
        desired: input.desired_replicas,
        min: input.min_replicas,
        max: input.max_replicas,
        behavior: input.behavior.as_ref(),
        downscale_stabilization: Duration::from_secs(input.downscale_stabilization_seconds),
        now: moment(),
    });
    let condition = |kind: &str, (status, reason, message): Finding| {
        let status = if status { "True" } else { "False" };
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    };
    let conditions =
        [condition("AbleToScale", normalized.able_to_scale), condition("ScalingLimited", normalized.limited)];
    let actual = json!({
        "replicas": normalized.replicas, "conditions": conditions,
        "recommendationsKept": history.recommendations.len(),
    });
    equal(&actual, &case["expect"])
}
