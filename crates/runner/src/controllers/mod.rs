//! Runs the control loops: shared watches into one cache, a work queue and workers for each loop.
//!
//! ```text
//!   informers ─▶ cache ─▶ observe ─▶ queue ─▶ workers ─▶ sync ─▶ API server
//!   discovery (every 30 s) ─▶ monitors ─▶ garbage collector's graph, numbers of objects for quotas
//! ```

mod accounts;
mod attacher;
mod discovery;
pub mod manager;
mod monitors;
pub mod names;
mod provisioner;
mod signing;
mod workers;
mod write_log;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bayplan_client::informer;
use bayplan_client::metrics::QueueMetrics;
use bayplan_client::{Client, EventRecorder, Informer, Scope, WorkQueue};
pub use bayplan_controllers::TokenSigner;
use bayplan_controllers::discovery::Resources;
use bayplan_controllers::{
    AnyDelta, Apply, AttachDetachController, AttributesClassProtectionController, Cache,
    CertificateApprovingController, CertificateCleanerController, CertificateSigningController,
    ClaimProtectionController, ClusterRoleAggregationController, Controller, CronJobController, DaemonSetController,
    DeploymentController, DisruptionController, EndpointSliceConfig, EndpointSliceController,
    EndpointSliceMirroringConfig, EndpointSliceMirroringController, EndpointsController, EphemeralVolumeController,
    GarbageCollector, HorizontalPodAutoscalerController, JobController, Kind, NamespaceController, NodeLifecycleConfig,
    NodeLifecycleController, NodeTtlController, PersistentVolumeController, PodGcController, ReplicaSetController,
    ResourceClaimController, ResourceQuotaController, RootCaPublisher, ServiceAccountController,
    ServiceAccountTokenController, ServiceCidrController, StatefulSetController, TERMINATED_PODS_MAX,
    TaintEvictionController, TokenCleanerController, TtlAfterFinishedController, Visitor, VolumeExpansionController,
    VolumeProtectionController,
};
use bayplan_metrics::Gauge;
use bayplan_model::meta::HasMeta;
use bayplan_model::trace::Tracer;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

use self::accounts::Accounts;
pub use self::accounts::AnonymousClient;
use self::attacher::SimulatedAttacher;
use self::provisioner::SimulatedProvisioner;
pub use self::provisioner::create_default_class;
use self::signing::Authorities;
pub use self::signing::{SIGNERS, SigningKeyPair, check as check_authority};
use crate::telemetry::Telemetry;
pub use bayplan_controllers::AutoscalerConfig;

/// Which control loops run, and their settings.
#[derive(Clone, Debug)]
pub struct ControllersConfig {
    /// Upstream's `--controllers`: `*` for all, `name` for one, `-name` for all but one.
    pub controllers: Vec<String>,
    /// The CA that pods verify the API server by, as PEM; nothing is published when absent.
    pub root_ca: Option<String>,
    /// Signs the tokens of service accounts that are kept in secrets; such secrets are left alone when absent.
    pub token_signer: Option<TokenSigner>,
    /// How long the namespace controller waits before it empties a namespace; upstream's 5 s when absent.
    pub namespace_delay: Option<Duration>,
    /// When nodes count as unreachable, and how fast their pods are evicted.
    pub node_lifecycle: NodeLifecycleConfig,
    /// Upstream's `--terminated-pod-gc-threshold`.
    pub terminated_pods_max: usize,
    /// How autoscalers follow their metrics.
    pub autoscaler: AutoscalerConfig,
    /// The authorities that sign certificates, by signer.
    pub authorities: BTreeMap<String, SigningKeyPair>,
    /// Upstream's `--cluster-signing-duration`: how long signed certificates live at most.
    pub signing_duration: Duration,
    /// Upstream's `--endpoint-updates-batch-period`.
    pub endpoints_batch_period: Duration,
    /// How endpoints are packed into slices.
    pub endpoint_slices: EndpointSliceConfig,
    /// How Endpoints are mirrored into slices.
    pub endpoint_slice_mirroring: EndpointSliceMirroringConfig,
    /// Whether volumes are taken from nodes that are not ready after six minutes; upstream's
    /// `--disable-force-detach-on-timeout` is its opposite.
    pub forces_detach: bool,
    /// Whether claims get volumes that exist as objects only, for clusters of simulated nodes.
    pub simulated_volumes: bool,
    /// How many keys a loop reconciles at the same time, by name; each loop has a default.
    pub workers: BTreeMap<String, usize>,
    /// Upstream's `--min-resync-period`: every loop observes all objects again at a period between this and twice this;
    /// 0 for never.
    pub resync_min: Duration,
    /// Upstream's `--resource-quota-sync-period`: how often every quota is counted again; 0 for never.
    pub quota_period: Duration,
    /// Requests per second and burst of each loop; nothing is throttled when absent.
    pub limit: Option<(f64, u32)>,
    /// Through which loops talk as service accounts of their own; absent, all act as the process.
    pub anonymous: Option<AnonymousClient>,
    /// Where spans of reconciles go, if they are traced.
    pub tracer: Option<SharedTracer>,
}

/// Upstream's `--min-resync-period`.
pub const RESYNC_MIN: Duration = Duration::from_secs(12 * 3600);

/// Upstream's `--cluster-signing-duration`.
pub const SIGNING_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);

impl Default for ControllersConfig {
    fn default() -> Self {
        ControllersConfig {
            controllers: vec!["*".into()],
            root_ca: None,
            token_signer: None,
            namespace_delay: None,
            node_lifecycle: NodeLifecycleConfig::default(),
            terminated_pods_max: TERMINATED_PODS_MAX,
            autoscaler: AutoscalerConfig::default(),
            authorities: BTreeMap::new(),
            signing_duration: SIGNING_DURATION,
            endpoints_batch_period: Duration::ZERO,
            endpoint_slices: EndpointSliceConfig::default(),
            endpoint_slice_mirroring: EndpointSliceMirroringConfig::default(),
            forces_detach: true,
            simulated_volumes: false,
            workers: BTreeMap::new(),
            resync_min: RESYNC_MIN,
            quota_period: bayplan_controllers::resource_quota::SYNC_PERIOD,
            limit: None,
            anonymous: None,
            tracer: None,
        }
    }
}

impl ControllersConfig {
    /// Whether the loop of this name is selected.
    fn runs(&self, name: &str) -> bool {
        let says = |text: &str| self.controllers.iter().any(|known| known == text);
        let by_default = !names::OFF_BY_DEFAULT.contains(&name);
        says(name) || (by_default && says("*") && !says(&format!("-{name}")))
    }
}

/// Where spans go; a configuration shows no more of it than that it is there.
#[derive(Clone)]
pub struct SharedTracer(pub Arc<dyn Tracer>);

impl std::fmt::Debug for SharedTracer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SharedTracer")
    }
}

/// One control loop with its queue.
#[derive(Clone)]
struct Loop {
    controller: Arc<dyn Controller>,
    queue: WorkQueue<String>,
}

impl Loop {
    fn new(controller: Arc<dyn Controller>) -> Self {
        let queue = WorkQueue::new(controller.retry_limits());
        Loop { controller, queue }
    }

    fn observe(&self, delta: &AnyDelta) {
        for wakeup in self.controller.observe(delta) {
            self.queue.add_after(wakeup.key, wakeup.after);
        }
    }
}

/// The names of all loops that [`names::select`] selects from.
pub fn known() -> Vec<&'static str> {
    let token_signer = Some(TokenSigner::new(|_| Err("this one only has a name".into())));
    let controllers = names::OFF_BY_DEFAULT.into_iter().chain(["*"]).map(str::to_owned).collect();
    let root_ca = Some(String::new());
    running(&ControllersConfig { controllers, root_ca, token_signer, ..ControllersConfig::default() })
}

/// The names of the loops that run with this configuration.
pub fn running(config: &ControllersConfig) -> Vec<&'static str> {
    let resources = Resources::default();
    let collector = Arc::new(GarbageCollector::new(resources.clone()));
    let loops = assemble(&Arc::default(), &resources, &collector, config);
    loops.iter().map(|each| each.controller.name()).collect()
}

/// Runs the control loops until `shutdown` is true; reconciles in progress are finished first.
///
/// The future is boxed so that it is compiled in this crate, and not once more in each crate that awaits it.
pub fn run_controllers(
    client: Client,
    config: ControllersConfig,
    shutdown: watch::Receiver<bool>,
) -> BoxFuture<'static, ()> {
    Box::pin(run_controllers_with_telemetry(client, config, None, shutdown))
}

/// Runs the control loops as [`run_controllers`] does, with metrics and health.
async fn run_controllers_with_telemetry(
    client: Client,
    config: ControllersConfig,
    telemetry: Option<Telemetry>,
    mut shutdown: watch::Receiver<bool>,
) {
    let cache = Arc::new(Cache::default());
    let resources = Resources::default();
    let collector = Arc::new(GarbageCollector::new(resources.clone()));
    let loops = assemble(&cache, &resources, &collector, &config);
    let scrapes = telemetry.map(|telemetry| record_metrics(telemetry, &loops));
    let informers = start_informers(&client, &cache, &loops, config.resync_min);
    let synced = async {
        for informer in &informers {
            informer.synced().await;
        }
    };
    tokio::select! {
        biased;
        () = synced => {}
        _ = shutdown.wait_for(|stop| *stop) => return,
    }
    if let Some(scrapes) = &scrapes {
        scrapes.synced.notify_one();
    }
    let mut accounts = Accounts::new(client.clone(), config.anonymous.clone());
    let clients = async {
        let mut clients = BTreeMap::new();
        for each in &loops {
            let name = each.controller.name();
            clients.insert(name, accounts.client(name).await);
        }
        clients
    };
    let clients = tokio::select! {
        biased;
        clients = clients => clients,
        _ = shutdown.wait_for(|stop| *stop) => return,
    };
    let mut running = JoinSet::new();
    let (following, others): (Vec<Loop>, Vec<Loop>) =
        loops.iter().cloned().partition(|each| each.controller.follows_objects());
    for each in &others {
        spawn_workers(&mut running, each, &clients[each.controller.name()], &config);
    }
    let mut monitor = monitors::start(&client, &resources, following.clone());
    let known = async {
        let started = monitor.started.notified();
        started.await;
    };
    tokio::select! {
        biased;
        () = known => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    for each in &following {
        spawn_workers(&mut running, each, &clients[each.controller.name()], &config);
    }
    // The sender is dropped only when the process is about to end.
    let _ = shutdown.wait_for(|stop| *stop).await;
    for each in &loops {
        each.queue.shut_down();
    }
    drop(informers);
    monitor.stop().await;
    while running.join_next().await.is_some() {}
}

/// The task that updates metrics before a scrape; it ends when this is dropped.
struct ScrapeTask {
    synced: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for ScrapeTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Registers the metrics of the loops, and updates them before each scrape.
fn record_metrics(mut telemetry: Telemetry, loops: &[Loop]) -> ScrapeTask {
    let queues = QueueMetrics::new(&telemetry.registry);
    let running = telemetry.registry.family::<Gauge>(
        "running_managed_controllers",
        "[ALPHA] The control loops that run, 1 for each.",
        &["manager", "name"],
        (),
    );
    for each in loops {
        each.queue.record_metrics(each.controller.name(), &queues);
        running.get(&["kube-controller-manager", each.controller.name()]).set(1.0);
    }
    let (loops, synced) = (loops.to_vec(), Arc::new(Notify::new()));
    let bell = Arc::clone(&synced);
    let task = tokio::spawn(async move {
        loop {
            tokio::select! {
                scrape = telemetry.scraped() => {
                    loops.iter().for_each(|each| each.queue.publish());
                    scrape.acknowledge();
                }
                () = bell.notified() => telemetry.set_synced(),
            }
        }
    });
    ScrapeTask { synced, task }
}

fn spawn_workers(running: &mut JoinSet<()>, each: &Loop, client: &Client, config: &ControllersConfig) {
    let client = match config.limit {
        Some((requests_per_second, burst)) => &client.clone().with_limit(requests_per_second, burst),
        None => client,
    };
    let name = each.controller.name();
    let workers = config.workers.get(name).copied().unwrap_or_else(|| each.controller.workers());
    let recorder = EventRecorder::core(client, each.controller.component());
    for wakeup in each.controller.start() {
        each.queue.add_after(wakeup.key, wakeup.after);
    }
    for _ in 0..workers {
        running.spawn(workers::work(each.clone(), client.clone(), recorder.clone(), config.tracer.clone()));
    }
}

/// The loops that the configuration selects, for a shell of the caller's own: one that steps them under virtual time.
pub fn controllers(
    cache: &Arc<Cache>,
    resources: &Resources,
    collector: &Arc<GarbageCollector>,
    config: &ControllersConfig,
) -> Vec<Arc<dyn Controller>> {
    assemble(cache, resources, collector, config).into_iter().map(|each| each.controller).collect()
}

/// The loops that the configuration selects.
fn assemble(
    cache: &Arc<Cache>,
    resources: &Resources,
    collector: &Arc<GarbageCollector>,
    config: &ControllersConfig,
) -> Vec<Loop> {
    let mut namespaces = NamespaceController::new(cache.clone(), resources.clone());
    if let Some(delay) = config.namespace_delay {
        namespaces = namespaces.with_delay(delay);
    }
    let mut all: Vec<Arc<dyn Controller>> = vec![
        Arc::new(DeploymentController::new(cache.clone())),
        Arc::new(ReplicaSetController::new(cache.clone())),
        Arc::new(ReplicaSetController::of_replication_controllers(cache.clone())),
        Arc::new(DaemonSetController::new(cache.clone())),
        Arc::new(StatefulSetController::new(cache.clone())),
        Arc::new(JobController::new(cache.clone())),
        Arc::new(CronJobController::new(cache.clone())),
        Arc::new(TtlAfterFinishedController::new(cache.clone())),
        Arc::new(HorizontalPodAutoscalerController::new(cache.clone(), resources.clone(), config.autoscaler)),
        Arc::new(CertificateApprovingController::new(cache.clone())),
        Arc::new(CertificateSigningController::new(
            cache.clone(),
            Arc::new(Authorities::new(&config.authorities)),
            config.signing_duration,
        )),
        Arc::new(CertificateCleanerController::new(cache.clone())),
        Arc::new(EndpointsController::new(cache.clone(), config.endpoints_batch_period)),
        Arc::new(EndpointSliceController::new(cache.clone(), config.endpoint_slices)),
        Arc::new(EndpointSliceMirroringController::new(cache.clone(), config.endpoint_slice_mirroring)),
        Arc::new(namespaces),
        Arc::new(DisruptionController::new(cache.clone(), resources.clone())),
        Arc::new(ServiceAccountController::new(cache.clone())),
        Arc::new(NodeLifecycleController::new(cache.clone(), config.node_lifecycle)),
        Arc::new(TaintEvictionController::new(cache.clone())),
        Arc::new(PodGcController::new(cache.clone(), config.terminated_pods_max)),
        Arc::new(ResourceClaimController::new(cache.clone())),
        Arc::new(ResourceQuotaController::new(cache.clone(), resources.clone(), config.quota_period)),
        collector.clone(),
    ];
    all.extend(volume_loops(cache, config.forces_detach));
    all.extend(cluster_loops(cache));
    if let Some(ca) = &config.root_ca {
        all.push(Arc::new(RootCaPublisher::new(cache.clone(), ca.clone())));
    }
    if let Some(signer) = &config.token_signer {
        let ca = config.root_ca.as_deref();
        all.push(Arc::new(ServiceAccountTokenController::new(cache.clone(), signer.clone(), ca)));
    }
    if config.simulated_volumes {
        all.push(Arc::new(SimulatedProvisioner::new(cache.clone())));
        all.push(Arc::new(SimulatedAttacher::new(cache.clone())));
    }
    all.into_iter().filter(|controller| config.runs(controller.name())).map(Loop::new).collect()
}

/// The loops over volumes and claims.
fn volume_loops(cache: &Arc<Cache>, forces_detach: bool) -> [Arc<dyn Controller>; 7] {
    [
        Arc::new(AttachDetachController::new(cache.clone(), forces_detach)),
        Arc::new(PersistentVolumeController::new(cache.clone())),
        Arc::new(ClaimProtectionController::new(cache.clone())),
        Arc::new(VolumeProtectionController::new(cache.clone())),
        Arc::new(AttributesClassProtectionController::new(cache.clone())),
        Arc::new(VolumeExpansionController::new(cache.clone())),
        Arc::new(EphemeralVolumeController::new(cache.clone())),
    ]
}

/// The loops over what belongs to the cluster as a whole.
fn cluster_loops(cache: &Arc<Cache>) -> [Arc<dyn Controller>; 4] {
    [
        Arc::new(ClusterRoleAggregationController::new(cache.clone())),
        Arc::new(NodeTtlController::new(cache.clone())),
        Arc::new(ServiceCidrController::new(cache.clone())),
        Arc::new(TokenCleanerController::new(cache.clone())),
    ]
}

/// Starts one informer for each kind that some loop watches.
fn start_informers(
    client: &Client,
    cache: &Arc<Cache>,
    loops: &[Loop],
    resync_min: Duration,
) -> Vec<informer::RunningInformer> {
    let kinds: BTreeSet<Kind> = loops.iter().flat_map(|each| each.controller.watches()).copied().collect();
    let mut starter = InformerStarter { client, cache, loops, resync_min, handles: Vec::new() };
    for kind in kinds {
        kind.visit(&mut starter);
    }
    starter.handles
}

struct InformerStarter<'a> {
    client: &'a Client,
    cache: &'a Arc<Cache>,
    loops: &'a [Loop],
    resync_min: Duration,
    handles: Vec<informer::RunningInformer>,
}

impl Visitor for InformerStarter<'_> {
    fn visit<T: HasMeta + DeserializeOwned + Send + Sync + 'static>(&mut self, kind: Kind, apply: Apply<T>) {
        let scope = Scope::all(&kind.resource()).fields(&kind.field_selector());
        let mut informer = Informer::<T>::new(self.client, scope);
        let wants = |each: &&Loop| each.controller.watches().contains(&kind);
        let interested: Vec<Loop> = self.loops.iter().filter(wants).cloned().collect();
        let cache = self.cache.clone();
        informer.on_delta(move |delta| {
            let delta = apply(&cache, delta.clone());
            interested.iter().for_each(|each| each.observe(&delta));
        });
        // Without this the ReplicaSet controller would wait for ever for its own write of a pod that was created and
        // deleted while the watch was down.
        let cache = self.cache.clone();
        informer.on_version(move |version| cache.bookmark(kind, version));
        informer.resync(self.resync_min);
        self.handles.push(informer.spawn());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_as_upstreams_flag_does() {
        let cases: [(&[&str], bool); 5] =
            [(&["*"], true), (&["*", "-a"], false), (&["a"], true), (&["b"], false), (&["-a"], false)];
        for (controllers, runs) in cases {
            let controllers = controllers.iter().map(ToString::to_string).collect();
            let config = ControllersConfig { controllers, ..ControllersConfig::default() };
            assert_eq!(config.runs("a"), runs, "{:?}", config.controllers);
        }
    }
}
