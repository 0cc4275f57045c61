//! The changes that one watch has brought.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::Object;
use jiff::Timestamp;

/// The most changes of a kind that are kept: some minutes of a busy cluster. Each holds handles on two versions of an
/// object.
const CHANGES_MAX: usize = 50_000;

/// The resource version of a change. All kinds share one counter.
pub(super) type Version = u64;

/// Changes are numbered from the first one that was ever seen. As a position in a track: after all changes before it.
pub(super) type Number = u64;

/// A change of one object.
#[derive(Clone)]
pub(super) struct Change {
    /// When it was seen.
    pub(super) at: Timestamp,
    pub(super) version: Version,
    pub(super) old: Option<Object>,
    pub(super) new: Option<Object>,
    /// A decision may read it.
    pub(super) matters: bool,
    /// The turn of a pod that waits for a scheduler that is judged.
    pub(super) turn: Option<Turn>,
}

/// What the scheduling queue orders a pod by: its priority, then how long it has waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) priority: i32,
    /// The least position of the pods at which it can have been tried: after its creation, or its last failure.
    pub(super) since: Number,
    /// It was not tried before. Then it has been in the queue since its creation; others wait in other places, too.
    pub(super) is_first: bool,
}

/// When one pod was decided, compared with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Before,
    After,
    /// Before, if that one came before the other was in the queue; among several such pods the first ones.
    BeforeIfEarly,
    /// Either.
    Unknown,
}

impl Turn {
    /// When another pod, which the scheduler has seen, was decided: the queue gives out the highest priority first, and
    /// the oldest pod of that.
    pub(super) fn order_of(&self, other: &Turn) -> Order {
        if !other.is_first {
            return Order::Unknown;
        }
        let is_older = other.since < self.since;
        match other.priority.cmp(&self.priority) {
            Ordering::Greater => Order::Before,
            Ordering::Equal if is_older => Order::Before,
            _ if !is_older && self.is_first => Order::After,
            _ => Order::BeforeIfEarly,
        }
    }
}

/// The node of a node, or of a pod that is on one.
fn node_of(object: Option<&Object>) -> Option<&str> {
    match object? {
        Object::Node(node) => Some(&node.metadata.name),
        Object::Pod(pod) if pod.is_assigned() => Some(&pod.spec.node_name),
        _ => None,
    }
}

fn nomination(object: Option<&Object>) -> &str {
    match object {
        Some(Object::Pod(pod)) => &pod.status.nominated_node_name,
        _ => "",
    }
}

impl Change {
    /// The pod that this change puts on a node.
    pub(super) fn placed(&self) -> Option<&Arc<Pod>> {
        match (&self.old, &self.new) {
            (Some(Object::Pod(old)), _) if old.is_assigned() => None,
            (_, Some(Object::Pod(new))) if new.is_assigned() => Some(new),
            _ => None,
        }
    }

    /// The pod that this change takes off the node that it was on its way to: its binding failed, as when a preemptor
    /// wants the node while the pod still waits for its claims. Its scheduler knew that before the API server did, and
    /// no queue says when.
    pub(super) fn forgotten(&self) -> Option<&Arc<Pod>> {
        match (&self.old, &self.new) {
            (Some(Object::Pod(old)), Some(Object::Pod(new))) if old.is_assigned() && !new.is_assigned() => Some(new),
            _ => None,
        }
    }

    /// The pod that this change places, nominates or forgets, and its turn: its scheduler knew that before the API
    /// server did.
    pub(super) fn act(&self) -> Option<(&Arc<Pod>, Turn)> {
        let pod = match &self.new {
            Some(Object::Pod(new)) if !new.is_assigned() => {
                let is_nominated_anew = nomination(self.old.as_ref()) != nomination(self.new.as_ref());
                (is_nominated_anew || self.forgotten().is_some()).then_some(new)
            }
            _ => self.placed(),
        };
        let turn = self.turn?;
        // It comes back into the queue then.
        let is_first = turn.is_first && self.forgotten().is_none();
        Some((pod?, Turn { is_first, ..turn }))
    }

    /// The object was not there before.
    pub(super) fn is_new(&self) -> bool {
        self.old.is_none()
    }

    /// The node whose state this changes.
    pub(super) fn node(&self) -> Option<&str> {
        node_of(self.new.as_ref()).or_else(|| node_of(self.old.as_ref()))
    }
}

/// The changes of one kind, in the order in which the API server stored them, and how many of them a state has.
#[derive(Default)]
pub(super) struct Track {
    changes: VecDeque<Change>,
    first: Number,
    position: Number,
}

impl Track {
    /// The number of the first change that is kept.
    pub(super) fn first(&self) -> Number {
        self.first
    }

    /// The number that the next change will have.
    pub(super) fn end(&self) -> Number {
        self.first + self.changes.len() as u64
    }

    /// The changes that the state has.
    pub(super) fn position(&self) -> Number {
        self.position
    }

    pub(super) fn change(&self, number: Number) -> Option<&Change> {
        self.changes.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// The first change that was seen after a time.
    pub(super) fn first_after(&self, time: Timestamp) -> Number {
        self.first + self.changes.partition_point(|change| change.at <= time) as u64
    }

    /// The first change of this version or a later one.
    pub(super) fn first_from(&self, version: Version) -> Number {
        self.first + self.changes.partition_point(|change| change.version < version) as u64
    }

    /// Adds a change that the state has already, and answers the one that is too old to be kept.
    pub(super) fn push(&mut self, mut change: Change) -> Option<Change> {
        // Versions only grow on a watch; what is found to be gone by a new list has an old one.
        change.version = change.version.max(self.changes.back().map_or(0, |last| last.version));
        self.changes.push_back(change);
        let dropped = if self.changes.len() > CHANGES_MAX { self.changes.pop_front() } else { None };
        self.first += u64::from(dropped.is_some());
        self.position = self.end();
        dropped
    }

    /// The next change on the way to a position, as what is replaced by what; none when the state is there.
    pub(super) fn step_to(&mut self, number: Number) -> Option<(Option<Object>, Option<Object>)> {
        let number = number.clamp(self.first, self.end());
        if self.position > number {
            self.position -= 1;
            return self.change(self.position).map(|change| (change.new.clone(), change.old.clone()));
        }
        let step = (self.position < number).then(|| self.change(self.position))?;
        let step = step.map(|change| (change.old.clone(), change.new.clone()));
        self.position += 1;
        step
    }
}
