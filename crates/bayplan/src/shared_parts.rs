//! The parts of `bayplan up` on a store that other members of the cluster share: each works while it leads.

use std::time::Duration;

use anyhow::Result;
use bayplan_client::Client;
use bayplan_client::leader_election::{self, Elector};
use bayplan_runner::controllers::manager::run_controller_manager;
use bayplan_runner::controllers::{ControllersConfig, create_default_class};
use bayplan_runner::decision_log::DecisionLogConfig;
use bayplan_runner::metrics::process_registry;
use bayplan_runner::nodes::{known_nodes, run_nodes};
use bayplan_runner::scheduler::{self, SchedulerConfig, run_scheduler};
use bayplan_runner::telemetry::telemetry;
use bayplan_sim::FleetConfig;
use serde_json::Value;
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::up::Parts;

/// The Leases that members compete for; the first two are upstream's, so that its components stand by too.
const MANAGER_LEASE: &str = "kube-controller-manager";
const NODES_LEASE: &str = "bayplan-nodes";
/// Who has not become the leader by then is told that another member is; an election among newcomers is over sooner.
const STANDBY_AFTER: Duration = Duration::from_secs(3);

/// Which process simulates the nodes of the cluster.
pub(crate) struct SimulatedBy(Option<watch::Receiver<bool>>);

impl SimulatedBy {
    /// No other process knows of them.
    pub(crate) fn this_process() -> SimulatedBy {
        SimulatedBy(None)
    }

    /// Waits until it is known that another process does.
    pub(crate) async fn another(&mut self) {
        if let Some(elsewhere) = &mut self.0
            && elsewhere.wait_for(|elsewhere| *elsewhere).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Starts scheduler, controllers and nodes, each under a Lease. Who loses its Lease stands by, and does not end.
pub(crate) fn start(
    cluster: &Cluster,
    log: Option<DecisionLogConfig>,
    kubelets: Client,
    fleet: FleetConfig,
    registered: watch::Sender<usize>,
    stopping: watch::Receiver<bool>,
) -> Result<(Parts, SimulatedBy)> {
    let mut parts = Parts::new();
    let controllers = ControllersConfig {
        root_ca: Some(cluster.authority.clone()),
        simulated_volumes: true,
        ..ControllersConfig::default()
    };
    parts.spawn(manage(cluster.client("system:kube-controller-manager", &[])?, controllers, stopping.clone()));
    parts.spawn(schedule(cluster.client("system:kube-scheduler", &[])?, log, stopping.clone()));
    let (elsewhere, known) = watch::channel(false);
    match fleet.nodes {
        0 => drop(elsewhere.send(true)),
        _ => drop(parts.spawn(simulate(kubelets, fleet, registered, elsewhere, stopping))),
    }
    Ok((parts, SimulatedBy(Some(known))))
}

async fn manage(client: Client, config: ControllersConfig, stopping: watch::Receiver<bool>) -> Result<()> {
    loop {
        let (telemetry, _probe) = telemetry(process_registry());
        let election = leader_election::Config::new(MANAGER_LEASE);
        let managing =
            run_controller_manager(client.clone(), config.clone(), Some(election), telemetry, stopping.clone());
        match managing.await {
            Ok(()) => return Ok(()),
            Err(error) => tracing::warn!("the controllers stand by: {error}"),
        }
    }
}

async fn schedule(client: Client, log: Option<DecisionLogConfig>, stopping: watch::Receiver<bool>) -> Result<()> {
    loop {
        let config = SchedulerConfig { decision_log: log.clone(), ..SchedulerConfig::default() };
        match run_scheduler(client.clone(), config.with_leader_election(), stopping.clone()).await {
            Err(error @ scheduler::Error::LeaseLost) => tracing::warn!("the scheduler stands by: {error}"),
            end => return Ok(end?),
        }
    }
}

/// Runs the nodes while this process leads: two that simulate one node would undo each other's work.
async fn simulate(
    client: Client,
    fleet: FleetConfig,
    registered: watch::Sender<usize>,
    elsewhere: watch::Sender<bool>,
    mut stopping: watch::Receiver<bool>,
) -> Result<()> {
    loop {
        let mut elector = Elector::new(&client, leader_election::Config::new(NODES_LEASE), None);
        let leads = async {
            let acquire = elector.acquire();
            tokio::pin!(acquire);
            if tokio::time::timeout(STANDBY_AFTER, &mut acquire).await.is_err() {
                elsewhere.send_replace(true);
                acquire.await;
            }
        };
        tokio::select! {
            () = leads => {}
            _ = stopping.wait_for(|stop| *stop) => return Ok(()),
        }
        let known = known_nodes(&client).await?;
        let fleet = fleet.clone().with_nodes_named(known.iter().map(String::as_str));
        if !has_storage_classes(&client).await? {
            create_default_class(&client).await?;
        }
        tokio::select! {
            end = run_nodes(client.clone(), fleet, registered.clone(), stopping.clone()) => {
                elector.release().await;
                return Ok(end?);
            }
            () = elector.hold() => tracing::warn!("another member simulates the nodes from now on"),
        }
    }
}

/// Whether the cluster has any: one that does needs none of ours.
async fn has_storage_classes(client: &Client) -> Result<bool> {
    let answer = client.get("/apis/storage.k8s.io/v1/storageclasses?limit=1", "application/json").await?;
    let list: Value = serde_json::from_slice(&answer)?;
    Ok(list["items"].as_array().is_some_and(|items| !items.is_empty()))
}
