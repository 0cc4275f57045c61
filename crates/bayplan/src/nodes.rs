//! `bayplan nodes`: simulated nodes in any cluster, there for as long as it runs.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bayplan_bench::report::grouped;
use bayplan_client::Client;
use bayplan_model::meta::ObjectMeta;
use bayplan_runner::nodes::removal::remove_nodes;
use bayplan_runner::nodes::rights::{self, Intent};
use bayplan_runner::nodes::{Counts, Rates, list_nodes, run_fleet};
use bayplan_sim::{CreatedNode, FleetConfig, NodeManifest, NodeNames, NodeTemplate};
use tokio::sync::watch;

use crate::args::nodes::Nodes;
use crate::ask::load::read_manifests;
use crate::greeting::{listed, seconds};
use crate::progress::Progress;
use crate::shutdown::StopSignals;

/// How the names of nodes begin when nobody says otherwise: not as those of `bayplan up`, so that both can be used on
/// one API server.
const NAME_PREFIX: &str = "sim-";

/// The annotation of nodes that this command made, and its value: by it they are known as its own.
const RUN_BY: (&str, &str) = ("bayplan.dev/run-by", "bayplan-nodes");

/// A start or a removal that takes less needs no progress.
const QUIET: Duration = Duration::from_secs(3);

/// How long the removal may take in all: 5,000 nodes with 50,000 pods are 60,000 deletions, of which an API server does
/// a thousand in a second.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(90);

/// Runs the nodes until a signal stops it, and takes them away again.
pub(crate) async fn run(args: Nodes) -> Result<()> {
    let started = Instant::now();
    let config = config(&args)?;
    let signals = StopSignals::listen()?;
    let client = Client::connect(args.kubeconfig.as_deref(), args.context.as_deref(), args.master.as_deref()).await?;
    let client = client.with_user_agent(concat!("bayplan-nodes/v", env!("CARGO_PKG_VERSION")))?;
    check_rights(&client, &args).await?;
    let config = with_known_nodes(&client, config).await?;

    let rates = Rates { registrations: args.register_rate, requests: args.qps };
    let (stop, stopping) = watch::channel(false);
    let (counting, counts) = watch::channel(Counts::default());
    let mut fleet = run_fleet(client.clone(), config.clone(), rates, counting, stopping);
    let stop_requested = signals.requested();
    tokio::pin!(stop_requested);
    let greeting = async {
        all_registered(counts.clone(), config.count(), client.host(), started).await;
        greet(&config, &args, client.host(), started.elapsed())
    };
    let greeted = tokio::select! {
        end = &mut fleet => Some(end),
        () = &mut stop_requested => None,
        greeted = greeting => {
            greeted?;
            tokio::select! {
                end = &mut fleet => Some(end),
                () = &mut stop_requested => None,
            }
        }
    };
    let (created, outcome) = match greeted {
        Some(end) => end,
        None => {
            stop.send_replace(true);
            fleet.await
        }
    };
    let outcome = outcome.context("cannot run the nodes");
    if args.keep && outcome.is_ok() {
        return Ok(());
    }
    let removed = remove(&client, created).await;
    outcome.and(removed)
}

fn config(args: &Nodes) -> Result<FleetConfig> {
    let manifest = args.template.as_deref().map(read_template).transpose()?;
    let named = manifest.as_ref().and_then(|manifest| manifest.names.clone());
    let names = args.name_prefix.as_deref().map(NodeNames::prefixed).or(named);
    let template = NodeTemplate {
        names: names.unwrap_or_else(|| NodeNames::prefixed(NAME_PREFIX)),
        labels: args.label.clone(),
        annotations: vec![(RUN_BY.0.to_owned(), RUN_BY.1.to_owned())],
        taints: args.taint.clone(),
        pod_networks: false,
        manifest,
        ..args.each.template()
    };
    Ok(FleetConfig {
        nodes: args.count.unwrap_or(0) as usize,
        template,
        manage: args.manage.clone(),
        pod_start_delay: args.each.pod_start_delay.unsigned_abs(),
        pod_stop_delay: args.pod_stop_delay.unsigned_abs(),
        ..FleetConfig::default()
    })
}

fn read_template(path: &Path) -> Result<NodeManifest> {
    let shown = path.display();
    let mut objects = read_manifests(&[path.to_owned()])?;
    ensure!(objects.len() == 1, "{shown} holds {} objects: a template is one Node", objects.len());
    NodeManifest::new(objects.swap_remove(0)).with_context(|| format!("{shown} is no template of nodes"))
}

/// Asks for all that will be needed: half a fleet helps nobody.
async fn check_rights(client: &Client, args: &Nodes) -> Result<()> {
    let create = args.count.is_some_and(|count| count > 0);
    let intent = Intent { create, remove: create && !args.keep, manage: args.manage.is_some() };
    let missing = rights::missing(client, intent).await;
    let missing = missing.with_context(|| format!("the API server at {} does not answer", client.host()))?;
    if !missing.is_empty() {
        let host = client.host();
        bail!("cannot run nodes at {host}: the kubeconfig's user may not {}", missing.join(", "));
    }
    Ok(())
}

/// Adds the nodes of an earlier run. A name that is taken by a node which this command did not make is refused.
async fn with_known_nodes(client: &Client, config: FleetConfig) -> Result<FleetConfig> {
    if config.nodes == 0 {
        return Ok(config);
    }
    let nodes = list_nodes(client, "").await.context("cannot list the nodes that are there")?;
    let is_own = |node: &&ObjectMeta| node.annotations.get(RUN_BY.0).is_some_and(|by| by == RUN_BY.1);
    let (own, others): (Vec<&ObjectMeta>, Vec<&ObjectMeta>) = nodes.iter().partition(is_own);
    let taken: Vec<&str> = others.iter().map(|node| &*node.name).filter(|name| config.makes(name)).collect();
    if let Some(first) = taken.first() {
        let more = match taken.len() {
            1 => String::new(),
            count => format!(" and {} more", grouped(count as u64 - 1)),
        };
        bail!(
            "there is a node {first}{more} that bayplan nodes did not make: choose other names with --name-prefix, or \
             run it as it is with --manage"
        );
    }
    Ok(config.with_nodes_named(own.iter().map(|node| &*node.name)))
}

/// Waits until every node is registered, and shows how many are.
async fn all_registered(mut counts: watch::Receiver<Counts>, nodes: usize, host: &str, started: Instant) {
    let mut progress = Progress::after(QUIET.saturating_sub(started.elapsed()));
    loop {
        let registered = counts.borrow_and_update().registered;
        if registered >= nodes {
            return progress.clear();
        }
        let (done, of) = (grouped(registered as u64), grouped(nodes as u64));
        progress.report(&format!("{done} of {of} nodes are registered at {host}"));
        tokio::select! {
            changed = counts.changed() => {
                if changed.is_err() {
                    // The nodes have ended, and say why themselves.
                    std::future::pending::<()>().await;
                }
            }
            () = tokio::time::sleep_until(progress.next().into()) => {}
        }
    }
}

fn greet(config: &FleetConfig, args: &Nodes, host: &str, took: Duration) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if let Some((first, last)) = config.first_and_last() {
        let (count, took) = (grouped(config.count() as u64), seconds(took));
        let (nodes, names) = match config.count() {
            1 => ("simulated node is", first),
            _ => ("simulated nodes are", format!("{first} … {last}")),
        };
        writeln!(out, "{count} {nodes} registered at {host} after {took}: {names}")?;
        let zones = &config.template.zones;
        if !zones.is_empty() && args.template.is_none() {
            writeln!(out, "They are in {}.", listed(&zones[..zones.len().min(config.count())]))?;
        }
    }
    if let Some(selector) = &config.manage {
        writeln!(out, "Nodes of others with {selector} are run too, and stay.")?;
    }
    match (config.count(), args.keep) {
        (0, _) => writeln!(out, "\nCtrl-C stops it.")?,
        (_, false) => writeln!(out, "\nCtrl-C removes them, and the pods on them; --keep leaves them there.")?,
        (_, true) => writeln!(out, "\nCtrl-C stops it; the nodes stay, and the next run goes on with them.")?,
    }
    Ok(out.flush()?)
}

/// Removes the nodes, shows how far it is, and says what is left.
async fn remove(client: &Client, nodes: Vec<CreatedNode>) -> Result<()> {
    if nodes.is_empty() {
        return Ok(());
    }
    let of = grouped(nodes.len() as u64);
    let progress = std::sync::Mutex::new(Progress::after(QUIET));
    let show = |done: usize| {
        let mut progress = progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        progress.report(&format!("{} of {of} nodes are removed", grouped(done as u64)));
    };
    let removal = remove_nodes(client, nodes, REMOVAL_PATIENCE, show).await;
    progress.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    if removal.left > 0 {
        let why = removal.reason.map_or_else(|| "the time is over".to_owned(), |status| status.to_string());
        bail!(
            "{} of {of} nodes are left at {}: {why}; to remove them: \
             kubectl delete nodes -l bayplan.dev/simulated=true",
            grouped(removal.left as u64),
            client.host()
        );
    }
    let nodes = if removal.removed == 1 { "node is" } else { "nodes are" };
    writeln!(std::io::stdout().lock(), "{of} {nodes} removed.")?;
    Ok(())
}
