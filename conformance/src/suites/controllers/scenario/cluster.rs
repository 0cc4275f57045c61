//! A cluster in one thread and under virtual time: our API server on an empty store, and the loops that
//! `bayplan controller-manager` runs, stepped one reconcile at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bayplan_apiserver::certificates::{Identity, Names as Hosts, Pki};
use bayplan_apiserver::{AdmissionPlugins, ApiServer, Config, LegacyTokenKey, ServiceRangeError, User};
use bayplan_client::{Client, CoreEvents};
use bayplan_controllers::discovery::{ApiResource, Resources, Root, read_root};
use bayplan_controllers::{AutoscalerConfig, Cache, Controller, GarbageCollector, Job, Kind, Process, TokenSigner};
use bayplan_model::api::{Api, Event, ListOptions, Request, Resource, Verb, decode};
use bayplan_model::delta::Delta;
use bayplan_model::meta::{ObjectMeta, PartialObjectMetadata};
use bayplan_model::status::Status;
use bayplan_runner::controllers::{ControllersConfig, SIGNERS, SigningKeyPair, controllers};
use bayplan_store::{Change, LogStore, Store, Watch};
use bayplan_testkit::VirtualClock;
use bytes::Bytes;
use futures::FutureExt;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::pod_metrics::PodMetrics;
use super::under_way::UnderWay;

/// A cluster in which nothing has changed for this long has settled, unless a kind of scenario says otherwise.
pub(super) const QUIET: Duration = Duration::from_millis(1500);

/// A step that takes this many reconciles never ends.
const RECONCILES_MAX: usize = 20_000;

/// The addresses of Services, as the recorder had them.
const SERVICE_RANGE: &str = "10.0.0.0/16,fd00:10::/112";

/// The `Accept` header of aggregated discovery.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The group of what pods and nodes use.
pub(super) const METRICS_GROUP: &str = "metrics.k8s.io";

/// The time at which scenarios begin.
const START_SECONDS: i64 = 1_780_000_000;

fn start() -> Timestamp {
    Timestamp::from_second(START_SECONDS).unwrap_or_default()
}

/// What a kind of scenario needs of its cluster.
pub(super) struct Setup {
    /// The namespace in which scenarios take place.
    pub(super) namespace: &'static str,
    /// The user who takes the actions.
    pub(super) user: User,
    /// The loops that run.
    pub(super) controllers: &'static [&'static str],
    /// Whether an event is a change that the cluster has to settle after.
    pub(super) events_count: bool,
    /// A cluster in which nothing has changed for this long has settled.
    pub(super) quiet: Duration,
    /// Whether other loops run between two writes of a reconcile.
    pub(super) overlap: bool,
    /// How autoscalers follow their metrics.
    pub(super) autoscaler: AutoscalerConfig,
    /// Whether the loops answer each change before they hear of the next, and how long an answer takes them.
    pub(super) prompt: Option<Duration>,
}

/// An object as it was first seen.
pub(super) struct Created {
    pub(super) kind: String,
    pub(super) metadata: Value,
}

/// The cluster.
pub(super) struct Cluster {
    pub(super) namespace: &'static str,
    /// Every object that was ever there, in the order of creation.
    pub(super) created: Vec<Created>,
    /// What the pods use.
    pub(super) pod_metrics: Arc<PodMetrics>,
    /// The certificate authority that the controllers know.
    pub(super) pki: &'static Pki,
    server: ApiServer,
    client: Client,
    changes: Box<dyn Watch>,
    /// Changes that the loops have not heard of yet.
    unheard: VecDeque<Change>,
    resources: Resources,
    process: Process,
    watched: BTreeSet<Kind>,
    clock: VirtualClock,
    now: Duration,
    changed_at: Duration,
    events_count: bool,
    quiet: Duration,
    overlap: bool,
    prompt: Option<Duration>,
    correlators: BTreeMap<&'static str, CoreEvents>,
    /// The events as they are stored, by name.
    events: BTreeMap<String, Value>,
    /// How often those that are there have occurred before this step.
    counted: BTreeMap<String, i64>,
    /// Those that were written in this step.
    written: BTreeSet<String>,
    /// The notes of `ScalingReplicaSet` events in this step.
    scalings: Vec<String>,
    /// Pods that no longer carry the labels they were created with.
    pub(super) relabelled: Vec<String>,
}

/// The same keys for all clusters: generating them takes longer than a scenario.
fn pki() -> Result<&'static Pki, String> {
    static PKI: OnceLock<Result<Pki, String>> = OnceLock::new();
    let make = || {
        let hosts = Hosts::standard(None, [10, 0, 0, 1].into());
        Pki::in_memory(&hosts, start()).map_err(|error| error.to_string())
    };
    PKI.get_or_init(make).as_ref().map_err(Clone::clone)
}

/// The loops as `bayplan controller-manager` assembles them.
fn assemble(
    setup: &Setup,
    pki: &Pki,
    cache: &Arc<Cache>,
    resources: &Resources,
    collector: &Arc<GarbageCollector>,
) -> Vec<Arc<dyn Controller>> {
    let Identity { certificate, key } = pki.authority.clone();
    let authority = SigningKeyPair { certificate, key };
    let key = LegacyTokenKey::read(&pki.service_account_key).ok();
    let token_signer =
        key.map(|key| TokenSigner::new(move |claims| key.sign(claims).map_err(|error| error.to_string())));
    let config = ControllersConfig {
        token_signer,
        controllers: setup.controllers.iter().map(ToString::to_string).collect(),
        root_ca: Some(pki.authority.certificate.clone()),
        autoscaler: setup.autoscaler,
        authorities: SIGNERS.iter().map(|signer| ((*signer).to_owned(), authority.clone())).collect(),
        ..ControllersConfig::default()
    };
    controllers(cache, resources, collector, &config)
}

impl Cluster {
    pub(super) async fn start(setup: Setup) -> Result<Cluster, String> {
        let (clock, pki) = (VirtualClock::at(start()), pki()?);
        let store: Arc<dyn Store> = Arc::new(LogStore::in_memory().map_err(|error| error.to_string())?);
        let first = store.revision().await.map_err(|error| error.to_string())?;
        let changes = store.watch("/registry/", "/registry0", first).await.map_err(|error| error.to_string())?;
        let mut config = Config::new(&pki.service_account_key, ([127, 0, 0, 1], 6443).into());
        config.plugins = AdmissionPlugins { service_account: false, ..config.plugins };
        config.service_range = SERVICE_RANGE.parse().map_err(|error: ServiceRangeError| error.to_string())?;
        let now = clock.clone();
        config.clock = Arc::new(move || now.now());
        let server = ApiServer::new(config, store).await.map_err(|error| error.to_string())?;
        let client = Client::from_service(server.service(setup.user.clone()));
        let manager = Client::from_service(server.service(User::new("controllers", ["system:masters"])));
        let resources = Resources::default();
        resources.replace(discover(&client).await?);
        let collector = Arc::new(GarbageCollector::new(resources.clone()));
        let cache = Arc::new(Cache::default());
        let loops = assemble(&setup, pki, &cache, &resources, &collector);
        Ok(Cluster {
            namespace: setup.namespace,
            created: Vec::new(),
            pod_metrics: Arc::new(PodMetrics::new(manager)),
            pki,
            server,
            client,
            changes,
            unheard: VecDeque::new(),
            resources,
            watched: loops.iter().flat_map(|each| each.watches()).copied().collect(),
            process: Process::new(cache, loops),
            clock,
            now: Duration::ZERO,
            changed_at: Duration::ZERO,
            events_count: setup.events_count,
            quiet: setup.quiet,
            overlap: setup.overlap,
            prompt: setup.prompt,
            correlators: BTreeMap::new(),
            events: BTreeMap::new(),
            counted: BTreeMap::new(),
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
        self.counted = self.events.iter().map(|(name, event)| (name.clone(), occurrences(event))).collect();
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

    /// The time.
    pub(super) fn time(&self) -> Timestamp {
        self.clock.now()
    }

    /// The resource of a plural name.
    pub(super) fn resource(&self, plural: &str) -> Result<Resource, String> {
        self.api_resource(plural).map(|known| known.resource)
    }

    /// The resource of a plural name, as discovery describes it.
    pub(super) fn api_resource(&self, plural: &str) -> Result<ApiResource, String> {
        let all = self.resources.all();
        // Usage is listed under the same plural as the pods themselves.
        let found = all.iter().find(|known| known.resource.plural == plural && known.resource.group != METRICS_GROUP);
        found.cloned().ok_or_else(|| format!("no resource {plural:?} is served"))
    }

    /// The namespace of a resource's objects, empty for those of the cluster.
    pub(super) fn namespace_of(&self, resource: &ApiResource) -> &'static str {
        if resource.namespaced { self.namespace } else { "" }
    }

    /// All objects of a resource, by name.
    pub(super) async fn list(&self, plural: &str) -> Result<Vec<Value>, String> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Value>,
        }
        let resource = self.api_resource(plural)?;
        let namespace = self.namespace_of(&resource);
        let request = Request::collection(&resource.resource, namespace, Verb::List(ListOptions::default()));
        let answer = self.call(request).await.map_err(|status| status.to_string())?;
        decode::<List>(&answer).map(|list| list.items).map_err(|status| status.to_string())
    }

    /// Runs the loops until they have settled.
    pub(super) async fn settle(&mut self) -> Result<(), String> {
        self.changed_at = self.now;
        self.work_until(None).await
    }

    /// Runs the loops while time passes.
    pub(super) async fn wait(&mut self, time: Duration) -> Result<(), String> {
        self.work_until(Some(self.now + time)).await
    }

    /// Runs the loops, where they answer promptly, as far as they get without waiting for anything.
    pub(super) async fn answer_promptly(&mut self) -> Result<(), String> {
        for _ in 0..RECONCILES_MAX {
            if self.prompt.is_none() || !self.reconcile_one().await? {
                return Ok(());
            }
        }
        Err(format!("the controllers do not come to rest within {RECONCILES_MAX} reconciles"))
    }

    /// Delivers what was written, and reconciles the next key that is ready.
    async fn reconcile_one(&mut self) -> Result<bool, String> {
        let job = loop {
            if self.prompt.is_none() {
                self.deliver()?;
            }
            match self.process.take(self.now) {
                Some(job) => break job,
                None if !self.deliver_one()? => return Ok(false),
                None => {}
            }
        };
        let mut under_way = vec![self.begin(job)];
        self.overlap(&mut under_way).await?;
        Ok(true)
    }

    async fn work_until(&mut self, end: Option<Duration>) -> Result<(), String> {
        for _ in 0..RECONCILES_MAX {
            if self.reconcile_one().await? {
                continue;
            }
            let end = end.unwrap_or(self.changed_at + self.quiet);
            let next = self.process.next_deadline().filter(|next| *next <= end);
            self.now = next.unwrap_or(end);
            self.clock.set(start() + self.now);
            if next.is_none() {
                return Ok(());
            }
        }
        Err(format!("the controllers do not come to rest within {RECONCILES_MAX} reconciles"))
    }

    fn begin(&self, job: Job) -> UnderWay {
        UnderWay::begin(job, self.clock.now(), self.pod_metrics.clone(), self.overlap)
    }

    /// Lets a reconcile run, write by write where loops overlap. What each write wakes in other loops then runs before
    /// the next one: upstream's loops do not wait for each other, and some tell of what they see in between.
    async fn overlap(&mut self, under_way: &mut Vec<UnderWay>) -> Result<(), String> {
        while let Some(mut latest) = under_way.pop() {
            let outcome = latest.until_next_write().await;
            self.correlate(latest.component, latest.recorded.take());
            if self.overlap || self.prompt.is_none() {
                self.deliver()?;
            }
            match outcome {
                Some((job, outcome)) => {
                    self.now += self.prompt.unwrap_or_default();
                    self.clock.set(start() + self.now);
                    self.process.finish(job, outcome, self.now);
                    continue;
                }
                None => under_way.push(latest),
            }
            let busy: Vec<&str> = under_way.iter().map(|each| each.controller).collect();
            if let Some(job) = self.process.take_of(self.now, |controller| !busy.contains(&controller)) {
                let next = self.begin(job);
                under_way.push(next);
            }
        }
        Ok(())
    }

    /// Delivers what was written since the last time to the loops.
    fn deliver(&mut self) -> Result<(), String> {
        while self.deliver_one()? {}
        Ok(())
    }

    /// Delivers the oldest change that the loops have not heard of. The store tells of a write before it answers.
    fn deliver_one(&mut self) -> Result<bool, String> {
        while let Some(changes) = self.changes.next().now_or_never() {
            self.unheard.extend(changes.map_err(|error| error.to_string())?);
        }
        match self.unheard.pop_front() {
            Some(change) => self.tell(&change).map(|()| true),
            None => Ok(false),
        }
    }

    fn tell(&mut self, change: &Change) -> Result<(), String> {
        let Some(entry) = change.current.as_ref().or(change.previous.as_ref()) else { return Ok(()) };
        let gone = change.current.is_none();
        let mut object: Value = serde_json::from_slice(&entry.value).map_err(|error| error.to_string())?;
        object["metadata"]["resourceVersion"] = json!(change.revision.to_string());
        let metadata = ObjectMeta::deserialize(&object["metadata"]).map_err(|error| error.to_string())?;
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        self.changed_at = self.now;
        if !self.created.iter().any(|known| known.metadata["uid"] == object["metadata"]["uid"]) {
            self.created.push(Created { kind: kind.clone(), metadata: object["metadata"].clone() });
        }
        let resource = self.resources.of_kind(&api_version, &kind);
        for cached in self.watched.clone() {
            let same = |known: &ApiResource| {
                let wanted = cached.resource();
                known.resource.group == wanted.group && known.resource.plural == wanted.plural
            };
            if !resource.as_ref().is_some_and(same) || !selects(&cached.field_selector(), &object) {
                continue;
            }
            let cache = self.process.cache();
            let change = match gone {
                true => cache.remove(cached, &metadata.namespace, &metadata.name, &metadata.resource_version),
                false => Some(cache.set(cached, object.to_string().as_bytes()).map_err(|error| error.to_string())?),
            };
            if let Some(change) = change {
                self.process.observe(&change, self.now);
            }
        }
        if let Some(resource) = resource {
            let object = Arc::new(PartialObjectMetadata { metadata });
            let delta = match (gone, change.previous.is_some()) {
                (true, _) => Delta::Deleted(object),
                (false, true) => Delta::Updated { old: object.clone(), new: object },
                (false, false) => Delta::Added(object),
            };
            self.process.observe_metadata(&resource, &delta, self.now);
        }
        Ok(())
    }

    /// Writes the events of a reconcile the way the event recorder does.
    fn correlate(&mut self, component: &'static str, events: Vec<Event>) {
        for event in events {
            if event.reason == "ScalingReplicaSet" {
                self.scalings.push(event.note.clone());
            }
            let correlator = self.correlators.entry(component).or_insert_with(|| CoreEvents::new(component));
            if let Some(write) = correlator.observe(event, self.clock.now()) {
                if self.events_count {
                    self.changed_at = self.now;
                }
                self.events.insert(write.name.clone(), serde_json::from_slice(&write.create).unwrap_or_default());
                self.written.insert(write.name);
            }
        }
    }

    /// The events that appeared or were counted up in this step.
    pub(super) fn new_events(&self) -> impl Iterator<Item = &Value> {
        self.written.iter().filter_map(|name| self.events.get(name))
    }

    /// The same, each with how often it occurred in this step.
    pub(super) fn counted_events(&self) -> impl Iterator<Item = (&Value, i64)> {
        let before = |name| self.counted.get(name).copied().unwrap_or_default();
        self.written.iter().filter_map(move |name| {
            let event = self.events.get(name)?;
            Some((event, occurrences(event) - before(name)))
        })
    }

    /// The notes of `ScalingReplicaSet` events in this step, in order, before correlation.
    pub(super) fn scalings(&self) -> &[String] {
        &self.scalings
    }
}

/// How often an event has occurred.
fn occurrences(event: &Value) -> i64 {
    event["count"].as_i64().unwrap_or(1)
}

/// Whether a field selector of `path=value` terms selects an object.
fn selects(selector: &str, object: &Value) -> bool {
    selector.split(',').filter(|term| !term.is_empty()).all(|term| {
        let (path, wanted) = term.split_once('=').unwrap_or((term, ""));
        object.pointer(&format!("/{}", path.replace('.', "/"))).and_then(Value::as_str).unwrap_or_default() == wanted
    })
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
