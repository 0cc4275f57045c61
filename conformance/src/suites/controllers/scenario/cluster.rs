//! A cluster in one thread and under virtual time: our API server on an empty store, and the loops that
//! `bayplan controller-manager` runs, stepped one reconcile at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bayplan_apiserver::certificates::{Names as Hosts, Pki};
use bayplan_apiserver::{AdmissionPlugins, ApiServer, Config, User};
use bayplan_client::{Client, CoreEvents};
use bayplan_controllers::discovery::{ApiResource, Resources, Root, read_root};
use bayplan_controllers::{
    Cache, Context, Controller, DeploymentController, GarbageCollector, Kind, Process, ReplicaSetController,
};
use bayplan_model::api::{Api, Event, ListOptions, Recorder, Request, Resource, Verb, decode, encode};
use bayplan_model::delta::Delta;
use bayplan_model::meta::{ObjectMeta, PartialObjectMetadata};
use bayplan_model::status::Status;
use bayplan_store::{Change, LogStore, Store, Watch};
use bayplan_testkit::VirtualClock;
use bytes::Bytes;
use futures::FutureExt;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Quota;
use super::names::Names;

/// The namespace of all scenarios.
pub(super) const NAMESPACE: &str = "default";

/// A cluster without work for this long has settled.
const QUIET: Duration = Duration::from_millis(1500);

/// A step that takes this many reconciles never ends.
const RECONCILES_MAX: usize = 20_000;

/// The `Accept` header of aggregated discovery.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The time at which scenarios begin.
const START_SECONDS: i64 = 1_780_000_000;

fn start() -> Timestamp {
    Timestamp::from_second(START_SECONDS).unwrap_or_default()
}

/// The events the loops recorded, before they are correlated.
#[derive(Default)]
struct RecordedEvents(Mutex<Vec<Event>>);

impl Recorder for RecordedEvents {
    fn record(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// The cluster.
pub(super) struct Cluster {
    pub(super) names: Names,
    server: ApiServer,
    client: Client,
    changes: Box<dyn Watch>,
    resources: Resources,
    collector: Arc<GarbageCollector>,
    process: Process,
    clock: VirtualClock,
    now: Duration,
    recorded: RecordedEvents,
    correlators: BTreeMap<&'static str, CoreEvents>,
    /// The events as they are stored, by name.
    events: BTreeMap<String, Value>,
    /// Those that were written in this step.
    written: BTreeSet<String>,
    /// The notes of `ScalingReplicaSet` events in this step.
    scalings: Vec<String>,
    /// Pods that no longer carry the labels they were created with.
    pub(super) relabelled: Vec<String>,
}

/// One key for all clusters: generating one takes longer than a scenario.
fn service_account_key() -> Result<&'static str, String> {
    static KEY: OnceLock<Result<String, String>> = OnceLock::new();
    let make = || {
        let hosts = Hosts::standard(None, [10, 0, 0, 1].into());
        Pki::in_memory(&hosts, Timestamp::now()).map(|pki| pki.service_account_key).map_err(|error| error.to_string())
    };
    KEY.get_or_init(make).as_deref().map_err(Clone::clone)
}

impl Cluster {
    pub(super) async fn start() -> Result<Cluster, String> {
        let clock = VirtualClock::at(start());
        let store: Arc<dyn Store> = Arc::new(LogStore::in_memory().map_err(|error| error.to_string())?);
        let first = store.revision().await.map_err(|error| error.to_string())?;
        let changes = store.watch("/registry/", "/registry0", first).await.map_err(|error| error.to_string())?;
        let mut config = Config::new(service_account_key()?, ([127, 0, 0, 1], 6443).into());
        config.plugins = AdmissionPlugins { service_account: false, ..config.plugins };
        let now = clock.clone();
        config.clock = Arc::new(move || now.now());
        let server = ApiServer::new(config, store).await.map_err(|error| error.to_string())?;
        let client = Client::from_service(server.service(User::new("controllers", ["system:masters"])));
        let resources = Resources::default();
        resources.replace(discover(&client).await?);
        let collector = Arc::new(GarbageCollector::new(resources.clone()));
        let cache = Arc::new(Cache::default());
        let loops: [Arc<dyn Controller>; 3] = [
            Arc::new(DeploymentController::new(cache.clone())),
            Arc::new(ReplicaSetController::new(cache.clone())),
            collector.clone(),
        ];
        Ok(Cluster {
            names: Names::default(),
            server,
            client,
            changes,
            resources,
            collector,
            process: Process::new(cache, loops),
            clock,
            now: Duration::ZERO,
            recorded: RecordedEvents::default(),
            correlators: BTreeMap::new(),
            events: BTreeMap::new(),
            written: BTreeSet::new(),
            scalings: Vec::new(),
            relabelled: Vec::new(),
        })
    }

    pub(super) async fn stop(self) {
        self.server.shutdown().await;
    }

    /// Starts the next step.
    pub(super) fn begin_step(&mut self) {
        self.written.clear();
        self.scalings.clear();
    }

    /// The time, as the API writes it.
    pub(super) fn second(&self) -> String {
        Timestamp::from_second(self.clock.now().as_second()).unwrap_or_default().to_string()
    }

    /// A call of the user or of a kubelet.
    pub(super) async fn call(&self, request: Request) -> Result<Bytes, Status> {
        self.client.call(request).await
    }

    /// The resource of a plural name.
    pub(super) fn resource(&self, plural: &str) -> Result<Resource, String> {
        let all = self.resources.all();
        let found = all.iter().find(|known| known.resource.plural == plural);
        found.map(|known| known.resource.clone()).ok_or_else(|| format!("no resource {plural:?} is served"))
    }

    /// All objects of a resource, by name.
    pub(super) async fn list(&self, plural: &str) -> Result<Vec<Value>, String> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Value>,
        }
        let request = Request::collection(&self.resource(plural)?, NAMESPACE, Verb::List(ListOptions::default()));
        let answer = self.call(request).await.map_err(|status| status.to_string())?;
        decode::<List>(&answer).map(|list| list.items).map_err(|status| status.to_string())
    }

    /// Sets a limit to the number of pods, as if a controller had counted them already.
    pub(super) async fn limit_pods(&mut self, quota: &Quota) -> Result<(), String> {
        let hard = json!({"pods": quota.pods});
        let object = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": quota.name}, "spec": {"hard": hard},
        });
        let resource = self.resource("resourcequotas")?;
        let create = Request::collection(&resource, NAMESPACE, Verb::Create(encode(&object)));
        let created = self.call(create).await.map_err(|status| status.to_string())?;
        let mut counted: Value = decode(&created).map_err(|status| status.to_string())?;
        counted["status"] = json!({"hard": hard, "used": {"pods": "0"}});
        let update = Request::object(&resource, NAMESPACE, &quota.name, Verb::Update(encode(&counted)));
        self.call(update.subresource("status")).await.map_err(|status| status.to_string()).map(drop)
    }

    /// Runs the loops until they have settled.
    pub(super) async fn settle(&mut self) -> Result<(), String> {
        self.work_until(None).await
    }

    /// Runs the loops while time passes.
    pub(super) async fn wait(&mut self, time: Duration) -> Result<(), String> {
        self.work_until(Some(self.now + time)).await
    }

    async fn work_until(&mut self, end: Option<Duration>) -> Result<(), String> {
        for _ in 0..RECONCILES_MAX {
            self.deliver()?;
            if let Some(job) = self.process.take(self.now) {
                let context = Context { now: self.clock.now(), api: &self.client, recorder: &self.recorded };
                let outcome = job.run(context).await;
                self.correlate(job.component());
                self.process.finish(job, outcome, self.now);
                continue;
            }
            let end = end.unwrap_or(self.now + QUIET);
            let next = self.process.next_deadline().filter(|next| *next <= end);
            self.now = next.unwrap_or(end);
            self.clock.set(start() + self.now);
            if next.is_none() {
                return Ok(());
            }
        }
        Err(format!("the controllers do not come to rest within {RECONCILES_MAX} reconciles"))
    }

    /// Delivers what was written since the last time to the loops.
    fn deliver(&mut self) -> Result<(), String> {
        while let Some(changes) = self.changes.next().now_or_never() {
            for change in changes.map_err(|error| error.to_string())? {
                self.tell(&change)?;
            }
        }
        Ok(())
    }

    fn tell(&mut self, change: &Change) -> Result<(), String> {
        let Some(entry) = change.current.as_ref().or(change.previous.as_ref()) else { return Ok(()) };
        let gone = change.current.is_none();
        let mut object: Value = serde_json::from_slice(&entry.value).map_err(|error| error.to_string())?;
        object["metadata"]["resourceVersion"] = json!(change.revision.to_string());
        let metadata = ObjectMeta::deserialize(&object["metadata"]).map_err(|error| error.to_string())?;
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let cached = match kind.as_str() {
            "Pod" => Some(Kind::Pod),
            "ReplicaSet" => Some(Kind::ReplicaSet),
            "Deployment" => Some(Kind::Deployment),
            _ => None,
        };
        if cached == Some(Kind::ReplicaSet) {
            self.names.observe(&object["metadata"]);
        }
        let change = match cached {
            None => None,
            Some(kind) if gone => {
                self.process.cache().remove(kind, &metadata.namespace, &metadata.name, &metadata.resource_version)
            }
            Some(kind) => {
                let json = object.to_string();
                Some(self.process.cache().set(kind, json.as_bytes()).map_err(|error| error.to_string())?)
            }
        };
        if let Some(change) = change {
            self.process.observe(&change, self.now);
        }
        if self.resources.of_kind(&api_version, &kind).is_some_and(|resource| GarbageCollector::collects(&resource)) {
            let object = Arc::new(PartialObjectMetadata { metadata });
            let delta = if gone { Delta::Deleted(object) } else { Delta::Added(object) };
            let wakeups = self.collector.observe_object(&api_version, &kind, &delta);
            self.process.wake(self.collector.name(), wakeups, self.now);
        }
        Ok(())
    }

    /// Writes the events of a reconcile the way the event recorder does.
    fn correlate(&mut self, component: &'static str) {
        let events = std::mem::take(&mut *self.recorded.0.lock().unwrap_or_else(PoisonError::into_inner));
        for event in events {
            if event.reason == "ScalingReplicaSet" {
                self.scalings.push(event.note.clone());
            }
            let correlator = self.correlators.entry(component).or_insert_with(|| CoreEvents::new(component));
            if let Some(write) = correlator.observe(event, self.clock.now()) {
                self.events.insert(write.name.clone(), serde_json::from_slice(&write.create).unwrap_or_default());
                self.written.insert(write.name);
            }
        }
    }

    /// The events that appeared or were counted up in this step.
    pub(super) fn new_events(&self) -> impl Iterator<Item = &Value> {
        self.written.iter().filter_map(|name| self.events.get(name))
    }

    /// The notes of `ScalingReplicaSet` events in this step, in order, before correlation.
    pub(super) fn scalings(&self) -> Vec<String> {
        self.scalings.iter().map(|note| self.names.shown(note)).collect()
    }
}

/// Discovers the resources of the server.
async fn discover(client: &Client) -> Result<Vec<ApiResource>, String> {
    let mut resources = Vec::new();
    for path in ["/api", "/apis"] {
        let answer = client.get(path, DISCOVERY).await.map_err(|status| status.to_string())?;
        match read_root(&answer).map_err(|error| error.to_string())? {
            Root::Resources { found, .. } => resources.extend(found),
            Root::Versions(_) => return Err(format!("{path} is not aggregated discovery")),
        }
    }
    Ok(resources)
}
