//! All simulated nodes of a cluster, driven by events, answers and one timer heap.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api;
use bayplan_model::delta::Delta;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::status::Status;
use jiff::Timestamp;

use crate::kubelet::{Effect, Event, Kubelet, Outbox, Ticket, Timer};
use crate::pod::Delays;
use crate::template::{NODES_MAX, NodeIdentity, NodeTemplate};

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
    /// From a pod's binding to its first container, and for each init container.
    pub pod_start_delay: Duration,
    /// How long containers take to stop, when their grace period lets them.
    pub pod_stop_delay: Duration,
}

impl Default for FleetConfig {
    fn default() -> Self {
        FleetConfig {
            nodes: 10,
            further: Vec::new(),
            template: NodeTemplate::default(),
            pod_start_delay: Duration::from_secs(1),
            pod_stop_delay: Duration::from_secs(1),
        }
    }
}

impl FleetConfig {
    /// Adds the nodes of these names that an earlier run left behind, as far as they are a fleet's.
    pub fn with_nodes_named<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let indexes = names.into_iter().filter_map(NodeIdentity::index_of);
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
        Some((NodeIdentity::new(first).name, NodeIdentity::new(last).name))
    }
}

/// Why a fleet cannot be created.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There are not enough pod networks.
    #[error("{0} nodes are more than there are pod networks for ({NODES_MAX})")]
    TooManyNodes(usize),
}

/// The nodes.
pub struct Fleet {
    /// By the index of the node.
    kubelets: BTreeMap<usize, Kubelet>,
    by_name: KeyedMap<String, usize>,
    /// Timers are never removed: one without work left does nothing when it fires.
    timers: BinaryHeap<Reverse<(Timestamp, usize, Timer)>>,
    /// How many nodes are registered.
    registered: usize,
    /// What users should know and have not been shown.
    events: Vec<api::Event>,
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
            let identity = NodeIdentity::new(index);
            (index, Kubelet::new(Arc::clone(&template), identity, delays, offset(position)))
        };
        let kubelets: BTreeMap<usize, Kubelet> =
            (0..config.nodes).chain(config.further).enumerate().map(kubelet).collect();
        let by_name = kubelets.iter().map(|(index, kubelet)| (kubelet.name().to_owned(), *index)).collect();
        Ok(Fleet { kubelets, by_name, timers: BinaryHeap::new(), registered: 0, events: Vec::new() })
    }

    /// Registers every node.
    pub fn start(&mut self, now: Timestamp) -> Vec<Effect> {
        let mut out = Outbox::default();
        for kubelet in self.kubelets.values_mut() {
            kubelet.register(now, &mut out);
        }
        self.settle(out)
    }

    /// Handles a change in the cluster; a change that concerns none of these nodes is ignored.
    pub fn handle(&mut self, event: Event, now: Timestamp) -> Vec<Effect> {
        let mut out = Outbox::default();
        let name = match &event {
            Event::Pod(delta) => &delta.object().spec.node_name,
            Event::Node(delta) => &delta.object().metadata.name,
        };
        let Some(kubelet) = self.by_name.get(name).and_then(|index| self.kubelets.get_mut(index)) else {
            return Vec::new();
        };
        match &event {
            Event::Pod(Delta::Added(pod) | Delta::Updated { new: pod, .. }) => kubelet.pod_changed(pod, now, &mut out),
            Event::Pod(Delta::Deleted(pod)) => kubelet.pod_gone(&pod.metadata.uid),
            Event::Node(Delta::Added(node) | Delta::Updated { new: node, .. }) => {
                kubelet.node_changed(node, now, &mut out);
            }
            Event::Node(Delta::Deleted(_)) => kubelet.node_gone(&mut out),
        }
        self.settle(out)
    }

    /// Handles the final answer to a request; the sender has retried where that could help.
    pub fn answered(&mut self, ticket: &Ticket, answer: Result<(), &Status>, now: Timestamp) -> Vec<Effect> {
        let mut out = Outbox::default();
        if let Some(kubelet) = self.kubelets.get_mut(&ticket.node) {
            let was_registered = kubelet.is_registered();
            kubelet.answered(&ticket.purpose, answer, now, &mut out);
            self.registered += usize::from(kubelet.is_registered() && !was_registered);
        }
        self.settle(out)
    }

    /// Lets the time up to `now` pass; also returns the next deadline.
    pub fn tick(&mut self, now: Timestamp) -> (Vec<Effect>, Option<Timestamp>) {
        let mut effects = Vec::new();
        while self.next_deadline().is_some_and(|at| at <= now) {
            let Some(Reverse((_, node, timer))) = self.timers.pop() else { break };
            let mut out = Outbox::default();
            let Some(kubelet) = self.kubelets.get_mut(&node) else { continue };
            kubelet.fire(timer, now, &mut out);
            effects.extend(self.settle(out));
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

    /// How many nodes the API server has accepted, or had already.
    pub fn registered(&self) -> usize {
        self.registered
    }

    /// Takes the Events to record: what users should know about their objects.
    pub fn take_events(&mut self) -> Vec<api::Event> {
        std::mem::take(&mut self.events)
    }

    fn settle(&mut self, out: Outbox) -> Vec<Effect> {
        self.events.extend(out.events);
        self.timers.extend(out.timers.into_iter().map(Reverse));
        out.effects
    }
}
