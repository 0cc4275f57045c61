//! Creates the objects of a workload with many concurrent requests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bayplan_client::Client;
use bayplan_model::api::{Api, DeleteOptions, Request, Resource, Verb, encode};
use bayplan_model::status::{Status, reason};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::observer::Observer;
use super::{Error, Options, Progress, wait};
use crate::objects::{self, Template, Templates};
use crate::workload::{ChurnSpec, Nodes, PodExtra, Pods, Step, Workload};

/// Concurrent requests: enough to keep a server busy and its writes grouped.
const CREATORS: usize = 128;

const PODS: Resource = Resource::new("", "v1", "pods");
const NODES: Resource = Resource::new("", "v1", "nodes");
const NAMESPACES: Resource = Resource::new("", "v1", "namespaces");
const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts");
const SERVICES: Resource = Resource::new("", "v1", "services");
const VOLUMES: Resource = Resource::new("", "v1", "persistentvolumes");
const VOLUME_CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims");
const CSI_NODES: Resource = Resource::new("storage.k8s.io", "v1", "csinodes");
const PRIORITY_CLASSES: Resource = Resource::new("scheduling.k8s.io", "v1", "priorityclasses");

/// A pod, encoded before the clock runs.
pub(super) struct EncodedPod {
    key: String,
    namespace: String,
    body: Bytes,
}

/// Creates the objects of a workload over the API.
pub(super) struct Creators {
    client: Client,
    workload: Workload,
    templates: Templates,
    options: Options,
    namespaces: BTreeSet<String>,
    nodes: usize,
    pods: usize,
}

impl Creators {
    pub(super) fn new(workload: &Workload, options: &Options, client: &Client) -> Result<Self, Error> {
        let steps = workload.setup.iter().filter_map(|step| match step {
            Step::CreatePods(pods) => Some(pods),
            _ => None,
        });
        if steps.chain([&workload.measure]).any(|pods| pods.with == Some(PodExtra::ResourceClaim)) {
            return Err(Error::EngineOnly(workload.name.clone()));
        }
        Ok(Creators {
            client: client.clone(),
            workload: workload.clone(),
            templates: Templates::of(workload)?,
            options: options.clone(),
            namespaces: BTreeSet::new(),
            nodes: 0,
            pods: 0,
        })
    }

    /// Runs the setup of the workload.
    pub(super) async fn set_up(&mut self, observer: &Observer, progress: &mut Progress<'_>) -> Result<(), Error> {
        for step in self.workload.setup.clone() {
            match step {
                Step::CreateNodes(nodes) => self.create_nodes(&nodes, progress).await?,
                Step::CreateNamespaces(namespaces) => {
                    for number in 0..namespaces.count {
                        let name = format!("{}-{number}", namespaces.prefix);
                        self.ensure_namespace(&name, json!(namespaces.labels)).await?;
                    }
                }
                Step::Create(one) => {
                    for template in self.templates.named(std::slice::from_ref(&one.template), "") {
                        let Template::Other(value) = template else { continue };
                        let mut value = value.clone();
                        value["metadata"]["name"] = "one".into();
                        self.ensure_namespace(&one.namespace, json!({})).await?;
                        self.create(&SERVICES, &one.namespace, &value).await?;
                        break;
                    }
                }
                Step::CreatePods(pods) => {
                    let count = pods.count(self.options.nodes, self.options.pods);
                    let before = observer.count();
                    let ready = Arc::new(self.ready(&pods, count));
                    self.ensure_surroundings(&pods, &ready).await?;
                    create_pods(&self.client, &ready, None, None).await?;
                    if pods.fits {
                        wait(&self.workload.name, observer, before, before + count, progress).await?;
                    }
                }
            }
        }
        let measure = self.workload.measure.clone();
        for number in 0..measure.namespaces.unwrap_or(1) {
            self.ensure_namespace(&measure.namespace_of(number), json!({})).await?;
        }
        self.create_priority_class().await
    }

    async fn create_nodes(&mut self, nodes: &Nodes, progress: &mut Progress<'_>) -> Result<(), Error> {
        let count = nodes.count.unwrap_or(self.options.nodes);
        let templates = self.templates.named(&nodes.templates, "node-default");
        let mut bodies = Vec::with_capacity(count);
        for i in 0..count {
            if let Template::Node(value, _) = templates[i % templates.len()] {
                bodies.push(objects::node_json(nodes, value, self.nodes));
                self.nodes += 1;
            }
        }
        progress("nodes", 0, count);
        let bodies = Arc::new(bodies);
        let client = self.client.clone();
        all(bodies.len(), move |i| {
            let (client, bodies) = (client.clone(), Arc::clone(&bodies));
            async move {
                let (node, csi) = &bodies[i];
                create(&client, &NODES, "", node).await?;
                match csi {
                    Some(csi) => create(&client, &CSI_NODES, "", csi).await,
                    None => Ok(()),
                }
            }
        })
        .await?;
        progress("nodes", count, count);
        Ok(())
    }

    async fn create(&self, resource: &Resource, namespace: &str, object: &Value) -> Result<(), Error> {
        create(&self.client, resource, namespace, object).await
    }

    /// Creates a namespace with its default service account, because no controller may be there to create it.
    async fn ensure_namespace(&mut self, name: &str, labels: Value) -> Result<(), Error> {
        if name.is_empty() || !self.namespaces.insert(name.to_owned()) {
            return Ok(());
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        self.create(&NAMESPACES, "", &namespace).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        self.create(&SERVICE_ACCOUNTS, name, &account).await
    }

    async fn create_priority_class(&self) -> Result<(), Error> {
        for value in objects::PRIORITIES {
            let name = objects::priority_class(value);
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value,
            });
            self.create(&PRIORITY_CLASSES, "", &class).await?;
        }
        Ok(())
    }

    fn ready(&mut self, pods: &Pods, count: usize) -> Vec<EncodedPod> {
        let templates = self.templates.named(&pods.templates, "pod-default");
        let mut ready = Vec::with_capacity(count);
        for i in 0..count {
            let Template::Pod(value, _) = templates[i % templates.len()] else { continue };
            self.pods += 1;
            let pod = objects::pod_json(pods, value, self.pods);
            let namespace = pods.namespace_of(self.pods);
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            ready.push(EncodedPod { key: format!("{namespace}/{name}"), body: encode(&pod), namespace });
        }
        ready
    }

    /// Creates the namespaces, priority classes and volumes of pods that are about to be created.
    async fn ensure_surroundings(&mut self, pods: &Pods, ready: &Arc<Vec<EncodedPod>>) -> Result<(), Error> {
        for number in 0..pods.namespaces.unwrap_or(1) {
            self.ensure_namespace(&pods.namespace_of(number), json!({})).await?;
        }
        self.create_priority_class().await?;
        if pods.with != Some(PodExtra::CsiVolume) {
            return Ok(());
        }
        let first = self.pods + 1 - ready.len();
        let (client, ready) = (self.client.clone(), Arc::clone(ready));
        all(ready.len(), move |i| {
            let (client, namespace) = (client.clone(), ready[i].namespace.clone());
            async move {
                let (volume, claim) = objects::bound_volume(&namespace, first + i);
                create(&client, &VOLUMES, "", &objects::without_uids(volume)).await?;
                create(&client, &VOLUME_CLAIMS, &namespace, &objects::without_uids(claim)).await
            }
        })
        .await
        .map(drop)
    }

    /// Encodes the measured pods and creates what they need, before the clock runs.
    pub(super) async fn measured(&mut self) -> Result<Arc<Vec<EncodedPod>>, Error> {
        let measure = self.workload.measure.clone();
        let ready = Arc::new(self.ready(&measure, self.options.pods));
        self.ensure_surroundings(&measure, &ready).await?;
        Ok(ready)
    }

    /// Creates the measured pods, and returns when each was sent.
    pub(super) async fn create_measured(self, ready: Arc<Vec<EncodedPod>>) -> Result<Vec<(String, Instant)>, Error> {
        let churn = self.workload.churn.clone().map(|churn| Arc::new(Churn::new(churn, &self.templates)));
        create_pods(&self.client, &ready, self.options.rate, churn).await
    }
}

async fn create_pods(
    client: &Client,
    ready: &Arc<Vec<EncodedPod>>,
    rate: Option<f64>,
    churn: Option<Arc<Churn>>,
) -> Result<Vec<(String, Instant)>, Error> {
    let begin = Instant::now();
    let (client, ready) = (client.clone(), Arc::clone(ready));
    all(ready.len(), move |i| {
        let (client, ready, churn) = (client.clone(), Arc::clone(&ready), churn.clone());
        async move {
            let pod = &ready[i];
            let due = rate.map(|rate| begin + Duration::from_secs_f64(i as f64 / rate));
            if let Some(due) = due {
                tokio::time::sleep_until(due.into()).await;
            }
            // With a rate, the latency of a pod counts from when it was due: a late creator must not hide it.
            let start = due.unwrap_or_else(Instant::now);
            let request = Request::collection(&PODS, &pod.namespace, Verb::Create(pod.body.clone()));
            client.call(request).await.map_err(|status| refused(&pod.key, status))?;
            if let Some(churn) = churn {
                churn.after_a_pod(&client).await?;
            }
            Ok((pod.key.clone(), start))
        }
    })
    .await
}

/// Runs `work` for each index on [`CREATORS`] concurrent tasks, so that it uses all processors.
async fn all<T, F, W>(count: usize, work: W) -> Result<Vec<T>, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
    W: Fn(usize) -> F + Send + Sync + 'static,
{
    let (next, work) = (Arc::new(AtomicUsize::new(0)), Arc::new(work));
    let mut workers = JoinSet::new();
    for _ in 0..CREATORS.min(count) {
        let (next, work) = (Arc::clone(&next), Arc::clone(&work));
        workers.spawn(async move {
            let mut done = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= count {
                    return Ok(done);
                }
                done.push(work(i).await?);
            }
        });
    }
    let mut done = Vec::with_capacity(count);
    while let Some(ended) = workers.join_next().await {
        let part: Result<Vec<T>, Error> = ended.map_err(|error| Error::Stopped(error.to_string()))?;
        done.extend(part?);
    }
    Ok(done)
}

fn refused(what: &str, status: Status) -> Error {
    Error::Refused { what: what.into(), status: Box::new(status) }
}

/// Creates an object unless it exists.
async fn create(client: &Client, resource: &Resource, namespace: &str, object: &Value) -> Result<(), Error> {
    let request = Request::collection(resource, namespace, Verb::Create(encode(object)));
    match client.call(request).await {
        Err(status) if !status.is(reason::ALREADY_EXISTS) => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            Err(refused(&format!("{} {name}", resource.plural), status))
        }
        _ => Ok(()),
    }
}

/// Changes that are made between measured pods.
struct Churn {
    every: usize,
    created: AtomicUsize,
    objects: Vec<(Resource, &'static str, Value)>,
}

impl Churn {
    fn new(churn: ChurnSpec, templates: &Templates) -> Self {
        let mut objects = Vec::new();
        for template in templates.named(&churn.recreate, "") {
            match template {
                Template::Node(value, _) => {
                    let nodes = Nodes { name: Some("churned".into()), ..Nodes::default() };
                    objects.push((NODES, "", objects::node_json(&nodes, value, 0).0));
                }
                Template::Pod(value, _) => {
                    objects.push((PODS, "default", objects::pod_json(&Pods::default(), value, 0)))
                }
                Template::Other(value) => {
                    let mut value = value.clone();
                    value["metadata"]["name"] = "churned".into();
                    objects.push((SERVICES, "default", value));
                }
            }
        }
        Churn { every: churn.every_pods, created: AtomicUsize::new(0), objects }
    }

    async fn after_a_pod(&self, client: &Client) -> Result<(), Error> {
        if !(self.created.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.every) {
            return Ok(());
        }
        for (resource, namespace, object) in &self.objects {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
            // The object does not exist the first time.
            let _ = client.call(Request::object(resource, namespace, name, Verb::Delete(now))).await;
            create(client, resource, namespace, object).await?;
        }
        Ok(())
    }
}
