//! `bayplan scheduler`: the scheduler alone, against any API server.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use bayplan_client::Client;
use bayplan_runner::metrics::process_registry;
use bayplan_runner::ops_server::Endpoints;
use bayplan_runner::ops_server::health::{CheckedBy, Health};
use bayplan_runner::ops_server::pod_resources::PodResources;
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use bayplan_runner::telemetry::{Probe, telemetry};
use bayplan_scheduler::TieBreak;
use bayplan_scheduler::config;
use bayplan_scheduler::config::{API_VERSION, Configuration};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::args::Scheduler;
use crate::component::{self, Identity};
use crate::shutdown::StopSignals;
use crate::traces::Traces;
use crate::yaml;

const IDENTITY: Identity = Identity { name: "kube-scheduler", secure_port: 10259 };

/// Runs the scheduler until a signal stops it.
pub(crate) async fn run(args: Scheduler) -> Result<()> {
    if let Some(form) = &args.component.version {
        return component::print_version(form);
    }
    component::check(&args.component, &args.connection)?;
    let (completed, configuration) = configuration(&args)?;
    if let Some(path) = &args.write_config_to {
        return write_config(path, &completed, &configuration);
    }
    let signals = StopSignals::listen()?;
    let listener = component::listen(&args.component, IDENTITY)?;
    let registry = process_registry();
    let from_file = configuration.client_connection.kubeconfig.as_str();
    let kubeconfig =
        if from_file.is_empty() { args.connection.kubeconfig.as_deref() } else { Some(Path::new(from_file)) };
    let client = component::connect(kubeconfig, args.connection.master.as_deref(), IDENTITY, &registry).await?;

    let instance = bayplan_client::leader_election::hostname();
    let traces = Traces::start(&args.component.metrics_and_logs, IDENTITY.name, &instance, &registry)?;
    let (telemetry, probe) = telemetry(registry);
    let max = args.pod_max_in_unschedulable_pods_duration.unsigned();
    let config = SchedulerConfig {
        configuration,
        max_in_unschedulable: Some(SignedDuration::try_from(max)?),
        telemetry: Some(telemetry),
        decision_log: args.decision_log.config(None, completed.clone()),
        tracer: traces.tracer.clone(),
        ..SchedulerConfig::default()
    }
    .with_leader_election();
    let (stop, stopping) = watch::channel(false);
    let server = match listener {
        Some(listener) => {
            let endpoints = endpoints(&probe, &config, stopping.clone(), completed);
            Some(component::serve(&args.component, IDENTITY, listener, &client, endpoints).await?)
        }
        None => None,
    };
    log_start(&client, &config);
    let outcome = component::until_stopped(signals, &stop, run_scheduler(client, config, stopping)).await;
    if let Some(server) = server {
        server.stop().await;
    }
    traces.stop().await;
    Ok(outcome?)
}

/// Says what this process does, for whom and where.
fn log_start(client: &Client, config: &SchedulerConfig) {
    let profiles: Vec<&str> =
        config.configuration.profiles.iter().filter_map(|profile| profile.scheduler_name.as_deref()).collect();
    let lease = component::lease_name(config.leader_election.as_ref());
    tracing::info!(
        server = client.host(),
        profiles = profiles.join(","),
        lease,
        "scheduling the pods of these profiles"
    );
}

fn endpoints(probe: &Probe, config: &SchedulerConfig, stopping: watch::Receiver<bool>, completed: Value) -> Endpoints {
    let mut health = Health::default();
    if let Some(rules) = &config.leader_election {
        health = probe.watch_election(health, &rules.name, rules.lease_duration);
    }
    let synced = probe.clone();
    let health = health
        .check("shutdown", CheckedBy::READYZ, move || match *stopping.borrow() {
            true => Err("process is shutting down".into()),
            false => Ok(()),
        })
        .check("sched-handler-sync", CheckedBy::READYZ, move || match synced.is_synced() {
            true => Ok(()),
            false => Err("handlers are not fully synchronized".into()),
        });
    Endpoints {
        health,
        metrics: probe.registry().clone(),
        refresh: Some(probe.refresh()),
        pod_resources: Some(PodResources::new(probe.pods(config.leader_election.is_some()))),
        config: json!({ "componentconfig": completed }),
        pages: component::pages(IDENTITY.name),
    }
}

/// The configuration when nothing is said, with all its defaults.
pub(crate) fn default_configuration() -> Result<Value> {
    Ok(config::load(&json!({ "apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration" }).to_string())?)
}

/// The configuration of the file, or the default one, with what the command line says about it: as it would be
/// written, and as it is used.
fn configuration(args: &Scheduler) -> Result<(Value, Configuration)> {
    let (text, origin) = match &args.config {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            (text, format!("cannot use {}", path.display()))
        }
        None => {
            let empty = json!({ "apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration" });
            (empty.to_string(), "cannot use these flags".to_owned())
        }
    };
    let mut completed = config::load(&text).with_context(|| origin.clone())?;
    let mut throttled = config::chooses_budget(&text);
    match &args.config {
        Some(_) => warn_ignored(args),
        None => throttled = apply_deprecated(args, &mut completed),
    }
    component::apply_election(&args.election, &mut completed["leaderElection"]);
    let mut configuration = Configuration::from_completed(completed.clone()).with_context(|| origin)?;
    configuration.client_connection.chosen = throttled;
    let election = &configuration.leader_election;
    let (renew, retry) = (election.renew_deadline.0 as f64, election.retry_period.0 as f64);
    ensure!(
        !election.leader_elect || renew > component::RENEW_JITTER * retry,
        "couldn't create leader elector: renewDeadline must be greater than retryPeriod*JitterFactor"
    );
    Ok((completed, configuration))
}

/// Flags that a configuration file took the place of; true when they choose a budget of requests.
fn apply_deprecated(args: &Scheduler, completed: &mut Value) -> bool {
    let flags = &args.connection;
    let connection = &mut completed["clientConnection"];
    if let Some(path) = &flags.kubeconfig {
        connection["kubeconfig"] = path.display().to_string().into();
    }
    if let Some(kind) = &flags.kube_api_content_type {
        connection["contentType"] = kind.as_str().into();
    }
    if let Some(qps) = flags.kube_api_qps {
        // The shortest decimal, not the binary fraction nearest to it.
        connection["qps"] = serde_json::from_str(&qps.to_string()).unwrap_or_default();
    }
    if let Some(burst) = flags.kube_api_burst {
        connection["burst"] = burst.into();
    }
    if let Some(profiling) = flags.profiling {
        completed["enableProfiling"] = profiling.into();
    }
    if let Some(profiling) = flags.contention_profiling {
        completed["enableContentionProfiling"] = profiling.into();
    }
    flags.kube_api_qps.is_some() || flags.kube_api_burst.is_some()
}

/// The file wins over the deprecated flags; who gives both should know.
fn warn_ignored(args: &Scheduler) {
    let flags = &args.connection;
    let given = [
        ("--kube-api-qps", flags.kube_api_qps.is_some()),
        ("--kube-api-burst", flags.kube_api_burst.is_some()),
        ("--kube-api-content-type", flags.kube_api_content_type.is_some()),
        ("--profiling", flags.profiling.is_some()),
        ("--contention-profiling", flags.contention_profiling.is_some()),
    ];
    for (flag, _) in given.iter().filter(|(_, given)| *given) {
        tracing::warn!("{flag} is ignored: the file of --config says it");
    }
}

/// Writes what would be used, once it is known that it could be.
fn write_config(path: &Path, completed: &Value, configuration: &Configuration) -> Result<()> {
    let registry = bayplan_scheduler::Registry::default();
    bayplan_scheduler::Scheduler::new(configuration, &registry, TieBreak::SmallestName)?;
    std::fs::write(path, yaml::write(completed)).with_context(|| format!("cannot write {}", path.display()))
}
