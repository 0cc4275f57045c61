//! Reads metrics: what pods use from `metrics.k8s.io`, the rest from adapters, if there are any.

use std::time::Duration;

use bayplan_model::api::{Api, ListOptions, Request, Resource, Verb, decode};
use bayplan_model::go_duration::GoDuration;
use bayplan_model::label_selector::{LabelSelector, Selector};
use bayplan_model::quantity::Quantity;
use bayplan_model::status::Status;
use jiff::Timestamp;
use serde::Deserialize;

use super::object::{MetricIdentifier, Reference};
use super::replicas::{PodMetric, PodMetrics};
use crate::discovery::Resources;

const POD_METRICS: Resource = Resource::new("metrics.k8s.io", "v1beta1", "pods");
const CUSTOM: &str = "custom.metrics.k8s.io";
const EXTERNAL: &str = "external.metrics.k8s.io";

/// Over how long an adapter measures that does not say.
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct List<T> {
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    metadata: bayplan_model::meta::ObjectMeta,
    timestamp: Timestamp,
    window: String,
    containers: Vec<ContainerUsage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerUsage {
    name: String,
    usage: std::collections::BTreeMap<String, Quantity>,
}

impl Usage {
    /// The use of a resource by all containers, or by one; none if one of them does not say.
    fn milli(&self, resource: &str, container: &str) -> Option<i64> {
        let of = |container: &ContainerUsage| container.usage.get(resource).map(Quantity::milli_value);
        if !container.is_empty() {
            return self.containers.iter().find(|known| known.name == container).and_then(of);
        }
        let all: Vec<i64> = self.containers.iter().map(of).collect::<Option<_>>()?;
        all.into_iter().reduce(i64::saturating_add)
    }

    fn window(&self) -> Duration {
        GoDuration::parse(&self.window).map_or(Duration::ZERO, GoDuration::unsigned)
    }
}

/// What an adapter says.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetricValue {
    described_object: Reference,
    timestamp: Option<Timestamp>,
    window_seconds: Option<u64>,
    window: Option<u64>,
    value: Quantity,
}

/// The metrics of one namespace.
pub(super) struct Metrics<'a> {
    pub(super) api: &'a dyn Api,
    pub(super) resources: &'a Resources,
    pub(super) namespace: &'a str,
}

impl Metrics<'_> {
    async fn list<T: for<'de> Deserialize<'de>>(&self, resource: &Resource, selector: &str) -> Result<Vec<T>, Status> {
        let options = ListOptions { label_selector: selector.to_owned(), ..ListOptions::default() };
        let answer = self.api.call(Request::collection(resource, self.namespace, Verb::List(options))).await?;
        decode::<List<T>>(&answer).map(|list| list.items.unwrap_or_default())
    }

    /// What the selected pods use of a resource.
    pub(super) async fn of_resource(
        &self,
        resource: &str,
        container: &str,
        selector: &Selector,
    ) -> Result<PodMetrics, String> {
        let wrapped = |why: String| format!("unable to get metrics for resource {resource}: {why}");
        let usages: Vec<Usage> = self.list(&POD_METRICS, &selector.to_string()).await.map_err(|status| {
            let why = said(&status, "pods", &POD_METRICS.group);
            wrapped(format!("unable to fetch metrics from resource metrics API: {why}"))
        })?;
        if usages.is_empty() {
            return Err(wrapped("no metrics returned from resource metrics API".to_owned()));
        }
        let metric = |usage: &Usage| {
            let milli = usage.milli(resource, container)?;
            let metric = PodMetric { time: usage.timestamp, window: usage.window(), milli };
            Some((usage.metadata.name.clone(), metric))
        };
        Ok(usages.iter().filter_map(metric).collect())
    }

    /// A metric of each of the selected pods.
    pub(super) async fn of_pods(&self, metric: &MetricIdentifier, selector: &Selector) -> Result<PodMetrics, String> {
        let values = self.custom(&format!("pods/%2A/{}", encoded(&metric.name)), metric, &selector.to_string()).await;
        let values = values.map_err(|why| format!("unable to get metric {}: {why}", metric.name))?;
        if values.is_empty() {
            let why = "no metrics returned from custom metrics API";
            return Err(format!("unable to get metric {}: {why}", metric.name));
        }
        let pods = values.into_iter().map(|value| {
            let window = value.window_seconds.or(value.window).map_or(WINDOW, Duration::from_secs);
            let time = value.timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
            (value.described_object.name, PodMetric { time, window, milli: value.value.milli_value() })
        });
        Ok(pods.collect())
    }

    /// A metric of an object, in thousandths.
    pub(super) async fn of_object(&self, metric: &MetricIdentifier, object: &Reference) -> Result<i64, String> {
        let Reference { kind, name, api_version } = object;
        // The words are upstream's, in its order.
        let wrapped =
            |why: String| format!("unable to get metric {}: {kind} on {} {name}/{why}", metric.name, self.namespace);
        let plural = match self.resources.of_kind(api_version, kind) {
            Some(known) if known.resource.group.is_empty() => known.resource.plural.to_string(),
            Some(known) => format!("{}.{}", known.resource.plural, known.resource.group),
            None => format!("{}s", kind.to_lowercase()),
        };
        let path = format!("{}/{}/{}", encoded(&plural), encoded(name), encoded(&metric.name));
        let values = self.custom(&path, metric, "").await.map_err(wrapped)?;
        let value = values.first().map(|value| value.value.milli_value());
        value.ok_or_else(|| {
            let nothing = "the custom metrics API server returned no results for metric";
            wrapped(format!("unable to fetch metrics from custom metrics API: {nothing} {}", metric.name))
        })
    }

    async fn custom(&self, path: &str, metric: &MetricIdentifier, selector: &str) -> Result<Vec<MetricValue>, String> {
        let prefix = "unable to fetch metrics from custom metrics API";
        let series = series(metric)?.to_string();
        let path = match series.is_empty() {
            true => path.to_owned(),
            false => format!("{path}?metricLabelSelector={}", encoded(&series)),
        };
        let resource = Resource { group: CUSTOM.into(), version: "v1beta2".into(), plural: path.into() };
        self.list(&resource, selector).await.map_err(|status| {
            if is_absent(&status) {
                return format!("{prefix}: no custom metrics API ({CUSTOM}) registered");
            }
            format!("{prefix}: {}", status.message)
        })
    }

    /// The sum of an external metric's series, in thousandths.
    pub(super) async fn of_external(&self, metric: &MetricIdentifier) -> Result<i64, String> {
        let MetricIdentifier { name, selector } = metric;
        let series = series(metric)?;
        let plural = encoded(name).into();
        let resource = Resource { group: EXTERNAL.into(), version: "v1beta1".into(), plural };
        let wrapped = |why: String| {
            format!("unable to get external metric {}/{name}/{}: {why}", self.namespace, shown(selector.as_ref()))
        };
        let values: Vec<MetricValue> = self.list(&resource, &series.to_string()).await.map_err(|status| {
            let why = said(&status, name, EXTERNAL);
            wrapped(format!("unable to fetch metrics from external metrics API: {why}"))
        })?;
        if values.is_empty() {
            return Err(wrapped("no metrics returned from external metrics API".to_owned()));
        }
        Ok(values.iter().fold(0_i64, |sum, value| sum.saturating_add(value.value.milli_value())))
    }
}

/// Which series of a metric count; all when it does not say.
fn series(metric: &MetricIdentifier) -> Result<Selector, String> {
    Selector::of(Some(&metric.selector.clone().unwrap_or_default())).map_err(|error| error.to_string())
}

/// True if there is nothing at all where metrics should be.
fn is_absent(status: &Status) -> bool {
    status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
}

/// What the server said, as client-go words it.
fn said(status: &Status, resource: &str, group: &str) -> String {
    if is_absent(status) {
        return format!("the server could not find the requested resource (get {resource}.{group})");
    }
    status.message.clone()
}

/// A label selector as Go prints it.
pub(super) fn shown(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels: String = selector.match_labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
    let requirement = |it: &bayplan_model::label_selector::LabelSelectorRequirement| {
        let values = it.values.join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", it.key, it.operator)
    };
    let expressions: String = selector.match_expressions.iter().map(requirement).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement\
         {{{expressions}}},}}"
    )
}

/// Text as one segment of a path.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
