//! `bayplan up`: a whole cluster in this process. `bayplan apiserver`: its API server alone.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use bayplan_runner::controllers::{ControllersConfig, create_default_class, run_controllers};
use bayplan_runner::nodes::run_nodes;
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use bayplan_sim::{FleetConfig, NodeTemplate};
use futures::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::args::{Apiserver, Up};
use crate::cluster::Cluster;
use crate::data_folder::DataFolder;
use crate::shutdown;

/// Upstream gives every API server of a cluster 5 s to learn that a namespace is closing before it is emptied, or one
/// that has not heard of it would still let objects in. Here the only server refuses them from the same instant on;
/// what it had admitted just before is stored long before this time is over.
const NAMESPACE_DELAY: Duration = Duration::from_millis(100);

/// Starts the cluster, says so, and runs it until asked to stop.
pub(crate) async fn run(args: Up) -> Result<()> {
    let started = Instant::now();
    let cluster = Cluster::start(&args.server).await?;
    let (stop, stopping) = watch::channel(false);

    let mut parts: JoinSet<Result<()>> = JoinSet::new();
    let controllers = ControllersConfig {
        root_ca: Some(cluster.authority.clone()),
        namespace_delay: Some(NAMESPACE_DELAY),
        simulated_volumes: true,
        ..ControllersConfig::default()
    };
    let manager = cluster.client("system:kube-controller-manager", &[])?;
    parts.spawn(run_controllers(manager, controllers, stopping.clone()).map(Ok));
    let scheduler = cluster.client("system:kube-scheduler", &[])?;
    parts.spawn(run_scheduler(scheduler, SchedulerConfig::default(), stopping.clone()).map(|end| Ok(end?)));
    let kubelets = cluster.client("system:kubelets", &["system:masters"])?;
    create_default_class(&kubelets).await?;
    let fleet = fleet(&args);
    parts.spawn(async move { Ok(run_nodes(&kubelets, fleet, stopped(stopping)).await?) });

    greet(&mut std::io::stdout().lock(), &cluster, &args, started)?;
    let mut outcome = tokio::select! {
        requested = shutdown::requested() => requested,
        // No part ends by itself unless it cannot go on.
        Some(end) = parts.join_next() => end.map_err(Into::into).flatten(),
    };
    stop.send_replace(true);
    while let Some(end) = parts.join_next().await {
        outcome = outcome.and(end.map_err(Into::into).flatten());
    }
    cluster.stop().await;
    outcome
}

/// Serves the API alone until asked to stop.
pub(crate) async fn run_apiserver(args: Apiserver) -> Result<()> {
    let cluster = Cluster::start(&args.server).await?;
    greet_apiserver(&mut std::io::stdout().lock(), &cluster)?;
    shutdown::requested().await?;
    cluster.stop().await;
    Ok(())
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // A sender that is gone will never say more: that is the end too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

fn greet_apiserver(out: &mut impl Write, cluster: &Cluster) -> std::io::Result<()> {
    writeln!(out, "Bayplan's API server is up.\n")?;
    write_places(out, cluster)?;
    writeln!(out, "\nCtrl-C stops it.")?;
    out.flush()
}

fn fleet(args: &Up) -> FleetConfig {
    let template = NodeTemplate {
        cpu: args.node_cpu.clone(),
        memory: args.node_memory.clone(),
        pods: args.node_pods,
        zones: NodeTemplate::zones(args.zones as usize),
        ..NodeTemplate::default()
    };
    FleetConfig {
        nodes: args.nodes as usize,
        template,
        pod_start_delay: args.pod_start_delay.unsigned_abs(),
        ..FleetConfig::default()
    }
}

fn greet(out: &mut impl Write, cluster: &Cluster, args: &Up, started: Instant) -> std::io::Result<()> {
    writeln!(out, "Bayplan is up after {} ms.\n", started.elapsed().as_millis())?;
    write_places(out, cluster)?;
    let (nodes, zones) = (args.nodes, args.zones.min(args.nodes));
    let names = match nodes {
        0 => "none".into(),
        1 => "node-0001".into(),
        _ => format!("node-0001 … node-{nodes:04}"),
    };
    let each = format!("{} cpu, {} memory, {} pods each", args.node_cpu, args.node_memory, args.node_pods);
    let places = if zones > 1 { format!(", over {zones} zones") } else { String::new() };
    match nodes {
        0 => writeln!(out, "  nodes       none: pods stay pending")?,
        _ => writeln!(out, "  nodes       {names} (simulated): {each}{places}")?,
    }
    writeln!(out, "\nTry:")?;
    writeln!(out, "  export KUBECONFIG={}", cluster.kubeconfig.display())?;
    writeln!(out, "  kubectl create deployment web --image=nginx --replicas=3")?;
    writeln!(out, "  kubectl get pods -o wide -w")?;
    match cluster.folder {
        DataFolder::Kept(_) => writeln!(out, "\nCtrl-C stops it; the next `bayplan up` goes on where this one ended.")?,
        DataFolder::InMemory(_) => writeln!(out, "\nCtrl-C stops it and forgets everything.")?,
    }
    out.flush()
}

fn write_places(out: &mut impl Write, cluster: &Cluster) -> std::io::Result<()> {
    writeln!(out, "  kubeconfig  {}", cluster.kubeconfig.display())?;
    writeln!(out, "  API server  {}", cluster.url)?;
    match &cluster.folder {
        DataFolder::Kept(path) => writeln!(out, "  data        {}", path.display()),
        DataFolder::InMemory(_) => writeln!(out, "  data        in memory only"),
    }
}
