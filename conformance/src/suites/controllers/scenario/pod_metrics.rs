//! The API server as the controllers see it, with a metrics server beside it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bayplan_client::Client;
use bayplan_model::api::{Api, Request, Verb, encode};
use bayplan_model::label_selector::Selector;
use bayplan_model::status::{Status, reason};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};

use super::cluster::METRICS_GROUP;

/// The metrics that a scenario has set, by pod.
pub(super) struct PodMetrics {
    client: Client,
    pods: Mutex<BTreeMap<String, Value>>,
}

impl PodMetrics {
    /// No metrics yet, beside what this client reaches.
    pub(super) fn new(client: Client) -> Self {
        PodMetrics { client, pods: Mutex::default() }
    }

    /// Sets the metrics of a pod.
    pub(super) fn set(&self, name: &str, metrics: Value) {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into(), metrics);
    }

    fn list(&self, selector: &str) -> Result<Bytes, Status> {
        let refusal = |error| Status::failure(400, reason::BAD_REQUEST, format!("{error}"));
        let selector =
            Selector::parse(selector).map_err(|error: bayplan_model::label_selector::Error| refusal(error))?;
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let selected = |pod: &&Value| {
            let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
            let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
            let labels: BTreeMap<String, String> = labels.filter_map(pair).collect();
            selector.matches(&labels)
        };
        let items: Vec<&Value> = pods.values().filter(selected).collect();
        let list = json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetricsList", "metadata": {}, "items": items,
        });
        Ok(encode(&list))
    }
}

impl Api for PodMetrics {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        match &request.verb {
            Verb::List(options) if request.resource.group == METRICS_GROUP && request.resource.plural == "pods" => {
                ready(self.list(&options.label_selector)).boxed()
            }
            _ => self.client.call(request),
        }
    }
}
