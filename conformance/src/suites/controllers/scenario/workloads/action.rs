//! What a user, a kubelet or the passing of time does in a step.

use std::time::Duration;

use bayplan_model::api::{DeleteOptions, PatchKind, Request, Verb, encode};
use bayplan_model::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::cluster::Cluster;
use super::certificates;
use super::kubelet::{self, Report, Select, is_ready};
use super::placeholders::{Shown, resolve};

/// How far past the wanted second of a minute still counts as it.
const MINUTE_SLACK_SECONDS: i64 = 8;

/// The number of rounds after which pods that are not ready never will be.
const KUBELET_ROUNDS_MAX: usize = 200;

/// One action, as recorded.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Action(Value);

/// The fields of an action, with real names.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Fields {
    #[serde(rename = "type")]
    kind: String,
    resource: String,
    name: String,
    object: Value,
    patch: Value,
    patch_type: String,
    subresource: String,
    propagation_policy: Option<String>,
    grace_period_seconds: Option<i64>,
    select: Option<Select>,
    bind: bool,
    node: Option<String>,
    labels: Value,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Value>,
    start_offset: i64,
    restart_count: Option<i64>,
    exit_code: Option<i64>,
    conditions: Option<Value>,
    reason: Option<String>,
    pods: Value,
    seconds: f64,
    second: i64,
    signer_name: String,
    subject: String,
    usages: Value,
    expiration_seconds: Option<i64>,
    condition: Option<String>,
    claim: String,
    volume: String,
}

/// What came of an action.
#[derive(Debug, Default)]
pub(super) struct Answer {
    status: Option<u16>,
    message: Option<String>,
    affected: Option<usize>,
}

impl Answer {
    fn of_call<T>(answer: Result<T, Status>, success: u16) -> Answer {
        match answer {
            Ok(_) => Answer { status: Some(success), ..Answer::default() },
            Err(status) => Answer { status: Some(status.code), message: Some(status.message), affected: None },
        }
    }

    fn affected(count: usize) -> Answer {
        Answer { affected: Some(count), ..Answer::default() }
    }

    /// In the form of [`Action::recorded`].
    pub(super) fn recorded(&self, shown: &Shown) -> Value {
        let message = self.message.as_ref().map(|text| shown.text(text));
        let mut answer = json!({"status": self.status, "message": message, "affected": self.affected});
        if let Some(fields) = answer.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        answer
    }
}

impl Action {
    /// Its name in reports.
    pub(super) fn kind(&self) -> &str {
        self.0["type"].as_str().unwrap_or_default()
    }

    /// What came of it upstream.
    pub(super) fn recorded(&self) -> Value {
        let fields = self.0.as_object().into_iter().flatten();
        let answers = fields.filter(|(field, _)| ["status", "message", "affected"].contains(&field.as_str()));
        answers.map(|(field, value)| (field.clone(), value.clone())).collect()
    }

    /// Runs the action and lets the controllers settle.
    pub(super) async fn take(&self, cluster: &mut Cluster) -> Result<Answer, String> {
        let mut action = self.0.clone();
        resolve(cluster, &mut action);
        let fields = Fields::deserialize(action).map_err(|error| error.to_string())?;
        let answer = fields.take(cluster).await?;
        cluster.settle().await?;
        Ok(answer)
    }
}

impl Fields {
    async fn take(&self, cluster: &mut Cluster) -> Result<Answer, String> {
        match self.kind.as_str() {
            "create" => self.create(cluster).await,
            "patch" => self.patch(cluster).await,
            "delete" => self.delete(cluster).await,
            "createCSR" => self.create_certificate_request(cluster).await,
            "approveCSR" => {
                let condition = self.condition.as_deref().unwrap_or("Approved");
                Ok(Answer::of_call(certificates::approve(cluster, &self.name, condition).await?, 200))
            }
            "bindVolume" => self.bind_volume(cluster).await,
            "setMetrics" => self.set_metrics(cluster).await,
            "wait" => self.wait(cluster, Duration::try_from_secs_f64(self.seconds).unwrap_or_default()).await,
            "alignMinute" => self.wait(cluster, until_second(cluster, self.second)).await,
            "kubelet" => self.run_kubelet(cluster).await,
            _ => self.act_on_pods(cluster).await,
        }
    }

    async fn wait(&self, cluster: &mut Cluster, time: Duration) -> Result<Answer, String> {
        cluster.wait(time).await?;
        Ok(Answer::default())
    }

    async fn create(&self, cluster: &Cluster) -> Result<Answer, String> {
        let resource = cluster.api_resource(&self.resource)?;
        let mut object = self.object.clone();
        if object.get("kind").is_none() {
            object["apiVersion"] = json!(resource.api_version());
            object["kind"] = json!(resource.kind);
        }
        let verb = Verb::Create(encode(&object));
        let request = Request::collection(&resource.resource, cluster.namespace_of(&resource), verb);
        Ok(Answer::of_call(cluster.call(request).await, 201))
    }

    async fn patch(&self, cluster: &Cluster) -> Result<Answer, String> {
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
        Ok(Answer::of_call(cluster.call(request).await, 200))
    }

    async fn delete(&self, cluster: &Cluster) -> Result<Answer, String> {
        let options = DeleteOptions {
            propagation_policy: self.propagation_policy.clone(),
            grace_period_seconds: self.grace_period_seconds,
            ..DeleteOptions::default()
        };
        let request = self.object_request(cluster, Verb::Delete(options))?;
        Ok(Answer::of_call(cluster.call(request).await, 200))
    }

    fn object_request(&self, cluster: &Cluster, verb: Verb) -> Result<Request, String> {
        let resource = cluster.api_resource(&self.resource)?;
        Ok(Request::object(&resource.resource, cluster.namespace_of(&resource), &self.name, verb))
    }

    async fn create_certificate_request(&self, cluster: &Cluster) -> Result<Answer, String> {
        let wanted = certificates::Wanted {
            name: &self.name,
            signer: &self.signer_name,
            usages: &self.usages,
            expiration_seconds: self.expiration_seconds,
        };
        Ok(Answer::of_call(certificates::create(cluster, &self.subject, wanted).await?, 201))
    }

    /// Lets the volume name the live claim by its UID, in a whole reference.
    async fn bind_volume(&self, cluster: &Cluster) -> Result<Answer, String> {
        let claims = cluster.list("persistentvolumeclaims").await?;
        let claim = claims.iter().find(|claim| claim["metadata"]["name"] == self.claim.as_str());
        let uid = &claim.ok_or("the claim is not there")?["metadata"]["uid"];
        let claim_ref = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": uid});
        let patch = encode(&json!({"spec": {"claimRef": claim_ref}}));
        let verb = Verb::Patch(PatchKind::Merge, patch);
        let request = Request::object(&cluster.resource("persistentvolumes")?, "", &self.volume, verb);
        Ok(Answer::of_call(cluster.call(request).await, 200))
    }

    async fn set_metrics(&self, cluster: &Cluster) -> Result<Answer, String> {
        let pods = cluster.list("pods").await?;
        for (name, containers) in self.pods.as_object().into_iter().flatten() {
            let labels = pods.iter().find(|pod| pod["metadata"]["name"] == name.as_str());
            let labels = labels.map(|pod| pod["metadata"]["labels"].clone()).unwrap_or_default();
            let containers = containers.as_object().into_iter().flatten();
            let usage: Vec<Value> = containers.map(|(name, usage)| json!({"name": name, "usage": usage})).collect();
            cluster.pod_metrics.set(
                name,
                json!({
                    "metadata": {"name": name, "namespace": cluster.namespace, "labels": labels},
                    "timestamp": cluster.second(), "window": "30s", "containers": usage,
                }),
            );
        }
        Ok(Answer::default())
    }

    /// What a kubelet does until nothing is left to do.
    async fn run_kubelet(&self, cluster: &mut Cluster) -> Result<Answer, String> {
        for _ in 0..KUBELET_ROUNDS_MAX {
            let terminating = self.terminating(cluster).await?;
            for pod in &terminating {
                kubelet::delete(cluster, pod, Some(0)).await?;
            }
            let unready = Select { ready: Some(false), ..self.selected() }.pods(cluster).await?;
            for pod in &unready {
                self.start(cluster, pod).await?;
            }
            if terminating.is_empty() && unready.is_empty() {
                return Ok(Answer::default());
            }
            cluster.settle().await?;
        }
        Err("the kubelet never comes to rest".into())
    }

    async fn terminating(&self, cluster: &Cluster) -> Result<Vec<Value>, String> {
        Select { terminating: true, ..self.selected() }.pods(cluster).await
    }

    fn selected(&self) -> Select {
        self.select.clone().unwrap_or_default()
    }

    /// Binds a pod if asked to, and lets it be ready.
    async fn start(&self, cluster: &Cluster, pod: &Value) -> Result<(), String> {
        if self.bind {
            kubelet::bind(cluster, pod, self.node.as_deref()).await?;
        }
        self.report("Running", Some(true)).write(cluster, pod).await
    }

    fn report<'a>(&'a self, phase: &'a str, ready: Option<bool>) -> Report<'a> {
        Report {
            phase,
            ready,
            start_offset: self.start_offset,
            pod_ips: self.pod_ips.as_ref(),
            restart_count: self.restart_count,
            exit_code: self.exit_code,
            conditions: self.conditions.as_ref(),
            reason: self.reason.as_deref(),
        }
    }

    async fn act_on_pods(&self, cluster: &mut Cluster) -> Result<Answer, String> {
        if self.kind == "reapTerminating" {
            let pods = self.terminating(cluster).await?;
            for pod in &pods {
                kubelet::delete(cluster, pod, Some(0)).await?;
                cluster.answer_promptly().await?;
            }
            return Ok(Answer::affected(pods.len()));
        }
        let mut pods = self.selected().pods(cluster).await?;
        match (self.kind.as_str(), &self.select) {
            ("markReady", None) => pods.retain(|pod| !is_ready(pod)),
            ("bindPods", _) => pods.retain(|pod| pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty()),
            _ => {}
        }
        for pod in &pods {
            match self.kind.as_str() {
                "markReady" => self.start(cluster, pod).await?,
                "markNotReady" => self.report("Running", Some(false)).write(cluster, pod).await?,
                "markRunning" => self.report("Running", None).write(cluster, pod).await?,
                "markPending" => self.report("Pending", Some(false)).write(cluster, pod).await?,
                "markFailed" => self.report("Failed", None).write(cluster, pod).await?,
                "markSucceeded" => self.report("Succeeded", None).write(cluster, pod).await?,
                "bindPods" => drop(kubelet::bind(cluster, pod, self.node.as_deref()).await?),
                "deletePods" => kubelet::delete(cluster, pod, self.grace_period_seconds).await?,
                "labelPods" => kubelet::label(cluster, pod, &self.labels).await?,
                other => return Err(format!("unknown action {other:?}")),
            }
            cluster.answer_promptly().await?;
        }
        Ok(Answer::affected(pods.len()))
    }
}

/// How long it takes until the clock shows this second of a minute; nothing if it has just done so.
fn until_second(cluster: &Cluster, second: i64) -> Duration {
    let past = cluster.time().as_second().rem_euclid(60) - second;
    let seconds = match past {
        ..=0 => -past,
        past if past <= MINUTE_SLACK_SECONDS => 0,
        past => 60 - past,
    };
    Duration::from_secs(seconds.unsigned_abs())
}
