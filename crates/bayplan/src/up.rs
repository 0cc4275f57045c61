//! `bayplan up`: a whole cluster in this process, or on etcd one member of a cluster.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bayplan_bench::report::grouped;
use bayplan_client::Client;
use bayplan_runner::controllers::{ControllersConfig, SIGNERS, SigningKeyPair, create_default_class, run_controllers};
use bayplan_runner::nodes::{known_nodes, run_nodes};
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use bayplan_sim::FleetConfig;
use futures::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::args::Up;
use crate::ask::page::address::Address;
use crate::ask::page::{OwnPage, listen_again};
use crate::cluster::{Cluster, StandIn};
use crate::component;
use crate::greeting;
use crate::progress::Progress;
use crate::scheduler::default_configuration;
use crate::shared_parts::{self, SimulatedBy};
use crate::shutdown::StopSignals;

/// Upstream gives every API server of a cluster 5 s to learn that a namespace is closing before it is emptied, or one
/// that has not heard of it would still let objects in. Here the only server refuses them from the same instant on;
/// what it had admitted just before is stored long before this time is over.
const NAMESPACE_DELAY: Duration = Duration::from_millis(100);

/// The time between two renewals of a node's lease. A kubelet takes 10 s, so that a network may lose three of them;
/// here nothing lies between the nodes and the API server, and renewals are most of what idle nodes cost.
const LEASE_RENEWAL: Duration = Duration::from_secs(20);

/// A start that takes less needs no progress.
const QUIET_START: Duration = Duration::from_secs(1);

/// The scheduler, the controllers and the nodes: none ends by itself unless it cannot continue.
pub(crate) type Parts = JoinSet<Result<()>>;

/// Starts the cluster, greets when it is complete, and runs it until a signal stops it.
pub(crate) async fn run(args: Up) -> Result<()> {
    let started = Instant::now();
    let stop_requested = StopSignals::listen()?.requested();
    tokio::pin!(stop_requested);
    let shared = !args.etcd.etcd_servers.is_empty();
    let stand_in = StandIn { etcd: args.etcd.clone(), joins: shared, simulated_usage: true, ..StandIn::default() };
    let cluster = tokio::select! {
        // While it waits for etcd, nothing has begun.
        () = &mut stop_requested => return Ok(()),
        cluster = Cluster::start(&args.server, stand_in) => cluster?,
    };
    let kubelets = cluster.client("system:kubelets", &["system:masters"])?;
    let known = known_nodes(&kubelets).await.context("cannot list the nodes of an earlier run")?;
    let fleet = fleet(&args).with_nodes_named(known.iter().map(String::as_str));
    let log = args.decision_log.config(cluster.folder.decision_log().as_deref(), default_configuration()?);
    let scheduler = SchedulerConfig { decision_log: log.clone(), ..SchedulerConfig::default() };
    let page = if args.no_page { None } else { Some(start_page(&cluster, &scheduler, args.page_port).await?) };
    let (stop, stopping) = watch::channel(false);
    let (registered, registrations) = watch::channel(0);
    let (mut parts, mut nodes) = match shared {
        true => shared_parts::start(&cluster, log, kubelets, fleet.clone(), registered, stopping)?,
        false => {
            let parts = start_parts(&cluster, scheduler, kubelets, fleet.clone(), registered, stopping).await?;
            (parts, SimulatedBy::this_process())
        }
    };
    let mut outcome = tokio::select! {
        biased;
        () = &mut stop_requested => ControlFlow::Break(Ok(())),
        end = first_end(&mut parts) => ControlFlow::Break(end),
        () = nodes.another() => ControlFlow::Continue(None),
        () = all_registered(registrations, fleet.count(), &cluster.url, started) => ControlFlow::Continue(Some(&fleet)),
    };
    if let ControlFlow::Continue(fleet) = outcome {
        let page = page.as_ref().map(OwnPage::url);
        let mut out = std::io::stdout().lock();
        greeting::write_up(&mut out, &cluster, page.as_deref(), fleet, started.elapsed())?;
        outcome = tokio::select! {
            () = stop_requested => ControlFlow::Break(Ok(())),
            end = first_end(&mut parts) => ControlFlow::Break(end),
        };
    }
    let mut outcome = outcome.break_value().unwrap_or(Ok(()));
    stop.send_replace(true);
    if let Some(page) = page {
        page.stop().await;
    }
    while let Some(end) = parts.join_next().await {
        outcome = outcome.and(end.map_err(Into::into).flatten());
    }
    cluster.stop().await;
    outcome
}

/// Serves the page where the last run did, if it can: a tab that is open then finds it again.
async fn start_page(cluster: &Cluster, scheduler: &SchedulerConfig, asked: Option<u16>) -> Result<OwnPage> {
    let path = cluster.folder.page();
    let mut address = Address::open(&path)?;
    let listener = listen_again(asked, address.port).await?;
    address.port = Some(listener.local_addr()?.port());
    address.write(&path)?;
    // The scheduler's user may read all that decisions depend on.
    let client = cluster.client("system:kube-scheduler", &[])?.with_user_agent("bayplan-page")?;
    let log = scheduler.decision_log.as_ref().map(|log| log.path.as_path());
    OwnPage::start(&client, &scheduler.configuration, log, listener, &address.token).await
}

async fn start_parts(
    cluster: &Cluster,
    scheduling: SchedulerConfig,
    kubelets: Client,
    fleet: FleetConfig,
    registered: watch::Sender<usize>,
    stopping: watch::Receiver<bool>,
) -> Result<Parts> {
    let mut parts = Parts::new();
    let controllers = ControllersConfig {
        root_ca: Some(cluster.authority.clone()),
        token_signer: Some(component::token_signer(&cluster.service_account_key)?),
        namespace_delay: Some(NAMESPACE_DELAY),
        simulated_volumes: true,
        authorities: authorities(cluster),
        ..ControllersConfig::default()
    };
    let manager = cluster.client("system:kube-controller-manager", &[])?;
    parts.spawn(run_controllers(manager, controllers, stopping.clone()).map(Ok));
    let scheduler = cluster.client("system:kube-scheduler", &[])?;
    parts.spawn(run_scheduler(scheduler, scheduling, stopping.clone()).map(|end| Ok(end?)));
    create_default_class(&kubelets).await?;
    parts.spawn(run_nodes(kubelets, fleet, registered, stopping).map(|end| Ok(end?)));
    Ok(parts)
}

/// The cluster's own authority signs for every signer.
fn authorities(cluster: &Cluster) -> BTreeMap<String, SigningKeyPair> {
    let pair = cluster.signing.as_ref().into_iter();
    pair.flat_map(|pair| SIGNERS.map(|signer| (signer.to_owned(), pair.clone()))).collect()
}

async fn first_end(parts: &mut Parts) -> Result<()> {
    match parts.join_next().await {
        Some(end) => end.map_err(Into::into).flatten(),
        None => std::future::pending().await,
    }
}

/// Waits until every node is registered, and shows how many are.
async fn all_registered(mut registrations: watch::Receiver<usize>, nodes: usize, url: &str, started: Instant) {
    let mut progress = Progress::after(QUIET_START.saturating_sub(started.elapsed()));
    loop {
        let registered = *registrations.borrow_and_update();
        if registered >= nodes {
            return progress.clear();
        }
        let (done, of) = (grouped(registered as u64), grouped(nodes as u64));
        progress.report(&format!("{done} of {of} nodes are registered; the API server answers at {url}"));
        tokio::select! {
            Ok(()) = registrations.changed() => {}
            () = tokio::time::sleep_until(progress.next().into()) => {}
        }
    }
}

fn fleet(args: &Up) -> FleetConfig {
    FleetConfig {
        nodes: args.nodes as usize,
        template: args.each.template(),
        pod_start_delay: args.each.pod_start_delay.unsigned_abs(),
        lease_renewal: LEASE_RENEWAL,
        ..FleetConfig::default()
    }
}
