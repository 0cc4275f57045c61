//! `bayplan controller-manager`: the control loops alone, against any API server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bayplan_client::{Client, leader_election};
use bayplan_runner::controllers::manager::run_controller_manager;
use bayplan_runner::controllers::{
    AnonymousClient, ControllersConfig, SharedTracer, TokenSigner, known, names, running,
};
use bayplan_runner::metrics::process_registry;
use bayplan_runner::ops_server::Endpoints;
use bayplan_runner::ops_server::health::{CheckedBy, Health};
use bayplan_runner::telemetry::{Probe, telemetry};
use bayplan_scheduler::config::GoDuration;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::args::ControllerManager;
use crate::args::component::LeaderElection;
use crate::args::endpoints::Endpoints as EndpointsFlags;
use crate::component::{self, Identity};
use crate::shutdown::StopSignals;
use crate::traces::Traces;

const IDENTITY: Identity = Identity { name: "kube-controller-manager", secure_port: 10257 };

/// Upstream's budget of each loop, of which one half may be chosen.
const UPSTREAM_LIMIT: (f32, i32) = (20.0, 30);

/// Runs the controllers until a signal stops it.
pub(crate) async fn run(args: ControllerManager) -> Result<()> {
    if let Some(form) = &args.component.version {
        return component::print_version(form);
    }
    component::check(&args.component, &args.connection)?;
    let mut config = config(&args)?;
    let election = election(&args.election)?;
    let signals = StopSignals::listen()?;
    let listener = component::listen(&args.component, IDENTITY)?;
    let registry = process_registry();
    let connection = &args.connection;
    let client =
        component::connect(connection.kubeconfig.as_deref(), connection.master.as_deref(), IDENTITY, &registry).await?;
    if args.controllers.use_service_account_credentials {
        let anonymous = component::connect_anonymously(connection.kubeconfig.as_deref(), connection.master.as_deref())?;
        config.anonymous = Some(AnonymousClient(anonymous));
    }
    let instance = leader_election::hostname();
    let traces = Traces::start(&args.component.metrics_and_logs, IDENTITY.name, &instance, &registry)?;
    config.tracer = traces.tracer.clone().map(SharedTracer);
    let (telemetry, probe) = telemetry(registry);
    let (stop, stopping) = watch::channel(false);
    let server = match listener {
        Some(listener) => {
            let endpoints = endpoints(&probe, &config, election.as_ref(), configz(&args, &config));
            Some(component::serve(&args.component, IDENTITY, listener, &client, endpoints).await?)
        }
        None => None,
    };
    log_start(&client, &config, election.as_ref());
    let manager = run_controller_manager(client, config, election, telemetry, stopping);
    let outcome = component::until_stopped(signals, &stop, manager).await;
    if let Some(server) = server {
        server.stop().await;
    }
    traces.stop().await;
    Ok(outcome?)
}

/// Says what this process does, for whom and where.
fn log_start(client: &Client, config: &ControllersConfig, election: Option<&leader_election::Config>) {
    let (controllers, lease) = (running(config).join(","), component::lease_name(election));
    tracing::info!(server = client.host(), controllers, lease, "running these controllers");
}

fn config(args: &ControllerManager) -> Result<ControllersConfig> {
    let flags = &args.controllers;
    let choice = names::select(&flags.controllers, &known()).map_err(|why| anyhow::anyhow!("--controllers: {why}"))?;
    for name in &choice.absent {
        tracing::warn!("--controllers: Bayplan has no {name}");
    }
    for flag in flags.unsupported.given() {
        tracing::warn!("{flag} is ignored: Bayplan has no controller that it is for");
    }
    let mut controllers = choice.controllers;
    if !flags.enable_garbage_collector {
        controllers.retain(|name| name != "garbage-collector-controller");
        controllers.push("-garbage-collector-controller".into());
    }
    let root_ca = match &flags.root_ca_file {
        Some(path) => Some(std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?),
        None => None,
    };
    let workers = [
        ("deployment-controller", flags.concurrent_deployment_syncs),
        ("replicaset-controller", flags.concurrent_replicaset_syncs),
        ("replicationcontroller-controller", flags.concurrent_rc_syncs),
        ("daemonset-controller", flags.concurrent_daemonset_syncs),
        ("statefulset-controller", flags.concurrent_statefulset_syncs),
        ("job-controller", flags.concurrent_job_syncs),
        ("cronjob-controller", flags.concurrent_cron_job_syncs),
        ("ttl-after-finished-controller", flags.concurrent_ttl_after_finished_syncs),
        ("resourcequota-controller", flags.concurrent_resource_quota_syncs),
        ("serviceaccount-token-controller", flags.concurrent_serviceaccount_token_syncs),
        ("garbage-collector-controller", flags.concurrent_gc_syncs),
        ("namespace-controller", flags.concurrent_namespace_syncs),
        ("resourceclaim-controller", flags.concurrent_resource_claim_syncs),
        ("ephemeral-volume-controller", flags.concurrent_ephemeralvolume_syncs),
        ("horizontal-pod-autoscaler-controller", flags.autoscaling.concurrent_horizontal_pod_autoscaler_syncs),
        ("endpoints-controller", flags.endpoints.concurrent_endpoint_syncs),
        ("endpointslice-controller", flags.endpoints.concurrent_service_endpoint_syncs),
        ("endpointslice-mirroring-controller", flags.endpoints.mirroring_concurrent_service_endpoint_syncs),
    ];
    let given = workers.into_iter().filter_map(|(name, many)| Some((name.to_owned(), many? as usize)));
    let mut config = ControllersConfig {
        controllers,
        root_ca,
        token_signer: token_signer(flags.service_account_private_key_file.as_deref())?,
        workers: given.collect(),
        limit: limit(args),
        autoscaler: flags.autoscaling.config(),
        authorities: flags.signing.authorities()?,
        signing_duration: flags.signing.duration(),
        forces_detach: !flags.disable_force_detach_on_timeout,
        ..ControllersConfig::default()
    };
    let nodes = &mut config.node_lifecycle;
    set_duration(&mut nodes.monitor_period, flags.node_monitor_period);
    set_duration(&mut nodes.monitor_grace_period, flags.node_monitor_grace_period);
    set_duration(&mut nodes.startup_grace_period, flags.node_startup_grace_period);
    set(&mut nodes.eviction_rate, flags.node_eviction_rate);
    set(&mut nodes.secondary_eviction_rate, flags.secondary_node_eviction_rate);
    set(&mut nodes.large_cluster_size_threshold, flags.large_cluster_size_threshold);
    set(&mut nodes.unhealthy_zone_threshold, flags.unhealthy_zone_threshold);
    set_duration(&mut config.resync_min, flags.min_resync_period);
    set_duration(&mut config.quota_period, flags.resource_quota_sync_period);
    set(&mut config.terminated_pods_max, flags.terminated_pod_gc_threshold);
    set_endpoints(&mut config, &flags.endpoints);
    Ok(config)
}

fn set_endpoints(config: &mut ControllersConfig, flags: &EndpointsFlags) {
    let number = |flag: Option<u32>| flag.map(|number| number as usize);
    set_duration(&mut config.endpoints_batch_period, flags.endpoint_updates_batch_period);
    set(&mut config.endpoint_slices.endpoints_max, number(flags.max_endpoints_per_slice));
    set_duration(&mut config.endpoint_slices.batch_period, flags.endpointslice_updates_batch_period);
    let mirroring = &mut config.endpoint_slice_mirroring;
    set(&mut mirroring.endpoints_max, number(flags.mirroring_max_endpoints_per_subset));
    set_duration(&mut mirroring.batch_period, flags.mirroring_endpointslice_updates_batch_period);
}

/// Signs tokens with the key of a file.
fn token_signer(path: Option<&Path>) -> Result<Option<TokenSigner>> {
    let Some(path) = path else { return Ok(None) };
    let pem = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let signer = component::token_signer(&pem);
    signer.map(Some).with_context(|| format!("--service-account-private-key-file {}", path.display()))
}

fn set<T>(field: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *field = value;
    }
}

fn set_duration(field: &mut Duration, flag: Option<GoDuration>) {
    set(field, flag.map(GoDuration::unsigned));
}

fn limit(args: &ControllerManager) -> Option<(f64, u32)> {
    let flags = &args.connection;
    if flags.kube_api_qps.is_none() && flags.kube_api_burst.is_none() {
        return None;
    }
    let qps = flags.kube_api_qps.unwrap_or(UPSTREAM_LIMIT.0);
    let burst = flags.kube_api_burst.unwrap_or(UPSTREAM_LIMIT.1);
    (qps > 0.0).then_some((f64::from(qps), u32::try_from(burst).unwrap_or(0)))
}

fn election(flags: &LeaderElection) -> Result<Option<leader_election::Config>> {
    if flags.leader_elect == Some(false) {
        return Ok(None);
    }
    let name = flags.leader_elect_resource_name.as_deref().unwrap_or(IDENTITY.name);
    let mut config = leader_election::Config::new(name);
    if let Some(namespace) = &flags.leader_elect_resource_namespace {
        config.namespace.clone_from(namespace);
    }
    set_duration(&mut config.lease_duration, flags.leader_elect_lease_duration);
    set_duration(&mut config.renew_deadline, flags.leader_elect_renew_deadline);
    set_duration(&mut config.retry_period, flags.leader_elect_retry_period);
    let refused = "couldn't create leader elector";
    ensure!(
        config.lease_duration > config.renew_deadline,
        "{refused}: leaseDuration must be greater than renewDeadline"
    );
    ensure!(
        config.renew_deadline > config.retry_period.mul_f64(component::RENEW_JITTER),
        "{refused}: renewDeadline must be greater than retryPeriod*JitterFactor"
    );
    Ok(Some(config))
}

fn endpoints(
    probe: &Probe,
    config: &ControllersConfig,
    election: Option<&leader_election::Config>,
    configz: Value,
) -> Endpoints {
    let mut health = Health::default();
    if let Some(rules) = election {
        health = probe.watch_election(health, &rules.name, rules.lease_duration);
    }
    for name in running(config) {
        // A loop retries what fails and survives what panics: as long as the process answers, it runs.
        health = health.check(name, CheckedBy::HEALTHZ, || Ok(()));
    }
    Endpoints {
        health,
        metrics: probe.registry().clone(),
        refresh: Some(probe.refresh()),
        pod_resources: None,
        config: json!({ "kubecontrollermanager.config.k8s.io": configz }),
        pages: component::pages(IDENTITY.name),
    }
}

/// What can be configured of upstream's configuration, in its fields.
fn configz(args: &ControllerManager, config: &ControllersConfig) -> Value {
    let mut election = json!({
        "leaderElect": true, "leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s",
        "resourceLock": "leases", "resourceName": IDENTITY.name, "resourceNamespace": "kube-system",
    });
    component::apply_election(&args.election, &mut election);
    let flags = &args.controllers;
    let (endpoints, workers) = (&flags.endpoints, |flag: Option<u32>| flag.unwrap_or(5));
    let period = |period: Duration| GoDuration::from(period).to_string();
    json!({
        "apiVersion": "kubecontrollermanager.config.k8s.io/v1alpha1",
        "kind": "KubeControllerManagerConfiguration",
        "Generic": {
            "Controllers": config.controllers,
            "LeaderElection": election,
            "ClientConnection": {
                "QPS": args.connection.kube_api_qps.unwrap_or(UPSTREAM_LIMIT.0),
                "Burst": args.connection.kube_api_burst.unwrap_or(UPSTREAM_LIMIT.1),
            },
        },
        "DeploymentController": { "ConcurrentDeploymentSyncs": flags.concurrent_deployment_syncs.unwrap_or(5) },
        "ReplicaSetController": { "ConcurrentRSSyncs": flags.concurrent_replicaset_syncs.unwrap_or(5) },
        "ReplicationController": { "ConcurrentRCSyncs": flags.concurrent_rc_syncs.unwrap_or(5) },
        "NamespaceController": { "ConcurrentNamespaceSyncs": flags.concurrent_namespace_syncs.unwrap_or(10) },
        "EndpointController": {
            "ConcurrentEndpointSyncs": workers(endpoints.concurrent_endpoint_syncs),
            "EndpointUpdatesBatchPeriod": period(config.endpoints_batch_period),
        },
        "EndpointSliceController": {
            "ConcurrentServiceEndpointSyncs": workers(endpoints.concurrent_service_endpoint_syncs),
            "MaxEndpointsPerSlice": config.endpoint_slices.endpoints_max,
            "EndpointUpdatesBatchPeriod": period(config.endpoint_slices.batch_period),
        },
        "EndpointSliceMirroringController": {
            "MirroringConcurrentServiceEndpointSyncs": workers(endpoints.mirroring_concurrent_service_endpoint_syncs),
            "MirroringMaxEndpointsPerSubset": config.endpoint_slice_mirroring.endpoints_max,
            "MirroringEndpointUpdatesBatchPeriod": period(config.endpoint_slice_mirroring.batch_period),
        },
        "GarbageCollectorController": {
            "EnableGarbageCollector": flags.enable_garbage_collector,
            "ConcurrentGCSyncs": flags.concurrent_gc_syncs.unwrap_or(20),
        },
    })
}
