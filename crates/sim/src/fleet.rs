//! All simulated nodes of a cluster, driven by events, answers and one timer heap.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api;
use bayplan_model::delta::Delta;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::label_selector::Selector;
use bayplan_model::meta::ObjectMeta;
use bayplan_model::status::Status;
use bayplan_model::token_bucket::TokenBucket;
use jiff::Timestamp;

use crate::annotations::not_simulated;
use crate::identity::{NODES_MAX, NodeIdentity};
use crate::kubelet::{Effect, Event, Kubelet, Outbox, Ticket, Timer};
use crate::lease::LEASE_RENEWAL;
use crate::node_view::NodeView;
use crate::pod::Delays;
use crate::template::NodeTemplate;

/// Multiples of the golden ratio spread the heartbeats of nodes that come one by one evenly over their period.
const SPREAD: f64 = 0.618_033_988_749_895;

/// The lives of pods are told in at most so many events a second, and so many at once: that of one busy kubelet each. A
/// rollout of ten thousand pods would write thirty thousand events otherwise, more than all its other writes.
const LIVES_PER_SECOND: f64 = 50.0;
const LIVES_BURST: u32 = 1_000;

/// The number of nodes, their template, and the delays of their pods.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// How many nodes; at most [`NODES_MAX`].
    pub nodes: usize,
    /// The indexes of nodes beyond those that an earlier run left behind: somebody has to run them, or pods that are
    /// bound to them wait for ever.
    pub further: Vec<usize>,
    /// What each node has.
    pub template: NodeTemplate,
    /// Which nodes of others are run too.
    pub manage: Option<Selector>,
    /// From a pod's binding to its first container, and for each init container.
    pub pod_start_delay: Duration,
    /// How long containers take to stop, when their grace period lets them.
    pub pod_stop_delay: Duration,
    /// The time between two renewals of a node's Lease, which lasts 40 s; a kubelet's is 10 s.
    pub lease_renewal: Duration,
}

impl Default for FleetConfig {
    fn default() -> Self {
        FleetConfig {
            nodes: 10,
            further: Vec::new(),
            template: NodeTemplate::default(),
            manage: None,
            pod_start_delay: Duration::from_secs(1),
            pod_stop_delay: Duration::from_secs(1),
            lease_renewal: LEASE_RENEWAL,
        }
    }
}

impl FleetConfig {
    /// Adds the nodes of these names that an earlier run left behind, as far as they are a fleet's.
    pub fn with_nodes_named<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let indexes = names.into_iter().filter_map(|name| self.template.names.index_of(name));
        self.further.extend(indexes.filter(|index| *index >= self.nodes));
        self.further.sort_unstable();
        self.further.dedup();
        self
    }

    /// How many nodes it has in all.
    pub fn count(&self) -> usize {
        self.nodes + self.further.len()
    }

    /// The names of the first node and the last.
    pub fn first_and_last(&self) -> Option<(String, String)> {
        let last = self.further.last().copied().or(self.nodes.checked_sub(1))?;
        let first = if self.nodes > 0 { 0 } else { *self.further.first()? };
        Some((self.template.names.name(first), self.template.names.name(last)))
    }

    /// Whether it makes a node of this name.
    pub fn makes(&self, name: &str) -> bool {
        let index = self.template.names.index_of(name);
        index.is_some_and(|index| index < self.nodes || self.further.contains(&index))
    }
}

/// Why a fleet cannot be created.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There are not enough pod networks.
    #[error("{0} nodes are more than there are pod networks for ({NODES_MAX})")]
    TooManyNodes(usize),
}

/// A Node that a fleet made, and the pods on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedNode {
    /// Its name.
    pub name: String,
    /// Its uid; empty if it has not been seen.
    pub uid: String,
    /// Its pods: namespace, name and uid.
    pub pods: Vec<(String, String, String)>,
}

/// The nodes.
pub struct Fleet {
    template: Arc<NodeTemplate>,
    manage: Option<Selector>,
    delays: Delays,
    lease_renewal: Duration,
    /// By their id.
    kubelets: BTreeMap<usize, Kubelet>,
    by_name: KeyedMap<String, usize>,
    /// Timers are never removed: one without work left does nothing when it fires.
    timers: BinaryHeap<Reverse<(Timestamp, usize, Timer)>>,
    /// How many nodes are registered.
    registered: usize,
    /// How many nodes of others are run.
    managed: usize,
    /// What users should know and have not been shown.
    events: Vec<api::Event>,
    /// How much of the pods' lives may be told.
    lives: TokenBucket,
    /// The id of the next node that is taken over.
    id_next: usize,
    /// Indexes below `index_next` that no node has.
    indexes_free: BTreeSet<usize>,
    index_next: usize,
}

impl Fleet {
    /// A fleet that has not been started.
    pub fn new(config: FleetConfig) -> Result<Self, Error> {
        let count = config.count();
        if count > NODES_MAX || config.further.iter().any(|index| *index >= NODES_MAX) {
            return Err(Error::TooManyNodes(count));
        }
        let template = Arc::new(config.template);
        let delays = Delays { start: config.pod_start_delay, stop: config.pod_stop_delay };
        let offset = |position: usize| position as f64 / count as f64;
        let kubelet = |(position, index)| {
            let identity = NodeIdentity::new(&template.names, index);
            (index, Kubelet::new(Arc::clone(&template), identity, delays, (config.lease_renewal, offset(position))))
        };
        let kubelets: BTreeMap<usize, Kubelet> =
            (0..config.nodes).chain(config.further).enumerate().map(kubelet).collect();
        let by_name = kubelets.iter().map(|(id, kubelet)| (kubelet.name().to_owned(), *id)).collect();
        let index_next = kubelets.last_key_value().map_or(0, |(last, _)| last + 1);
        let indexes_free = (config.nodes..index_next).filter(|index| !kubelets.contains_key(index)).collect();
        Ok(Fleet {
            template,
            manage: config.manage,
            delays,
            lease_renewal: config.lease_renewal,
            kubelets,
            by_name,
            timers: BinaryHeap::new(),
            registered: 0,
            managed: 0,
            events: Vec::new(),
            lives: TokenBucket::new(LIVES_PER_SECOND, LIVES_BURST),
            id_next: NODES_MAX,
            indexes_free,
            index_next,
        })
    }

    /// Registers every node; those that are there already go on.
    pub fn start(&mut self, now: Timestamp) -> Vec<Effect> {
        let mut out = Outbox::default();
        for kubelet in self.kubelets.values_mut().filter(|kubelet| !kubelet.is_selected()) {
            kubelet.start(now, &mut out);
            self.registered += usize::from(kubelet.is_registered());
        }
        self.settle(out, now)
    }

    /// Handles a change in the cluster; a change that concerns none of these nodes is ignored.
    pub fn handle(&mut self, event: Event, now: Timestamp) -> Vec<Effect> {
        let mut out = Outbox::default();
        match &event {
            Event::Pod(delta) => {
                let Some(kubelet) = self.kubelet_of(&delta.object().spec.node_name) else { return Vec::new() };
                match delta {
                    Delta::Added(pod) | Delta::Updated { new: pod, .. } => kubelet.pod_changed(pod, now, &mut out),
                    Delta::Deleted(pod) => kubelet.pod_gone(&pod.metadata.uid, now, &mut out),
                }
            }
            Event::Node(Delta::Added(node) | Delta::Updated { new: node, .. }) => {
                self.node_changed(node, now, &mut out);
            }
            Event::Node(Delta::Deleted(node)) => self.node_gone(&node.metadata.name, &mut out),
        }
        self.settle(out, now)
    }

    fn kubelet_of(&mut self, name: &str) -> Option<&mut Kubelet> {
        self.by_name.get(name).and_then(|id| self.kubelets.get_mut(id))
    }

    fn node_changed(&mut self, node: &Arc<NodeView>, now: Timestamp, out: &mut Outbox) {
        let selected = self.manage.as_ref().is_some_and(|selector| selector.matches(&node.metadata.labels));
        match self.kubelet_of(&node.metadata.name) {
            Some(kubelet) if kubelet.is_selected() && !selected => self.forget(&node.metadata.name),
            Some(kubelet) => kubelet.node_changed(node, now, out),
            None if selected => self.take_over(node, now, out),
            None => {}
        }
    }

    fn node_gone(&mut self, name: &str, out: &mut Outbox) {
        let Some(kubelet) = self.kubelet_of(name) else { return };
        kubelet.node_gone(out);
        // Whoever made the node may make it again; under its name alone it is nobody to wait for.
        if kubelet.is_selected() {
            self.forget(name);
        }
    }

    fn take_over(&mut self, node: &Arc<NodeView>, now: Timestamp, out: &mut Outbox) {
        let index = self.indexes_free.pop_first().unwrap_or(self.index_next);
        if index >= NODES_MAX {
            let note = Error::TooManyNodes(NODES_MAX + 1).to_string();
            self.events.push(not_simulated(&node.metadata.name, &node.metadata.uid, note));
            return;
        }
        self.index_next = self.index_next.max(index + 1);
        let id = self.id_next;
        self.id_next += 1;
        let name = &node.metadata.name;
        let identity = NodeIdentity::with_name(id, index, name.clone());
        let offset = (id as f64 * SPREAD).fract();
        let mut kubelet = Kubelet::new(Arc::clone(&self.template), identity, self.delays, (self.lease_renewal, offset));
        kubelet.take_over(node, now, out);
        self.kubelets.insert(id, kubelet);
        self.by_name.insert(name.clone(), id);
    }

    fn forget(&mut self, name: &str) {
        let Some(kubelet) = self.by_name.remove(name).and_then(|id| self.kubelets.remove(&id)) else { return };
        self.managed -= usize::from(kubelet.is_registered());
        self.indexes_free.insert(kubelet.index());
    }

    /// Handles the final answer to a request; the sender has retried where that could help.
    pub fn answered(&mut self, ticket: &Ticket, answer: Result<&[u8], &Status>, now: Timestamp) -> Vec<Effect> {
        let mut out = Outbox::default();
        if let Some(kubelet) = self.kubelets.get_mut(&ticket.node) {
            let was_registered = kubelet.is_registered();
            kubelet.answered(&ticket.purpose, answer, now, &mut out);
            let count = if kubelet.is_selected() { &mut self.managed } else { &mut self.registered };
            *count += usize::from(kubelet.is_registered() && !was_registered);
        }
        self.settle(out, now)
    }

    /// Lets the time up to `now` pass; also returns the next deadline.
    pub fn tick(&mut self, now: Timestamp) -> (Vec<Effect>, Option<Timestamp>) {
        let mut effects = Vec::new();
        while self.next_deadline().is_some_and(|at| at <= now) {
            let Some(Reverse((_, node, timer))) = self.timers.pop() else { break };
            let mut out = Outbox::default();
            let Some(kubelet) = self.kubelets.get_mut(&node) else { continue };
            kubelet.fire(timer, now, &mut out);
            effects.extend(self.settle(out, now));
        }
        (effects, self.next_deadline())
    }

    /// The time of the next timer.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.peek().map(|Reverse((at, ..))| *at)
    }

    /// The number of pods on all nodes.
    pub fn pods(&self) -> usize {
        self.kubelets.values().map(Kubelet::pods).sum()
    }

    /// Whether it takes over nodes of others.
    pub fn manages_others(&self) -> bool {
        self.manage.is_some()
    }

    /// Whether it runs the node of this name.
    pub fn runs(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// How many nodes of others it runs.
    pub fn managed(&self) -> usize {
        self.managed
    }

    /// The nodes it made and that nobody has deleted, with the pods on them.
    pub fn created(&self) -> Vec<CreatedNode> {
        let made = self.kubelets.values().filter(|kubelet| !kubelet.is_selected() && kubelet.is_there());
        let created = made.map(|kubelet| {
            let pods = kubelet.pod_views().map(|pod| {
                let ObjectMeta { namespace, name, uid, .. } = &pod.metadata;
                (namespace.clone(), name.clone(), uid.clone())
            });
            CreatedNode { name: kubelet.name().to_owned(), uid: kubelet.node_uid().to_owned(), pods: pods.collect() }
        });
        created.collect()
    }

    /// How many nodes the API server has accepted, or had already.
    pub fn registered(&self) -> usize {
        self.registered
    }

    /// Takes the Events to record: what users should know about their objects.
    pub fn take_events(&mut self) -> Vec<api::Event> {
        std::mem::take(&mut self.events)
    }

    fn settle(&mut self, out: Outbox, now: Timestamp) -> Vec<Effect> {
        self.events.extend(out.events);
        let time = Duration::from_millis(u64::try_from(now.as_millisecond()).unwrap_or(0));
        self.events.extend(out.lives.into_iter().take_while(|_| self.lives.try_take(time)));
        self.timers.extend(out.timers.into_iter().map(Reverse));
        out.effects
    }
}
