//! Runs the simulated nodes: one task passes watch events, answers and the time to the fleet, and sends its requests.
//!
//! ```text
//!   informers (pods, nodes) ─┐
//!   answers ─────────────────┼─▶ fleet ─▶ heartbeats first, then the rest ─▶ REQUESTS_MAX at once ─▶ API server
//!   the clock ───────────────┘
//! ```

mod outgoing;
pub mod removal;
pub mod rights;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bayplan_client::{Cache, Client, EventRecorder, Informer, Scope, clock, informer};
use bayplan_model::api::{Api, ListOptions, Recorder, Request, Resource, Verb, decode};
use bayplan_model::delta::Delta;
use bayplan_model::meta::{ObjectMeta, PartialObjectMetadata};
use bayplan_model::status::Status;
use bayplan_sim::{CreatedNode, Effect, Event, Fleet, FleetConfig, NodeView, PodView, SIMULATED, Ticket};
use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};

pub use outgoing::Rates;
use outgoing::{Outgoing, PACE_INTERVAL};

const PODS: Resource = Resource::new("", "v1", "pods");
const NODES: Resource = Resource::new("", "v1", "nodes");

/// Events an informer may be ahead of the fleet.
const EVENTS_MAX: usize = 1024;
/// The longest sleep: the wall clock may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// How long requests in flight may take to be answered once the nodes are to stop.
const FINISH_PATIENCE: Duration = Duration::from_secs(5);
/// Pods by the name of their node.
const BY_NODE: &str = "node";

/// Why simulated nodes cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There cannot be such a fleet.
    #[error(transparent)]
    Fleet(#[from] bayplan_sim::Error),
    /// The API server does not take a node, now or later.
    #[error("the API server refuses a node: {0}")]
    Refused(Status),
}

/// How many nodes there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nodes of the fleet that are registered.
    pub registered: usize,
    /// Nodes of others that it runs.
    pub managed: usize,
}

/// The simulated nodes that are in the cluster already.
pub async fn known_nodes(client: &Client) -> Result<Vec<String>, Status> {
    let nodes = list_nodes(client, &format!("{SIMULATED}=true")).await?;
    Ok(nodes.into_iter().map(|node| node.name).collect())
}

/// The metadata of the nodes with these labels.
pub async fn list_nodes(client: &Client, label_selector: &str) -> Result<Vec<ObjectMeta>, Status> {
    #[derive(Deserialize)]
    struct Nodes {
        /// Null when there are none.
        items: Option<Vec<PartialObjectMetadata>>,
    }
    let options = ListOptions { label_selector: label_selector.to_owned(), ..ListOptions::default() };
    let request = Request::collection(&NODES, "", Verb::List(options)).metadata_only();
    let nodes: Nodes = decode(&client.call(request).await?)?;
    Ok(nodes.items.into_iter().flatten().map(|node| node.metadata).collect())
}

/// Runs a fleet of simulated nodes until `shutdown` is true; `registered` holds how many nodes are registered.
///
/// The future is boxed so that it is compiled in this crate, and not once more in each crate that awaits it.
pub fn run_nodes(
    client: Client,
    config: FleetConfig,
    registered: watch::Sender<usize>,
    shutdown: watch::Receiver<bool>,
) -> BoxFuture<'static, Result<(), Error>> {
    Box::pin(async move {
        let mut fleet = Fleet::new(config)?;
        let report = move |counts: Counts| {
            registered.send_if_modified(|count| std::mem::replace(count, counts.registered) != counts.registered);
        };
        Shell::new(client, Rates::default()).run(&mut fleet, report, shutdown).await
    })
}

/// Runs a fleet as [`run_nodes`] does, at most this fast; returns the nodes it made, which are still there.
pub fn run_fleet(
    client: Client,
    config: FleetConfig,
    rates: Rates,
    counts: watch::Sender<Counts>,
    shutdown: watch::Receiver<bool>,
) -> BoxFuture<'static, (Vec<CreatedNode>, Result<(), Error>)> {
    Box::pin(async move {
        let mut fleet = match Fleet::new(config) {
            Ok(fleet) => fleet,
            Err(error) => return (Vec::new(), Err(error.into())),
        };
        let report = move |now: Counts| {
            counts.send_if_modified(|before| std::mem::replace(before, now) != now);
        };
        let outcome = Shell::new(client, rates).run(&mut fleet, report, shutdown).await;
        (fleet.created(), outcome)
    })
}

/// What connects a fleet with its API server.
struct Shell {
    client: Client,
    recorder: EventRecorder,
    outgoing: Outgoing,
}

impl Shell {
    fn new(client: Client, rates: Rates) -> Self {
        let recorder = EventRecorder::core(&client, "kubelet");
        Shell { outgoing: Outgoing::new(&client, rates), recorder, client }
    }

    async fn run(
        mut self,
        fleet: &mut Fleet,
        report: impl Fn(Counts),
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let mut pods = Informer::<PodView>::new(&self.client, Scope::all(&PODS).fields("spec.nodeName!="));
        let mut nodes = Informer::<NodeView>::new(&self.client, Scope::all(&NODES));
        let node_of = |pod: &PodView| vec![pod.spec.node_name.clone()];
        let by_node = fleet.manages_others().then(|| pods.cache(&[(BY_NODE, node_of)]));
        let (mut pod_events, mut node_events) = (pods.subscribe(EVENTS_MAX), nodes.subscribe(EVENTS_MAX));
        let _running = (pods.spawn(), nodes.spawn());
        let shutdown = async move {
            // A sender that is gone will never say more: that is the end too.
            let _ = shutdown.wait_for(|stop| *stop).await;
        };
        tokio::pin!(shutdown);
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            effects = listed(fleet, &mut node_events, &mut pod_events) => self.outgoing.add(effects),
        }
        self.outgoing.add(fleet.start(clock::now()));
        let (mut sources, mut turn) = (Sources { pods: pod_events, nodes: node_events }, 0);
        let outcome = loop {
            self.outgoing.send();
            turn += 1;
            let next = next_wakeup(turn, &mut sources, &mut self.outgoing, fleet.next_deadline());
            let wakeup = tokio::select! {
                biased;
                () = &mut shutdown => break Ok(()),
                wakeup = next => wakeup,
            };
            let effects = match wakeup {
                Wakeup::Pod(event) => handle(fleet, event, Event::Pod),
                Wakeup::Node(event) => handle_node(fleet, event, by_node.as_ref()),
                Wakeup::Answers(answers) => match answered(fleet, &answers) {
                    Ok(effects) => effects,
                    Err(error) => break Err(error),
                },
                Wakeup::Pace => Vec::new(),
                Wakeup::Deadline => fleet.tick(clock::now()).0,
            };
            self.outgoing.add(effects);
            report(Counts { registered: fleet.registered(), managed: fleet.managed() });
            self.show_events(fleet);
        };
        let answered = |ticket: Ticket, answer: Result<Bytes, Status>| {
            fleet.answered(&ticket, answer.as_deref(), clock::now());
        };
        self.outgoing.finish(FINISH_PATIENCE, answered).await;
        outcome
    }

    fn show_events(&self, fleet: &mut Fleet) {
        for event in fleet.take_events() {
            let (kind, name) = (&*event.regarding.kind, &*event.regarding.name);
            let namespace = &*event.regarding.namespace;
            // What somebody meant and nobody can read is for whoever runs the nodes; a pod's life is for its users.
            match &*event.reason {
                "InvalidAnnotation" | "NotSimulated" => tracing::warn!(kind, namespace, name, "{}", event.note),
                _ => tracing::debug!(kind, namespace, name, "{}", event.note),
            }
            self.recorder.record(event);
        }
    }
}

/// The changes that the fleet hears of.
struct Sources {
    pods: mpsc::Receiver<informer::Event<PodView>>,
    nodes: mpsc::Receiver<informer::Event<NodeView>>,
}

/// What the fleet does next.
enum Wakeup {
    Pod(informer::Event<PodView>),
    Node(informer::Event<NodeView>),
    Answers(Vec<(Ticket, Result<Bytes, Status>)>),
    /// A rate lets more through.
    Pace,
    Deadline,
}

/// Waits for the next thing to do. Which source is asked first changes with the turn: a flood of one never keeps the
/// others waiting, and runs repeat themselves.
async fn next_wakeup(
    turn: usize,
    sources: &mut Sources,
    outgoing: &mut Outgoing,
    deadline: Option<Timestamp>,
) -> Wakeup {
    let held_back = outgoing.is_held_back();
    let mut pace = pin!(tokio::time::sleep(PACE_INTERVAL));
    let mut due = pin!(sleep_until(deadline));
    poll_fn(|context| {
        for source in (turn..turn + 5).map(|source| source % 5) {
            let woken = match source {
                0 => sources.pods.poll_recv(context).map(|event| event.map(Wakeup::Pod)),
                1 => sources.nodes.poll_recv(context).map(|event| event.map(Wakeup::Node)),
                2 => outgoing.poll_answers(context).map(|answers| answers.map(Wakeup::Answers)),
                3 if held_back => pace.as_mut().poll(context).map(|()| Some(Wakeup::Pace)),
                3 => Poll::Pending,
                _ => due.as_mut().poll(context).map(|()| Some(Wakeup::Deadline)),
            };
            // A source that has ended says nothing any more.
            if let Poll::Ready(Some(wakeup)) = woken {
                return Poll::Ready(wakeup);
            }
        }
        Poll::Pending
    })
    .await
}

/// The nodes that are there, then the pods: nodes learn which pods run on them before they admit any other.
///
/// Both are taken as they come: they share a connection, and one that nobody reads holds up the other.
async fn listed(
    fleet: &mut Fleet,
    nodes: &mut mpsc::Receiver<informer::Event<NodeView>>,
    pods: &mut mpsc::Receiver<informer::Event<PodView>>,
) -> Vec<Effect> {
    let (mut effects, mut early) = (Vec::new(), Vec::new());
    let (mut nodes_listed, mut pods_listed) = (false, false);
    while !(nodes_listed && pods_listed) {
        tokio::select! {
            biased;
            Some(event) = nodes.recv() => match event {
                informer::Event::Delta(delta) => {
                    effects.extend(fleet.handle(Event::Node(delta), clock::now()));
                }
                informer::Event::Synced => nodes_listed = true,
            },
            Some(event) = pods.recv() => match event {
                informer::Event::Delta(delta) => early.push(delta),
                informer::Event::Synced => pods_listed = true,
            },
            // Both informers have ended.
            else => break,
        }
    }
    for delta in early {
        effects.extend(fleet.handle(Event::Pod(delta), clock::now()));
    }
    effects
}

/// Passes answers on; a node that the server will never take ends it all.
fn answered(fleet: &mut Fleet, answers: &[(Ticket, Result<Bytes, Status>)]) -> Result<Vec<Effect>, Error> {
    let mut effects = Vec::new();
    for (ticket, answer) in answers {
        if let Err(status) = answer
            && ticket.is_registration()
            && is_final(status)
        {
            return Err(Error::Refused(status.clone()));
        }
        effects.extend(fleet.answered(ticket, answer.as_deref(), clock::now()));
    }
    Ok(effects)
}

/// Whether another try would be refused too.
fn is_final(status: &Status) -> bool {
    matches!(status.code, 400 | 403 | 404 | 405 | 413 | 415 | 422)
}

fn handle<V>(fleet: &mut Fleet, event: informer::Event<V>, wrap: fn(Delta<Arc<V>>) -> Event) -> Vec<Effect> {
    match event {
        informer::Event::Delta(delta) => fleet.handle(wrap(delta), clock::now()),
        informer::Event::Synced => Vec::new(),
    }
}

/// A node that is taken over learns at once which pods are on it: their own events may have come before it.
fn handle_node(fleet: &mut Fleet, event: informer::Event<NodeView>, by_node: Option<&Cache<PodView>>) -> Vec<Effect> {
    let informer::Event::Delta(delta) = event else { return Vec::new() };
    let name = delta.object().metadata.name.clone();
    let was_run = fleet.runs(&name);
    let mut effects = fleet.handle(Event::Node(delta), clock::now());
    if let Some(by_node) = by_node
        && !was_run
        && fleet.runs(&name)
    {
        for pod in by_node.by_index(BY_NODE, &name) {
            effects.extend(fleet.handle(Event::Pod(Delta::Added(pod)), clock::now()));
        }
    }
    effects
}

async fn sleep_until(deadline: Option<Timestamp>) {
    let left = deadline.map(|at| at.duration_since(clock::now()));
    // A deadline that has passed has a negative distance: no time is left.
    let left = left.map_or(SLEEP_MAX, |left| Duration::try_from(left).unwrap_or(Duration::ZERO));
    tokio::time::sleep(left.min(SLEEP_MAX)).await;
}
