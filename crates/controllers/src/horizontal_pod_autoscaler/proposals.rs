//! What the metrics of an autoscaler ask for, all together.

use bayplan_model::label_selector::Selector;
use bayplan_model::quantity::Quantity;
use serde_json::{Value, json};

use super::metrics::{Metrics, shown};
use super::object::{MetricSource, MetricSpec, ResourceSource};
use super::replicas::{Target, for_value_per_replica};
use super::{HorizontalPodAutoscalerController, Round, Scale, lock};
use crate::controller::split_key;

/// What the metrics ask for.
pub(super) struct Proposed {
    /// What they are; none if none was looked at.
    pub(super) statuses: Option<Vec<Value>>,
    /// The most replicas that one of them asks for and that one's name, or why none is believed.
    pub(super) outcome: Result<(i32, String), String>,
}

/// What one metric asks for.
struct Found {
    replicas: i32,
    name: String,
    status: Value,
}

/// Why one metric asks for nothing: what an event and a condition say, and what the error in the end says.
struct Failure {
    reason: &'static str,
    why: String,
    error: String,
}

impl Failure {
    fn new(reason: &'static str, prefix: &str, why: String) -> Failure {
        Failure { reason, error: format!("{prefix}{why}"), why }
    }
}

impl HorizontalPodAutoscalerController {
    pub(super) async fn propose(&self, round: &mut Round<'_>, scale: &Scale) -> Proposed {
        let selector = match self.selector(round, &scale.selector) {
            Ok(selector) => selector,
            Err(why) => return Proposed { statuses: None, outcome: Err(why) },
        };
        let specs = round.autoscaler.spec.metrics.as_deref().unwrap_or_default();
        let mut statuses = Vec::with_capacity(specs.len());
        let (mut best, mut failures): (Option<(i32, String)>, Vec<Failure>) = (None, Vec::new());
        for spec in specs {
            match self.metric(round, scale, &selector, spec).await {
                Ok(found) => {
                    statuses.push(found.status);
                    if best.as_ref().is_none_or(|(most, _)| *most == 0 || found.replicas > *most) {
                        best = Some((found.replicas, found.name));
                    }
                }
                Err(failure) => {
                    // Upstream leaves an empty status in its place.
                    statuses.push(json!({"type": ""}));
                    round.warn(failure.reason, failure.why.clone());
                    failures.push(failure);
                }
            }
        }
        let (replicas, name) = best.unwrap_or_default();
        let shrinks = replicas < scale.spec_replicas;
        let outcome = match failures.first() {
            Some(first) if failures.len() == specs.len() || shrinks => {
                let message = format!("the HPA was unable to compute the replica count: {}", first.why);
                round.set("ScalingActive", false, first.reason, message);
                let (count, all) = (failures.len(), specs.len());
                Err(format!("invalid metrics ({count} invalid out of {all}), first error is: {}", first.error))
            }
            _ => {
                let message = format!("the HPA was able to successfully calculate a replica count from {name}");
                round.set("ScalingActive", true, "ValidMetricFound", message);
                Ok((replicas, name))
            }
        };
        Proposed { statuses: Some(statuses), outcome }
    }

    /// The selector of the target's pods, which no other autoscaler's target may share.
    fn selector(&self, round: &mut Round<'_>, text: &str) -> Result<Selector, String> {
        if text.is_empty() {
            let why = "selector is required";
            round.warn("SelectorRequired", why.to_owned());
            let message = "the HPA target's scale is missing a selector";
            round.set("ScalingActive", false, "InvalidSelector", message.to_owned());
            return Err(why.to_owned());
        }
        let selector = Selector::parse(text).map_err(|error| {
            let why = format!("couldn't convert selector into a corresponding internal selector object: {error}");
            round.warn("InvalidSelector", why.clone());
            round.set("ScalingActive", false, "InvalidSelector", why.clone());
            why
        })?;
        let namespace = round.autoscaler.metadata.namespace.as_str();
        let pods = self.pods(namespace, &selector);
        let mut memory = lock(&self.memory);
        memory.entry(round.key.to_owned()).or_default().selector = Some(selector.clone());
        let sharing: Vec<String> = memory
            .iter()
            .filter(|(key, known)| {
                let selects = |selector: &Selector| pods.iter().any(|pod| selector.matches(&pod.metadata.labels));
                split_key(key).0 == namespace && known.selector.as_ref().is_some_and(selects)
            })
            .map(|(key, _)| format!("{{{} {namespace}}}", split_key(key).1))
            .collect();
        drop(memory);
        if sharing.len() > 1 {
            let why = format!("pods by selector {text} are controlled by multiple HPAs: [{}]", sharing.join(" "));
            round.warn("AmbiguousSelector", why.clone());
            round.set("ScalingActive", false, "AmbiguousSelector", why.clone());
            return Err(why);
        }
        Ok(selector)
    }

    async fn metric(
        &self,
        round: &Round<'_>,
        scale: &Scale,
        selector: &Selector,
        spec: &MetricSpec,
    ) -> Result<Found, Failure> {
        let namespace = round.autoscaler.metadata.namespace.as_str();
        let metrics = Metrics { api: round.context.api, resources: &self.resources, namespace };
        let pods = self.pods(namespace, selector);
        let target = Target {
            current: scale.spec_replicas,
            pods: &pods,
            tolerances: self.tolerances(round.behavior()),
            start_up: self.start_up(),
            now: round.context.now,
        };
        match (spec.source.as_str(), spec) {
            ("Resource", MetricSpec { resource: Some(source), .. }) => {
                let found = of_resource(&metrics, &target, selector, source, "").await.map_err(|why| {
                    let prefix = format!("failed to get {} resource metric value: ", source.name);
                    Failure::new("FailedGetResourceMetric", &prefix, why)
                })?;
                let (replicas, name, current) = found;
                let status = json!({"type": "Resource", "resource": {"name": source.name, "current": current}});
                Ok(Found { replicas, name, status })
            }
            ("ContainerResource", MetricSpec { container_resource: Some(source), .. }) => {
                let found =
                    of_resource(&metrics, &target, selector, source, &source.container).await.map_err(|why| {
                        let prefix = format!("failed to get {} container metric value: ", source.container);
                        Failure::new("FailedGetContainerResourceMetric", &prefix, why)
                    })?;
                let (replicas, name, current) = found;
                let resource = json!({"name": source.name, "container": source.container, "current": current});
                let status = json!({"type": "ContainerResource", "containerResource": resource});
                Ok(Found { replicas, name, status })
            }
            ("Pods", MetricSpec { pods: Some(source), .. }) => of_pods(&metrics, &target, selector, source)
                .await
                .map_err(|why| Failure::new("FailedGetPodsMetric", "failed to get pods metric value: ", why)),
            ("Object", MetricSpec { object: Some(source), .. }) => {
                of_object(&metrics, &target, scale.status_replicas, source).await
            }
            ("External", MetricSpec { external: Some(source), .. }) => {
                of_external(&metrics, &target, scale.status_replicas, source).await
            }
            (source, _) => {
                let why = format!("unknown metric source type {source:?}");
                Err(Failure::new("InvalidMetricSourceType", "", why))
            }
        }
    }
}

type PodsTarget<'a> = Target<'a, std::sync::Arc<crate::pod::Pod>>;

/// Thousandths as the API writes them.
fn decimal(milli: i64) -> String {
    format!("{milli}m").parse::<Quantity>().unwrap_or_default().to_string()
}

/// Thousandths of a resource as the API writes them: bytes of memory by powers of two.
fn amount(resource: &str, milli: i64) -> String {
    const KIBI: i64 = 1024;
    let whole = milli / 1000 + i64::from(milli % 1000 > 0);
    if resource != "memory" || whole.saturating_abs() < KIBI {
        return decimal(milli);
    }
    if whole % KIBI != 0 {
        return whole.to_string();
    }
    format!("{}Ki", whole / KIBI).parse::<Quantity>().unwrap_or_default().to_string()
}

async fn of_resource(
    metrics: &Metrics<'_>,
    target: &PodsTarget<'_>,
    selector: &Selector,
    source: &ResourceSource,
    container: &str,
) -> Result<(i32, String, Value), String> {
    let name = &source.name;
    if let Some(wanted) = &source.target.average_value {
        let failed = |why: String| format!("failed to get {name} usage: {why}");
        let found = metrics.of_resource(name, container, selector).await.map_err(failed)?;
        let (replicas, usage) = target.for_average(found, name, wanted.milli_value()).map_err(failed)?;
        return Ok((replicas, format!("{name} resource"), json!({"averageValue": amount(name, usage)})));
    }
    let Some(wanted) = source.target.average_utilization else {
        return Err("invalid resource metric source: neither an average utilization target nor an average value \
                    (usage) target was set"
            .to_owned());
    };
    let failed = |why: String| format!("failed to get {name} utilization: {why}");
    let found = metrics.of_resource(name, container, selector).await.map_err(failed)?;
    let answer = target.for_utilization(found, name, container, wanted).map_err(failed)?;
    let of_container = if container.is_empty() { "" } else { "container " };
    let metric = format!("{name} {of_container}resource utilization (percentage of request)");
    let current = json!({"averageUtilization": answer.percent, "averageValue": amount(name, answer.milli)});
    Ok((answer.replicas, metric, current))
}

async fn of_pods(
    metrics: &Metrics<'_>,
    target: &PodsTarget<'_>,
    selector: &Selector,
    source: &MetricSource,
) -> Result<Found, String> {
    let found = metrics.of_pods(&source.metric, selector).await?;
    let wanted = source.target.average_value.as_ref().map_or(0, Quantity::milli_value);
    let (replicas, usage) = target.for_average(found, "", wanted)?;
    let current = json!({"metric": source.metric, "current": {"averageValue": decimal(usage)}});
    let name = format!("pods metric {}", source.metric.name);
    Ok(Found { replicas, name, status: json!({"type": "Pods", "pods": current}) })
}

async fn of_object(
    metrics: &Metrics<'_>,
    target: &PodsTarget<'_>,
    status_replicas: i32,
    source: &MetricSource,
) -> Result<Found, Failure> {
    let failed = |why| Failure::new("FailedGetObjectMetric", "failed to get object metric value: ", why);
    let name = &source.metric.name;
    let wanted = &source.target;
    let status = |current: Value| {
        let object = json!({"describedObject": source.described_object, "metric": source.metric, "current": current});
        json!({"type": "Object", "object": object})
    };
    match (wanted.kind.as_str(), &wanted.value, &wanted.average_value) {
        ("Value", Some(value), _) => {
            let usage = metrics.of_object(&source.metric, &source.described_object).await.map_err(failed)?;
            let replicas = target.for_value(usage, value.milli_value()).map_err(failed)?;
            let name = format!("{} metric {name}", source.described_object.kind);
            Ok(Found { replicas, name, status: status(json!({"value": decimal(usage)})) })
        }
        ("AverageValue", _, Some(value)) => {
            let prefix = format!("failed to get object metric value: failed to get {name} object metric: ");
            let usage = metrics.of_object(&source.metric, &source.described_object).await;
            let usage = usage.map_err(|why| Failure::new("FailedGetObjectMetric", &prefix, why))?;
            let (replicas, usage) =
                for_value_per_replica(status_replicas, usage, value.milli_value(), target.tolerances);
            let name = format!("external metric {name}({})", shown(source.metric.selector.as_ref()));
            Ok(Found { replicas, name, status: status(json!({"averageValue": decimal(usage)})) })
        }
        _ => Err(failed(
            "invalid object metric source: neither a value target nor an average value target was set".to_owned(),
        )),
    }
}

async fn of_external(
    metrics: &Metrics<'_>,
    target: &PodsTarget<'_>,
    status_replicas: i32,
    source: &MetricSource,
) -> Result<Found, Failure> {
    let metric = &source.metric.name;
    let failed = |how: String| {
        let prefix = format!("failed to get {metric} external metric value: {how}");
        move |why: String| Failure::new("FailedGetExternalMetric", &prefix, why)
    };
    let name = format!("external metric {metric}({})", shown(source.metric.selector.as_ref()));
    let found = |replicas, current: Value| {
        let external = json!({"metric": source.metric, "current": current});
        Found { replicas, name: name.clone(), status: json!({"type": "External", "external": external}) }
    };
    if let Some(value) = &source.target.average_value {
        let how = format!("failed to get {metric} external metric: ");
        let usage = metrics.of_external(&source.metric).await.map_err(failed(how))?;
        let (replicas, usage) = for_value_per_replica(status_replicas, usage, value.milli_value(), target.tolerances);
        return Ok(found(replicas, json!({"averageValue": decimal(usage)})));
    }
    if let Some(value) = &source.target.value {
        let how = format!("failed to get external metric {metric}: ");
        let usage = metrics.of_external(&source.metric).await.map_err(failed(how.clone()))?;
        let replicas = target.for_value(usage, value.milli_value()).map_err(failed(how))?;
        return Ok(found(replicas, json!({"value": decimal(usage)})));
    }
    let why = "invalid external metric source: neither a value target nor an average value target was set";
    Err(failed(String::new())(why.to_owned()))
}
