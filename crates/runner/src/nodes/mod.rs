//! Runs the simulated nodes: one task passes watch events, answers and the time to the fleet, and sends its requests.
//!
//! ```text
//!   informers (pods, nodes) ─┐
//!   answers ─────────────────┼─▶ fleet ─▶ heartbeats first, then the rest ─▶ REQUESTS_MAX at once ─▶ API server
//!   the clock ───────────────┘
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bayplan_client::{Client, EventRecorder, Informer, Scope, informer};
use bayplan_model::api::{Api, ListOptions, Recorder, Request, Resource, Verb, decode};
use bayplan_model::delta::Delta;
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_model::status::{Status, reason};
use bayplan_sim::{Effect, Error, Event, Fleet, FleetConfig, NodeView, PodView, SIMULATED, Ticket};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

const PODS: Resource = Resource::new("", "v1", "pods");
const NODES: Resource = Resource::new("", "v1", "nodes");

/// Requests in flight at once: enough to keep a server busy, few enough for one connection each.
const REQUESTS_MAX: usize = 64;
/// Events an informer may be ahead of the fleet.
const EVENTS_MAX: usize = 1024;
/// A request that the server refused for now is retried after this, doubled each time,
const RETRY_MIN: Duration = Duration::from_millis(200);
/// but never later than this.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How often a patch that met a conflict is retried.
const CONFLICTS_MAX: u32 = 10;
/// The longest sleep: the wall clock may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The names of the simulated nodes that are in the cluster already.
pub async fn known_nodes(client: &Client) -> Result<Vec<String>, Status> {
    #[derive(Deserialize)]
    struct Nodes {
        /// Null when there are none.
        items: Option<Vec<PartialObjectMetadata>>,
    }
    let options = ListOptions { label_selector: format!("{SIMULATED}=true"), ..ListOptions::default() };
    let request = Request::collection(&NODES, "", Verb::List(options)).metadata_only();
    let nodes: Nodes = decode(&client.call(request).await?)?;
    Ok(nodes.items.into_iter().flatten().map(|node| node.metadata.name).collect())
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
    Box::pin(run(client, config, registered, shutdown))
}

async fn run(
    client: Client,
    config: FleetConfig,
    registered: watch::Sender<usize>,
    mut shutdown: watch::Receiver<bool>,
) -> Result<(), Error> {
    let mut fleet = Fleet::new(config)?;
    let mut pods = Informer::<PodView>::new(&client, Scope::all(&PODS).fields("spec.nodeName!="));
    let mut nodes = Informer::<NodeView>::new(&client, Scope::all(&NODES));
    let (mut pod_events, mut node_events) = (pods.subscribe(EVENTS_MAX), nodes.subscribe(EVENTS_MAX));
    let _running = (pods.spawn(), nodes.spawn());

    let recorder = EventRecorder::core(&client, "kubelet");
    let mut outgoing = Outgoing::new(&client);
    let shutdown = async move {
        // A sender that is gone will never say more: that is the end too.
        let _ = shutdown.wait_for(|stop| *stop).await;
    };
    tokio::pin!(shutdown);
    // Nodes learn which pods run on them before they admit any other.
    let listed = async {
        while let Some(informer::Event::Delta(delta)) = pod_events.recv().await {
            fleet.handle(Event::Pod(delta), Timestamp::now());
        }
    };
    tokio::select! {
        () = &mut shutdown => return Ok(()),
        () = listed => {}
    }
    outgoing.add(fleet.start(Timestamp::now()));
    loop {
        outgoing.send();
        let effects = tokio::select! {
            () = &mut shutdown => return Ok(()),
            Some(event) = pod_events.recv() => handle(&mut fleet, event, Event::Pod),
            Some(event) = node_events.recv() => handle(&mut fleet, event, Event::Node),
            Some((ticket, answer)) = outgoing.answer() => {
                fleet.answered(&ticket, answer.as_ref().copied(), Timestamp::now())
            }
            () = sleep_until(fleet.next_deadline()) => fleet.tick(Timestamp::now()).0,
        };
        outgoing.add(effects);
        registered.send_if_modified(|count| std::mem::replace(count, fleet.registered()) != fleet.registered());
        for event in fleet.take_events() {
            let (kind, name) = (&*event.regarding.kind, &*event.regarding.name);
            tracing::warn!(kind, namespace = event.regarding.namespace, name, "{}", event.note);
            recorder.record(event);
        }
    }
}

fn handle<V>(fleet: &mut Fleet, event: informer::Event<V>, wrap: fn(Delta<Arc<V>>) -> Event) -> Vec<Effect> {
    match event {
        informer::Event::Delta(delta) => fleet.handle(wrap(delta), Timestamp::now()),
        informer::Event::Synced => Vec::new(),
    }
}

async fn sleep_until(deadline: Option<Timestamp>) {
    let left = deadline.map(|at| at.duration_since(Timestamp::now()));
    // A deadline that has passed has a negative distance: no time is left.
    let left = left.map_or(SLEEP_MAX, |left| Duration::try_from(left).unwrap_or(Duration::ZERO));
    tokio::time::sleep(left.min(SLEEP_MAX)).await;
}

/// Requests that wait or are in flight: at most one status and one deletion per pod, and a few per node.
struct Outgoing {
    api: Arc<dyn Api>,
    heartbeats: VecDeque<Effect>,
    others: VecDeque<Effect>,
    under_way: JoinSet<(Ticket, Result<(), Status>)>,
}

impl Outgoing {
    fn new(client: &Client) -> Self {
        Outgoing {
            api: Arc::new(client.clone()),
            heartbeats: VecDeque::new(),
            others: VecDeque::new(),
            under_way: JoinSet::new(),
        }
    }

    /// Heartbeats go first: a node must not look unreachable because many pods start.
    fn add(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let queue = if is_heartbeat(&effect.request) { &mut self.heartbeats } else { &mut self.others };
            queue.push_back(effect);
        }
    }

    fn send(&mut self) {
        while self.under_way.len() < REQUESTS_MAX
            && let Some(effect) = self.heartbeats.pop_front().or_else(|| self.others.pop_front())
        {
            self.under_way.spawn(deliver(Arc::clone(&self.api), effect));
        }
    }

    /// The next final answer; `None` while nothing is in flight.
    async fn answer(&mut self) -> Option<(Ticket, Result<(), Status>)> {
        self.under_way.join_next().await?.inspect_err(|error| tracing::error!("a request task ended: {error}")).ok()
    }
}

fn is_heartbeat(request: &Request) -> bool {
    request.resource.plural == "leases"
}

/// Sends a request, and retries it, until the answer is final.
async fn deliver(api: Arc<dyn Api>, effect: Effect) -> (Ticket, Result<(), Status>) {
    let mut tries = 0;
    loop {
        let answer = api.call(effect.request.clone()).await.map(drop);
        let Some(delay) = answer.as_ref().err().and_then(|status| retry_after(&effect.request, status, tries)) else {
            if let Err(status) = &answer
                && !matches!(&*status.reason, reason::NOT_FOUND | reason::ALREADY_EXISTS)
            {
                tracing::debug!(object = effect.request.name, code = status.code, "refused: {status}");
            }
            return (effect.ticket, answer);
        };
        tries += 1;
        tokio::time::sleep(delay).await;
    }
}

/// The delay before a refused request is retried; none when a retry is pointless.
fn retry_after(request: &Request, status: &Status, tries: u32) -> Option<Duration> {
    // A late heartbeat is useless; the next one is due soon.
    if is_heartbeat(request) && status.code == 0 {
        return None;
    }
    let conflict = status.is(reason::CONFLICT) && matches!(request.verb, Verb::Patch(..)) && tries < CONFLICTS_MAX;
    let unwilling = matches!(status.code, 0 | 429 | 500..);
    if !conflict && !unwilling {
        return None;
    }
    let asked_for = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    let delay = RETRY_MIN.saturating_mul(1u32.checked_shl(tries).unwrap_or(u32::MAX)).min(RETRY_MAX);
    let jittered = delay.mul_f64(1.0 + rand::random::<f64>());
    Some(jittered.max(Duration::from_secs(asked_for.into()).min(RETRY_MAX)))
}

#[cfg(test)]
mod tests {
    use bayplan_model::api::{DeleteOptions, PatchKind};

    use super::*;

    #[test]
    fn only_what_may_succeed_later_is_sent_again() {
        let leases = Resource::new("coordination.k8s.io", "v1", "leases");
        let patch = Request::object(&PODS, "a", "b", Verb::Patch(PatchKind::Merge, Default::default()));
        let delete = Request::object(&PODS, "a", "b", Verb::Delete(DeleteOptions::default()));
        let renewal = Request::object(&leases, "a", "b", Verb::Patch(PatchKind::Merge, Default::default()));
        for (request, code, reason, tries, again) in [
            (&patch, 0, reason::SERVICE_UNAVAILABLE, 1000, true),
            (&patch, 503, reason::SERVICE_UNAVAILABLE, 0, true),
            (&patch, 429, reason::TOO_MANY_REQUESTS, 0, true),
            (&patch, 409, reason::CONFLICT, 0, true),
            (&patch, 409, reason::CONFLICT, CONFLICTS_MAX, false),
            (&patch, 404, reason::NOT_FOUND, 0, false),
            (&patch, 422, reason::INVALID, 0, false),
            (&delete, 409, reason::CONFLICT, 0, false),
            (&renewal, 0, reason::SERVICE_UNAVAILABLE, 0, false),
        ] {
            let status = Status::failure(code, reason, "");
            assert_eq!(retry_after(request, &status, tries).is_some(), again, "{code} {reason} after {tries}");
        }
    }
}
