//! What a user or the fake kubelet does in a step.

use std::time::Duration;

use bayplan_model::api::{DeleteOptions, PatchKind, Request, Verb, encode};
use bayplan_model::status::Status;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::cluster::Cluster;
use super::names::Names;

/// One action.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Action {
    #[serde(rename = "type")]
    kind: String,
    resource: String,
    name: String,
    object: Value,
    patch: Value,
    patch_type: String,
    subresource: String,
    propagation_policy: Option<String>,
    status: Option<u16>,
    mode: String,
    count: Option<usize>,
    replica_set: Option<String>,
    labels: Value,
    node: String,
    seconds: u64,
}

/// The number of rounds after which pods that are not ready never will be.
const READY_ROUNDS_MAX: usize = 200;

/// The HTTP status of a call, if there was one.
type Answer = Result<Option<u16>, String>;

impl Action {
    /// Its name in reports.
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// The recorded HTTP status, where there was a call.
    pub(super) fn status(&self) -> Option<u16> {
        self.status
    }

    /// Runs the action and lets the controllers settle; returns the HTTP status of a call.
    pub(super) async fn take(&self, cluster: &mut Cluster) -> Answer {
        let mut status = None;
        match self.kind.as_str() {
            "create" => status = self.create(cluster).await?,
            "patch" => status = self.patch(cluster).await?,
            "delete" => status = self.delete(cluster).await?,
            "markReady" if self.mode == "repeatUntilAllReady" => return self.mark_all_ready(cluster).await,
            "markReady" => drop(self.mark_ready(cluster).await?),
            "markNotReady" => self.set_status(cluster, is_ready, &readiness(cluster, "False")).await?,
            "markFailed" => {
                let mut failed = readiness(cluster, "False");
                failed["status"]["phase"] = json!("Failed");
                self.set_status(cluster, |pod| !is_terminal(pod), &failed).await?;
            }
            "deletePods" => self.delete_pods(cluster, |_| true).await?,
            "reapTerminating" => self.delete_pods(cluster, is_terminating).await?,
            "relabelPods" => self.relabel(cluster).await?,
            "relabelBack" => self.relabel_back(cluster).await?,
            "bindAll" => self.bind_all(cluster).await?,
            "wait" => cluster.wait(Duration::from_secs(self.seconds)).await?,
            other => return Err(format!("unknown action {other:?}")),
        }
        cluster.settle().await?;
        Ok(status)
    }

    async fn create(&self, cluster: &Cluster) -> Answer {
        let mut object = self.object.clone();
        for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            let stands_for = |uid: &str| uid.strip_prefix("$UID(")?.strip_suffix(')').map(|kind| format!("{kind}s"));
            if let Some(plural) = owner["uid"].as_str().and_then(stands_for) {
                let objects = cluster.list(&plural).await?;
                let found = objects.iter().find(|object| object["metadata"]["name"] == owner["name"]);
                owner["uid"] = found.map(|object| object["metadata"]["uid"].clone()).ok_or("the owner is not there")?;
            }
        }
        let resource = cluster.resource(&self.resource)?;
        let request = Request::collection(&resource, cluster.namespace, Verb::Create(encode(&object)));
        Ok(Some(code(cluster.call(request).await, 201)))
    }

    async fn patch(&self, cluster: &Cluster) -> Answer {
        let kind = match self.patch_type.as_str() {
            "strategic" => PatchKind::Strategic,
            "merge" => PatchKind::Merge,
            "json" => PatchKind::Json,
            other => return Err(format!("unknown patch type {other:?}")),
        };
        let request = self.object_request(cluster, Verb::Patch(kind, encode(&self.patch)))?;
        let request = match self.subresource.as_str() {
            "" => request,
            "status" => request.subresource("status"),
            "scale" => request.subresource("scale"),
            other => return Err(format!("unknown subresource {other:?}")),
        };
        Ok(Some(code(cluster.call(request).await, 200)))
    }

    async fn delete(&self, cluster: &Cluster) -> Answer {
        let options = DeleteOptions { propagation_policy: self.propagation_policy.clone(), ..DeleteOptions::default() };
        Ok(Some(code(cluster.call(self.object_request(cluster, Verb::Delete(options))?).await, 200)))
    }

    fn object_request(&self, cluster: &Cluster, verb: Verb) -> Result<Request, String> {
        let resource = cluster.resource(&self.resource)?;
        Ok(Request::object(&resource, cluster.namespace, &Names::of(cluster).real(&self.name), verb))
    }

    /// The names of the pods the action is about, in the order in which the API lists them.
    async fn pods(&self, cluster: &Cluster, wanted: impl Fn(&Value) -> bool) -> Result<Vec<String>, String> {
        let owner = self.replica_set.as_deref().map(|name| Names::of(cluster).real(name));
        let owned = |pod: &&Value| owner.as_deref().is_none_or(|owner| controller_of(pod) == Some(owner));
        let pods = cluster.list("pods").await?;
        let chosen = pods.iter().filter(owned).filter(|pod| wanted(pod)).take(self.count.unwrap_or(usize::MAX));
        Ok(chosen.filter_map(|pod| pod["metadata"]["name"].as_str()).map(Into::into).collect())
    }

    async fn patch_pod(&self, cluster: &Cluster, name: &str, patch: &Value, status: bool) -> Result<(), String> {
        let verb = Verb::Patch(PatchKind::Strategic, encode(patch));
        let request = Request::object(&cluster.resource("pods")?, cluster.namespace, name, verb);
        let request = if status { request.subresource("status") } else { request };
        cluster.call(request).await.map_err(|status| status.to_string()).map(drop)
    }

    async fn set_status(
        &self,
        cluster: &Cluster,
        wanted: impl Fn(&Value) -> bool,
        patch: &Value,
    ) -> Result<(), String> {
        for pod in self.pods(cluster, |pod| !is_terminating(pod) && wanted(pod)).await? {
            self.patch_pod(cluster, &pod, patch, true).await?;
        }
        Ok(())
    }

    /// The kubelet starts the present pods; returns whether there were any.
    async fn mark_ready(&self, cluster: &Cluster) -> Result<bool, String> {
        let unready = |pod: &Value| !is_terminating(pod) && !is_terminal(pod) && !is_ready(pod);
        let pods = self.pods(cluster, unready).await?;
        let mut ready = readiness(cluster, "True");
        ready["status"]["phase"] = json!("Running");
        for pod in &pods {
            self.patch_pod(cluster, pod, &ready, true).await?;
        }
        Ok(!pods.is_empty())
    }

    async fn mark_all_ready(&self, cluster: &mut Cluster) -> Answer {
        for _ in 0..READY_ROUNDS_MAX {
            if !self.mark_ready(cluster).await? {
                return Ok(None);
            }
            cluster.settle().await?;
        }
        Err("there are always pods that are not ready".into())
    }

    async fn delete_pods(&self, cluster: &Cluster, wanted: impl Fn(&Value) -> bool) -> Result<(), String> {
        for pod in self.pods(cluster, wanted).await? {
            let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
            let request = Request::object(&cluster.resource("pods")?, cluster.namespace, &pod, Verb::Delete(options));
            cluster.call(request).await.map_err(|status| status.to_string())?;
        }
        Ok(())
    }

    async fn relabel(&self, cluster: &mut Cluster) -> Result<(), String> {
        let pods = self.pods(cluster, |pod| !is_terminating(pod)).await?;
        for pod in &pods {
            self.patch_pod(cluster, pod, &json!({"metadata": {"labels": self.labels}}), false).await?;
        }
        cluster.relabelled.extend(pods);
        Ok(())
    }

    async fn relabel_back(&self, cluster: &mut Cluster) -> Result<(), String> {
        for pod in std::mem::take(&mut cluster.relabelled) {
            self.patch_pod(cluster, &pod, &json!({"metadata": {"labels": self.labels}}), false).await?;
        }
        Ok(())
    }

    async fn bind_all(&self, cluster: &Cluster) -> Result<(), String> {
        for pod in self.pods(cluster, |pod| pod["spec"]["nodeName"].is_null()).await? {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
                "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
            });
            let verb = Verb::Create(encode(&binding));
            let request =
                Request::object(&cluster.resource("pods")?, cluster.namespace, &pod, verb).subresource("binding");
            cluster.call(request).await.map_err(|status| status.to_string())?;
        }
        Ok(())
    }
}

fn code(answer: Result<Bytes, Status>, success: u16) -> u16 {
    answer.map_or_else(|status| status.code, |_| success)
}

/// A status patch that sets condition `Ready`.
fn readiness(cluster: &Cluster, status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": cluster.second()}]}})
}

fn controller_of(pod: &Value) -> Option<&str> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["name"].as_str()
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

pub(super) fn is_terminating(pod: &Value) -> bool {
    pod["metadata"].get("deletionTimestamp").is_some()
}

fn is_terminal(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}
