//! The part of kubelets and of the scheduler, which the recorder played: pods are chosen, bound, started and reaped.

use bayplan_model::api::{DeleteOptions, PatchKind, Request, Verb, encode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::cluster::Cluster;

/// Which pods an action is about. Terminating and terminal pods are left out unless asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct Select {
    pub(super) names: Option<Vec<String>>,
    pub(super) labels: serde_json::Map<String, Value>,
    pub(super) node: Option<String>,
    pub(super) image: Option<String>,
    pub(super) phase: Option<String>,
    pub(super) ready: Option<bool>,
    pub(super) count: Option<usize>,
    pub(super) terminating: bool,
    pub(super) any_state: bool,
}

impl Select {
    /// The pods, oldest first.
    pub(super) async fn pods(&self, cluster: &Cluster) -> Result<Vec<Value>, String> {
        let age =
            |pod: &Value| cluster.created.iter().position(|known| known.metadata["uid"] == pod["metadata"]["uid"]);
        let mut pods = cluster.list("pods").await?;
        pods.retain(|pod| self.selects(pod));
        pods.sort_by_key(age);
        pods.truncate(self.count.unwrap_or(usize::MAX));
        Ok(pods)
    }

    fn selects(&self, pod: &Value) -> bool {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is = |wanted: &Option<String>, value: &Value| wanted.as_ref().is_none_or(|wanted| *wanted == text(value));
        let in_state = match (self.any_state, self.terminating) {
            (_, true) => is_terminating(pod),
            (true, false) => true,
            (false, false) => !is_terminating(pod) && !is_terminal(pod),
        };
        in_state
            && self.names.as_ref().is_none_or(|names| names.contains(&text(&pod["metadata"]["name"])))
            && self.labels.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value)
            && self.node.as_ref().is_none_or(|node| node_of(pod) == Some(node))
            && is(&self.image, &pod["spec"]["containers"][0]["image"])
            && is(&self.phase, &pod["status"]["phase"])
            && self.ready.is_none_or(|ready| is_ready(pod) == ready)
    }
}

/// What a kubelet reports of a pod.
#[derive(Debug, Default)]
pub(super) struct Report<'a> {
    pub(super) phase: &'a str,
    /// Status of the conditions Ready and ContainersReady.
    pub(super) ready: Option<bool>,
    pub(super) start_offset: i64,
    pub(super) pod_ips: Option<&'a Value>,
    pub(super) restart_count: Option<i64>,
    pub(super) exit_code: Option<i64>,
    pub(super) conditions: Option<&'a Value>,
    pub(super) reason: Option<&'a str>,
}

impl Report<'_> {
    /// Writes the status of a pod.
    pub(super) async fn write(&self, cluster: &Cluster, pod: &Value) -> Result<(), String> {
        let mut pod = current(cluster, pod).await?;
        let now = cluster.second();
        pod["status"]["phase"] = json!(self.phase);
        if let Some(ready) = self.ready {
            let status = if ready { "True" } else { "False" };
            for kind in ["ContainersReady", "Ready"] {
                set_condition(&mut pod, json!({"type": kind, "status": status, "lastTransitionTime": now}));
            }
        }
        for condition in self.conditions.and_then(Value::as_array).into_iter().flatten() {
            let mut condition = condition.clone();
            condition["lastTransitionTime"] = json!(now);
            set_condition(&mut pod, condition);
        }
        if pod["status"]["startTime"].is_null() {
            let started = cluster.time() + jiff::SignedDuration::from_secs(self.start_offset);
            let second = jiff::Timestamp::from_second(started.as_second()).unwrap_or(started);
            pod["status"]["startTime"] = json!(second.to_string());
        }
        if let Some(addresses) = self.pod_ips.and_then(|known| known[text(&pod["metadata"]["name"])].as_array()) {
            let listed: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
            pod["status"]["podIP"] = addresses.first().cloned().unwrap_or_default();
            pod["status"]["podIPs"] = json!(listed);
            pod["status"]["hostIP"] = json!("192.168.0.1");
            pod["status"]["hostIPs"] = json!([{"ip": "192.168.0.1"}]);
        }
        if let Some(reason) = self.reason {
            pod["status"]["reason"] = json!(reason);
        }
        if let Some(state) = self.container_state() {
            // The recorder reported this image, whatever the pod asked for.
            let (name, image) = (&pod["spec"]["containers"][0]["name"], "i");
            let status = json!({
                "name": name, "image": image, "imageID": "", "lastState": {}, "ready": false,
                "restartCount": self.restart_count.unwrap_or_default(), "state": state,
            });
            pod["status"]["containerStatuses"] = json!([status]);
        }
        let request = pod_request(cluster, &pod, Verb::Update(encode(&pod)))?.subresource("status");
        cluster.call(request).await.map(drop).map_err(|status| status.to_string())
    }

    fn container_state(&self) -> Option<Value> {
        match (self.exit_code, self.restart_count) {
            (Some(code), _) => Some(json!({"terminated": {"exitCode": code, "startedAt": null, "finishedAt": null}})),
            (None, Some(_)) => Some(json!({"running": {"startedAt": null}})),
            (None, None) => None,
        }
    }
}

/// Binds a pod to a node, or to the one in its affinity. A pod that has a node stays there.
pub(super) async fn bind(cluster: &Cluster, pod: &Value, node: Option<&str>) -> Result<bool, String> {
    let Some(node) = node.or_else(|| affinity_node(pod)).filter(|_| text(&pod["spec"]["nodeName"]).is_empty()) else {
        return Ok(false);
    };
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let request = pod_request(cluster, pod, Verb::Create(encode(&binding)))?.subresource("binding");
    cluster.call(request).await.map_err(|status| status.to_string())?;
    Ok(true)
}

/// Deletes a pod.
pub(super) async fn delete(cluster: &Cluster, pod: &Value, grace: Option<i64>) -> Result<(), String> {
    let options = DeleteOptions { grace_period_seconds: grace, ..DeleteOptions::default() };
    let request = pod_request(cluster, pod, Verb::Delete(options))?;
    cluster.call(request).await.map(drop).map_err(|status| status.to_string())
}

/// Sets labels of a pod.
pub(super) async fn label(cluster: &Cluster, pod: &Value, labels: &Value) -> Result<(), String> {
    let patch = encode(&json!({"metadata": {"labels": labels}}));
    let request = pod_request(cluster, pod, Verb::Patch(PatchKind::Merge, patch))?;
    cluster.call(request).await.map(drop).map_err(|status| status.to_string())
}

fn pod_request(cluster: &Cluster, pod: &Value, verb: Verb) -> Result<Request, String> {
    let name = text(&pod["metadata"]["name"]);
    Ok(Request::object(&cluster.resource("pods")?, cluster.namespace, name, verb))
}

async fn current(cluster: &Cluster, pod: &Value) -> Result<Value, String> {
    let answer = cluster.call(pod_request(cluster, pod, Verb::Get)?).await.map_err(|status| status.to_string())?;
    serde_json::from_slice(&answer).map_err(|error| error.to_string())
}

/// Puts a condition first, in place of one of the same type: as the strategic patch of a kubelet does.
fn set_condition(pod: &mut Value, mut condition: Value) {
    condition["lastProbeTime"] = Value::Null;
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|known| known["type"] != condition["type"]);
    conditions.insert(0, condition);
    pod["status"]["conditions"] = json!(conditions);
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The node a pod runs on, or the one it asks for.
fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()).or_else(|| affinity_node(pod))
}

/// The node in the affinity of a DaemonSet's pod.
fn affinity_node(pod: &Value) -> Option<&str> {
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str()
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn is_terminating(pod: &Value) -> bool {
    pod["metadata"].get("deletionTimestamp").is_some()
}

fn is_terminal(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}
