//! Runs the scheduler: watches feed its one owner, its effects run concurrently and come back as events.
//!
//! ```text
//!   informers ──Input──▶ owner task (scheduler core) ──Effect──▶ lanes ──▶ API server
//!                             ▲                                   │
//!                             └───────────── Input ◀──────────────┘
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bayplan_client::informer;
use bayplan_client::leader_election::{self, Elector};
use bayplan_client::metrics::ElectionMetrics;
use bayplan_client::{Client, EventRecorder, Informer, Scope};
use bayplan_model::api::{Event, Recorder, Resource};
use bayplan_model::meta::HasMeta;
use bayplan_model::status::reason;
use bayplan_scheduler::config::{ClientConnection, Configuration};
use bayplan_scheduler::extender::Extender;
use bayplan_scheduler::{Effect, Input, Object, Registry, Rng, Scheduler, Shell, TieBreak, Timer};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use crate::extender::{self, HttpExtender, manifest};

use crate::metrics::steady_nanos;
use crate::telemetry::Telemetry;

/// Bindings in flight at once. Each is one small request; more only moves the queue into the API server.
const BINDINGS_MAX: usize = 128;
/// Status patches and evictions in flight at once; few, so that bindings never wait behind them.
const STATUS_UPDATES_MAX: usize = 32;
/// Scheduling attempts before inputs are handled again, so that a long queue does not hide changes of the cluster.
const POD_BATCH_MAX: usize = 16;
/// The period of timers that no event announces: backoffs, flushes and timeouts.
const TICK: Duration = Duration::from_secs(1);

/// Why the scheduler cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The profiles cannot be built.
    #[error(transparent)]
    Profiles(#[from] bayplan_scheduler::Error),
    /// An extender cannot be used.
    #[error(transparent)]
    Extender(#[from] extender::Error),
    /// Another process leads, or the lease could not be renewed: this process must not go on.
    #[error("leader election lost")]
    LeaseLost,
}

/// The settings of a scheduler.
pub struct SchedulerConfig {
    /// Profiles, plugins and backoffs.
    pub configuration: Configuration,
    /// The plugins that profiles may name.
    pub registry: Registry,
    /// The name of this process in events: the host it runs on.
    pub instance: String,
    /// The seed of the generator that breaks ties between nodes of equal score.
    pub seed: u64,
    /// Leader election; the scheduler decides only while it leads. None to decide always.
    pub leader_election: Option<leader_election::Config>,
    /// After this long an unschedulable pod is tried again without an event; upstream's five minutes when absent.
    pub max_in_unschedulable: Option<SignedDuration>,
    /// Metrics and health, if they are served.
    pub telemetry: Option<Telemetry>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        SchedulerConfig {
            configuration: Configuration::default(),
            registry: Registry::default(),
            instance: leader_election::hostname(),
            seed: rand::random(),
            leader_election: None,
            max_in_unschedulable: None,
            telemetry: None,
        }
    }
}

impl SchedulerConfig {
    /// Takes leader election from the configuration.
    pub fn with_leader_election(mut self) -> Self {
        let rules = &self.configuration.leader_election;
        self.leader_election = rules.leader_elect.then(|| leader_election::Config {
            namespace: rules.resource_namespace.clone(),
            lease_duration: rules.lease_duration.unsigned(),
            renew_deadline: rules.renew_deadline.unsigned(),
            retry_period: rules.retry_period.unsigned(),
            ..leader_election::Config::new(&rules.resource_name)
        });
        self
    }
}

/// Tokio's clock and timers.
struct TokioTimer;

impl Timer for TokioTimer {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A lane of requests with a limit on requests in flight and the rate limit of its client.
struct Lane {
    client: Client,
    permits: Semaphore,
}

impl Lane {
    fn new(client: &Client, connection: &ClientConnection, requests_max: usize) -> Self {
        Lane { client: limited(client, connection), permits: Semaphore::new(requests_max) }
    }
}

/// The same connection with the configured rate limit, if there is one.
fn limited(client: &Client, connection: &ClientConnection) -> Client {
    match connection.limit() {
        Some((requests_per_second, burst)) => client.clone().with_limit(requests_per_second, burst),
        None => client.clone(),
    }
}

/// Runs effects: the recorders, lanes and the way back to the owner, shared by all of them.
struct EffectRunner {
    /// By the scheduler name that events are reported under.
    recorders: BTreeMap<String, EventRecorder>,
    inputs: mpsc::UnboundedSender<Input>,
    bindings: Lane,
    status_updates: Lane,
}

impl EffectRunner {
    fn new(client: &Client, config: &SchedulerConfig, inputs: mpsc::UnboundedSender<Input>) -> Self {
        let connection = &config.configuration.client_connection;
        let events = limited(client, connection);
        let names = config.configuration.profiles.iter().filter_map(|profile| profile.scheduler_name.clone());
        let recorder = |name: &str| EventRecorder::events(&events, name, &format!("{name}-{}", config.instance));
        EffectRunner {
            recorders: names.map(|name| (name.clone(), recorder(&name))).collect(),
            inputs,
            bindings: Lane::new(client, connection, BINDINGS_MAX),
            status_updates: Lane::new(client, connection, STATUS_UPDATES_MAX),
        }
    }
}

/// Events of one profile.
struct ProfileRecorder<'a>(Option<&'a EventRecorder>);

impl Recorder for ProfileRecorder<'_> {
    fn record(&self, event: Event) {
        if let Some(recorder) = self.0 {
            recorder.record(event);
        }
    }
}

/// Runs the scheduler until `shutdown` is true.
///
/// The future is boxed so that it is compiled in this crate, and not once more in each crate that awaits it.
pub fn run_scheduler(
    client: Client,
    config: SchedulerConfig,
    shutdown: watch::Receiver<bool>,
) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(run(client, config, shutdown))
}

async fn run(client: Client, mut config: SchedulerConfig, mut shutdown: watch::Receiver<bool>) -> Result<(), Error> {
    let mut extenders: Vec<Arc<dyn Extender>> = Vec::new();
    for extender in &config.configuration.extenders {
        extenders.push(Arc::new(HttpExtender::new(extender.clone())?));
    }
    let ties = TieBreak::Random(Rng::new(config.seed));
    let mut scheduler = Scheduler::with_extenders(&config.configuration, &config.registry, extenders, ties)?;
    if let Some(duration) = config.max_in_unschedulable {
        scheduler = scheduler.with_max_in_unschedulable(duration);
    }
    let telemetry = config.telemetry.take();
    if let Some(telemetry) = &telemetry {
        scheduler = scheduler.with_metrics(&telemetry.registry, steady_nanos);
    }
    let mut elector = config.leader_election.clone().map(|rules| {
        let component = config.configuration.profiles.iter().find_map(|p| p.scheduler_name.as_deref());
        let recorder = EventRecorder::core(&client, component.unwrap_or_default());
        let elector = Elector::new(&client, rules, Some(Arc::new(recorder)));
        match &telemetry {
            Some(telemetry) => elector
                .with_leadership(Arc::clone(&telemetry.leadership))
                .with_metrics(ElectionMetrics::new(&telemetry.registry)),
            None => elector,
        }
    });
    let outcome = tokio::select! {
        outcome = elect_and_work(&client, &config, Core { scheduler, telemetry }, elector.as_mut()) => outcome,
        _ = shutdown.wait_for(|stop| *stop) => Ok(()),
    };
    if let (Ok(()), Some(elector)) = (&outcome, &mut elector) {
        elector.release().await;
    }
    outcome
}

/// The scheduler and its telemetry.
struct Core {
    scheduler: Scheduler,
    telemetry: Option<Telemetry>,
}

impl Core {
    /// Brings the gauges up to date for scrapes that wait.
    fn publish(&mut self) {
        while let Some(scrape) = self.telemetry.as_mut().and_then(Telemetry::waiting) {
            self.scheduler.publish();
            // The scraper may have disconnected.
            let _ = scrape.send(());
        }
    }
}

/// Resolves with the next scrape; never without telemetry.
async fn scraped(telemetry: &mut Option<Telemetry>) -> tokio::sync::oneshot::Sender<()> {
    match telemetry {
        Some(telemetry) => telemetry.scraped().await,
        None => std::future::pending().await,
    }
}

async fn elect_and_work(
    client: &Client,
    config: &SchedulerConfig,
    mut core: Core,
    mut elector: Option<&mut Elector>,
) -> Result<(), Error> {
    if config.configuration.delay_cache_until_active
        && let Some(elector) = &mut elector
    {
        elector.acquire().await;
    }
    let (inputs, mut events) = mpsc::unbounded_channel();
    let effects = Arc::new(EffectRunner::new(client, config, inputs.clone()));
    let informers = start_informers(client, &inputs, !config.configuration.extenders.is_empty()).await;
    for informer in &informers {
        informer.synced().await;
    }
    if let Some(telemetry) = &core.telemetry {
        telemetry.set_synced();
    }
    let Some(elector) = elector else {
        run_owner(core, events, effects).await;
        return Ok(());
    };
    if !config.configuration.delay_cache_until_active {
        stand_by(&mut core, &mut events, elector).await;
    }
    // On a task of its own: an extender may block it for longer than a lease lasts.
    let mut owner = JoinSet::new();
    owner.spawn(run_owner(core, events, effects));
    tokio::select! {
        ended = owner.join_next() => match ended {
            Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            _ => Ok(()),
        },
        () = elector.hold() => Err(Error::LeaseLost),
    }
}

/// Keeps the cluster state up to date without deciding, until this process leads.
async fn stand_by(core: &mut Core, events: &mut mpsc::UnboundedReceiver<Input>, elector: &mut Elector) {
    let Core { scheduler, telemetry } = core;
    let mut leading = std::pin::pin!(elector.acquire());
    loop {
        tokio::select! {
            () = &mut leading => return,
            Some(input) = events.recv() => scheduler.handle(input, Timestamp::now()),
            scrape = scraped(telemetry) => {
                scheduler.publish();
                let _ = scrape.send(());
            }
        }
        // Effects are the leader's to run.
        scheduler.take_effects();
    }
}

/// Runs the task that owns the queue and the cluster state.
async fn run_owner(mut core: Core, mut events: mpsc::UnboundedReceiver<Input>, effects: Arc<EffectRunner>) {
    let mut tick = tokio::time::interval(TICK);
    loop {
        core.publish();
        let Core { scheduler, telemetry } = &mut core;
        while let Ok(input) = events.try_recv() {
            scheduler.handle(input, Timestamp::now());
        }
        let mut tried = 0;
        while tried < POD_BATCH_MAX && scheduler.schedule_one(Timestamp::now()) {
            tried += 1;
        }
        for effect in scheduler.take_effects() {
            start(effect, &effects);
        }
        if tried == POD_BATCH_MAX {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            input = events.recv() => match input {
                Some(input) => scheduler.handle(input, Timestamp::now()),
                None => return,
            },
            _ = tick.tick() => scheduler.tick(Timestamp::now()),
            scrape = scraped(telemetry) => {
                scheduler.publish();
                let _ = scrape.send(());
            }
        }
    }
}

/// Starts an effect in its lane.
fn start(effect: Effect, effects: &Arc<EffectRunner>) {
    let effects = Arc::clone(effects);
    if let Effect::Record { scheduler, event } = effect {
        return ProfileRecorder(effects.recorders.get(&scheduler)).record(*event);
    }
    tokio::spawn(async move {
        let lane = if effect.is_binding() { &effects.bindings } else { &effects.status_updates };
        // The lanes are never closed.
        let Ok(_permit) = lane.permits.acquire().await else { return };
        let recorder = ProfileRecorder(effects.recorders.get(effect.scheduler_name()));
        let shell = Shell { api: &lane.client, recorder: &recorder, timer: &TokioTimer };
        if let Some(input) = effect.run(shell).await {
            // The owner ends only when the process is about to stop.
            let _ = effects.inputs.send(input);
        }
    });
}

/// Starts an informer for every kind the scheduler reads. Kinds that the server does not serve are left out: a small
/// API server without them is no reason not to place pods. Pods and nodes keep their manifests for extenders.
async fn start_informers(
    client: &Client,
    inputs: &mpsc::UnboundedSender<Input>,
    extended: bool,
) -> Vec<informer::RunningInformer> {
    let mut informers = Vec::new();
    macro_rules! watch {
        ($($group:literal $version:literal $plural:literal => $variant:ident $(or $whole:path)?;)*) => {$(
            let resource = Resource::new($group, $version, $plural);
            if is_served(client, &resource).await {
                let scope = scope(&resource);
                informers.push(match extended {
                    $(true => start_informer(client, scope, inputs, $whole),)?
                    _ => start_informer(client, scope, inputs, Object::$variant),
                });
            } else {
                tracing::warn!(resource = $plural, "the API server does not serve this resource; going on without it");
            }
        )*};
    }
    watch! {
        "" "v1" "nodes" => Node or manifest::node;
        "" "v1" "namespaces" => Namespace;
        "" "v1" "services" => Service;
        "" "v1" "replicationcontrollers" => ReplicationController;
        "apps" "v1" "replicasets" => ReplicaSet;
        "apps" "v1" "statefulsets" => StatefulSet;
        "policy" "v1" "poddisruptionbudgets" => PodDisruptionBudget;
        "" "v1" "persistentvolumes" => PersistentVolume;
        "" "v1" "persistentvolumeclaims" => PersistentVolumeClaim;
        "storage.k8s.io" "v1" "storageclasses" => StorageClass;
        "storage.k8s.io" "v1" "csinodes" => CsiNode;
        "storage.k8s.io" "v1" "csidrivers" => CsiDriver;
        "storage.k8s.io" "v1" "csistoragecapacities" => CsiStorageCapacity;
        "storage.k8s.io" "v1" "volumeattachments" => VolumeAttachment;
        "resource.k8s.io" "v1" "resourceclaims" => ResourceClaim;
        "resource.k8s.io" "v1" "resourceslices" => ResourceSlice;
        "resource.k8s.io" "v1" "deviceclasses" => DeviceClass;
        "" "v1" "pods" => Pod or manifest::pod;
    }
    informers
}

fn scope(resource: &Resource) -> Scope {
    let scope = Scope::all(resource);
    match resource.plural.as_ref() {
        // Terminated pods use no resources.
        "pods" => scope.fields("status.phase!=Succeeded,status.phase!=Failed"),
        _ => scope,
    }
}

/// False when the server answers 404; any other error is the informer's to retry.
async fn is_served(client: &Client, resource: &Resource) -> bool {
    let Resource { group, version, plural } = resource;
    let path = match group.is_empty() {
        true => format!("/api/{version}/{plural}?limit=1"),
        false => format!("/apis/{group}/{version}/{plural}?limit=1"),
    };
    match client.get(&path, "application/json").await {
        Ok(_) => true,
        Err(status) => !status.is(reason::NOT_FOUND),
    }
}

fn start_informer<V>(
    client: &Client,
    scope: Scope,
    inputs: &mpsc::UnboundedSender<Input>,
    wrap: fn(Arc<V>) -> Object,
) -> informer::RunningInformer
where
    V: DeserializeOwned + HasMeta + Send + Sync + 'static,
{
    let mut informer = Informer::<V>::new(client, scope);
    let inputs = inputs.clone();
    informer.on_delta(move |delta| {
        // The owner is gone only when the process is about to stop.
        let _ = inputs.send(Input::Delta(delta.clone().map(wrap)));
    });
    informer.spawn()
}
