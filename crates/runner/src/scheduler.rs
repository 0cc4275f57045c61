//! Runs the scheduler: watches feed its one owner, its effects run concurrently and come back as events.
//!
//! ```text
//!   informers ──Input──▶ owner task (scheduler core) ──Effect──▶ lanes ──▶ API server
//!                             ▲                                   │
//!                             └───────────── Input ◀──────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use bayplan_client::informer::{self, Change};
use bayplan_client::{Client, EventRecorder, Informer, Scope};
use bayplan_model::api::{Event, Recorder, Resource};
use bayplan_model::meta::HasMeta;
use bayplan_model::status::reason;
use bayplan_scheduler::cluster::Object;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::cycle::select::{Dice, TieBreak};
use bayplan_scheduler::effect::{Effect, Shell};
use bayplan_scheduler::framework::{Registry, Timer};
use bayplan_scheduler::scheduler::{Error, Input, Scheduler};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, mpsc, watch};

/// Bindings in flight at once. Each is one small request; more only moves the queue into the API server.
const BINDINGS_MAX: usize = 128;
/// Status patches and evictions in flight at once; few, so that bindings never wait behind them.
const STATUS_UPDATES_MAX: usize = 32;
/// Pods tried before inputs are looked at again, so that a long queue does not hide a changed cluster.
const POD_BATCH_MAX: usize = 16;
/// How often something may be due that no event announces.
const TICK: Duration = Duration::from_secs(1);

/// How the scheduler runs.
pub struct SchedulerConfig {
    /// Profiles, plugins and backoffs.
    pub configuration: Configuration,
    /// The plugins that profiles may name.
    pub registry: Registry,
    /// The name of this process in events.
    pub instance: String,
    /// Breaks ties between equally good nodes.
    pub seed: u64,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        SchedulerConfig {
            configuration: Configuration::default(),
            registry: Registry::default(),
            instance: "bayplan".into(),
            seed: rand::random(),
        }
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

/// What effects run with, shared by all of them.
struct Outside {
    client: Client,
    recorder: EventRecorder,
    inputs: mpsc::UnboundedSender<Input>,
    bindings: Semaphore,
    status_updates: Semaphore,
}

impl Recorder for Outside {
    fn record(&self, event: Event) {
        self.recorder.record(event);
    }
}

/// Runs the scheduler until `shutdown` says true.
pub async fn run_scheduler(
    client: Client,
    config: SchedulerConfig,
    mut shutdown: watch::Receiver<bool>,
) -> Result<(), Error> {
    let ties = TieBreak::Random(Dice::new(config.seed));
    let scheduler = Scheduler::new(&config.configuration, &config.registry, ties)?;
    let name = config.configuration.profiles.iter().find_map(|p| p.scheduler_name.clone()).unwrap_or_default();
    let instance = format!("{name}-{}", config.instance);
    let (inputs, events) = mpsc::unbounded_channel();
    let outside = Arc::new(Outside {
        recorder: EventRecorder::events(&client, &name, &instance),
        client: client.clone(),
        inputs: inputs.clone(),
        bindings: Semaphore::new(BINDINGS_MAX),
        status_updates: Semaphore::new(STATUS_UPDATES_MAX),
    });
    let work = async {
        let informers = start_informers(&client, &inputs).await;
        for informer in &informers {
            informer.synced().await;
        }
        own(scheduler, events, outside).await;
    };
    tokio::select! {
        () = work => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    Ok(())
}

/// The one owner of queue and cluster.
async fn own(mut scheduler: Scheduler, mut events: mpsc::UnboundedReceiver<Input>, outside: Arc<Outside>) {
    let mut tick = tokio::time::interval(TICK);
    loop {
        while let Ok(input) = events.try_recv() {
            scheduler.handle(input, Timestamp::now());
        }
        let mut tried = 0;
        while tried < POD_BATCH_MAX && scheduler.schedule_one(Timestamp::now()) {
            tried += 1;
        }
        for effect in scheduler.take_effects() {
            start(effect, &outside);
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
        }
    }
}

/// Starts an effect in its lane.
fn start(effect: Effect, outside: &Arc<Outside>) {
    let outside = Arc::clone(outside);
    if let Effect::Record(event) = effect {
        return outside.record(event);
    }
    tokio::spawn(async move {
        let lane = if effect.is_binding() { &outside.bindings } else { &outside.status_updates };
        // The lanes are never closed.
        let Ok(_permit) = lane.acquire().await else { return };
        let shell = Shell { api: &outside.client, recorder: &*outside, timer: &TokioTimer };
        if let Some(input) = effect.run(shell).await {
            // The owner is gone only when the process is about to stop.
            let _ = outside.inputs.send(input);
        }
    });
}

/// Starts a watch for every kind the scheduler reads. Kinds the server does not have are left out: a small API
/// server without them is no reason not to place pods.
async fn start_informers(client: &Client, inputs: &mpsc::UnboundedSender<Input>) -> Vec<informer::Handle> {
    let mut informers = Vec::new();
    macro_rules! watch {
        ($($group:literal $version:literal $plural:literal => $variant:ident;)*) => {$(
            let resource = Resource::new($group, $version, $plural);
            if is_served(client, &resource).await {
                let scope = scope(&resource);
                informers.push(start_informer(client, scope, inputs, Object::$variant));
            } else {
                tracing::warn!(resource = $plural, "the API server does not have it; going on without");
            }
        )*};
    }
    watch! {
        "" "v1" "nodes" => Node;
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
        "" "v1" "pods" => Pod;
    }
    informers
}

fn scope(resource: &Resource) -> Scope {
    let scope = Scope::all(resource);
    match resource.plural.as_ref() {
        // Pods that have ended take no room.
        "pods" => scope.fields("status.phase!=Succeeded,status.phase!=Failed"),
        _ => scope,
    }
}

/// False when the server says it has no such kind; any other trouble is the informer's to retry.
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
) -> informer::Handle
where
    V: DeserializeOwned + HasMeta + Send + Sync + 'static,
{
    let mut informer = Informer::<V>::new(client, scope);
    let inputs = inputs.clone();
    informer.on_change(move |change| {
        let input = match change {
            Change::Added(object) | Change::Updated { new: object, .. } => Input::Upsert(wrap(object.clone())),
            Change::Deleted(object) => Input::Delete(wrap(object.clone())),
            Change::Synced => return,
        };
        // The owner is gone only when the process is about to stop.
        let _ = inputs.send(input);
    });
    informer.spawn()
}
