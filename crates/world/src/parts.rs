//! The parts that are started, killed and started again: the shells that the binary runs, over the simulated network.

use std::sync::Arc;
use std::time::Duration;

use bayplan_client::leader_election;
use bayplan_client::{Cache, Client, Informer, Scope};
use bayplan_model::api::Resource;
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_runner::controllers::ControllersConfig;
use bayplan_runner::controllers::manager::run_controller_manager;
use bayplan_runner::nodes::run_nodes;
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use bayplan_runner::telemetry::telemetry;
use bayplan_sim::FleetConfig;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::bugs::Bug;
use crate::network::Link;
use crate::plan::Part;
use crate::shared::Shared;

/// How many nodes there are.
pub(crate) const NODES: usize = 4;

/// The loops' lease.
pub(crate) const LEASE: &str = "kube-controller-manager";

/// A process that ended by itself is started again after this.
const RESTART: Duration = Duration::from_secs(1);

/// Who a life of a part is in elections.
pub(crate) fn identity(part: Part, life: u64) -> String {
    format!("{}-{life}", part.name())
}

/// A part that runs.
pub(crate) struct Running {
    supervisor: JoinHandle<()>,
    stop: watch::Sender<bool>,
    /// What the observer knows.
    pub(crate) caches: Vec<(Resource, Cache<PartialObjectMetadata>)>,
}

/// Starts a part.
pub(crate) fn start(shared: &Arc<Shared>, part: Part, polls: Option<u64>) -> Running {
    let (stop, stopping) = watch::channel(false);
    if part == Part::Observer {
        return observe(shared, stop, stopping);
    }
    let shared = shared.clone();
    let supervisor = tokio::spawn(async move {
        let mut polls = polls;
        while !*stopping.borrow() {
            let life = shared.begin_life(part);
            shared.stress(part.name(), format!("starts, life {life}"), "");
            let client = Link { shared: shared.clone(), part, life }.client();
            let work = run(&shared, part, life, client, stopping.clone());
            let ended = match polls.take() {
                Some(polls) => mortal(work, polls).await,
                None => work.await,
            };
            if !*stopping.borrow() {
                shared.stress(part.name(), "ends", ended);
                sleep(RESTART).await;
            }
        }
    });
    Running { supervisor, stop, caches: Vec::new() }
}

/// Lets a process live for so many polls of its main task.
async fn mortal(work: impl Future<Output = String>, polls: u64) -> String {
    let (mut work, mut left) = (std::pin::pin!(work), polls);
    std::future::poll_fn(|context| {
        if left == 0 {
            return std::task::Poll::Ready("killed at a poll".to_owned());
        }
        left -= 1;
        work.as_mut().poll(context)
    })
    .await
}

async fn run(shared: &Shared, part: Part, life: u64, client: Client, stop: watch::Receiver<bool>) -> String {
    let seed = shared.plan.seed ^ life;
    let said = |error: Option<String>| error.unwrap_or_default();
    match part {
        Part::Scheduler | Part::SecondScheduler => {
            let config = SchedulerConfig { seed, instance: part.name().into(), ..SchedulerConfig::default() };
            said(run_scheduler(client, config, stop).await.err().map(|error| error.to_string()))
        }
        Part::Kubelets => {
            let config = FleetConfig { nodes: NODES, ..FleetConfig::default() };
            let (registered, _count) = watch::channel(0);
            said(run_nodes(client, config, registered, stop).await.err().map(|error| error.to_string()))
        }
        Part::Controllers | Part::StandbyControllers => {
            let rules =
                leader_election::Config { identity: identity(part, life), ..leader_election::Config::new(LEASE) };
            let leads = shared.plan.bug == Some(Bug::TwoLeaders) && part == Part::StandbyControllers;
            let (telemetry, _probe) = telemetry(Default::default());
            let config = ControllersConfig { root_ca: Some("world".into()), ..ControllersConfig::default() };
            let outcome = run_controller_manager(client, config, (!leads).then_some(rules), telemetry, stop).await;
            said(outcome.err().map(|error| error.to_string()))
        }
        Part::Observer | Part::User => String::new(),
    }
}

/// What the observer watches.
const OBSERVED: &[(&str, &str, &str)] = &[
    ("", "v1", "pods"),
    ("", "v1", "nodes"),
    ("", "v1", "namespaces"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "replicasets"),
    ("discovery.k8s.io", "v1", "endpointslices"),
];

fn observe(shared: &Arc<Shared>, stop: watch::Sender<bool>, mut stopping: watch::Receiver<bool>) -> Running {
    let life = shared.begin_life(Part::Observer);
    let client = Link { shared: shared.clone(), part: Part::Observer, life }.client();
    let (mut informers, mut caches) = (Vec::new(), Vec::new());
    for (group, version, plural) in OBSERVED.iter().copied() {
        let resource = Resource::new(group, version, plural);
        let mut informer = Informer::<PartialObjectMetadata>::new(&client, Scope::all(&resource));
        caches.push((resource, informer.cache(&[])));
        informers.push(informer.spawn());
    }
    let supervisor = tokio::spawn(async move {
        // A sender that is gone says the same.
        let _ = stopping.wait_for(|stop| *stop).await;
        drop(informers);
    });
    Running { supervisor, stop, caches }
}

impl Running {
    /// Kills the part where it stands.
    pub(crate) async fn kill(self, shared: &Shared, part: Part) {
        // Whatever is left of it speaks to nobody any more.
        shared.begin_life(part);
        shared.sever(part);
        self.supervisor.abort();
        // It was told to end.
        let _ = self.supervisor.await;
    }

    /// Lets the part end as it does when its process is told to.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        // A part that panicked is counted where panics are.
        let _ = self.supervisor.await;
    }
}
