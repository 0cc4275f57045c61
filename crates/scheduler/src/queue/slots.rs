//! The queue's pods by slot: a small number stands for a UID while the queue knows the pod.

use rustc_hash::FxHashMap;

use super::QueuedPod;

/// Stands for a pod; reused after the pod is gone.
pub(super) type Slot = u32;

/// The line a pod stands in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SubQueue {
    /// None: it is in flight, or on its way from one line to another.
    #[default]
    None,
    Active,
    Backoff,
    ErrorBackoff,
    /// Waiting for an event.
    Unschedulable,
}

/// Where in its line a pod stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    pub(super) sub_queue: SubQueue,
    /// Its place in the heap or in the group.
    pub(super) at: u32,
    /// Its group, while it waits.
    pub(super) group: u32,
}

/// Everything that is kept by slot, in columns: sifting a heap touches places, not pods.
#[derive(Default)]
pub(super) struct Slots {
    by_uid: FxHashMap<Box<str>, Slot>,
    pods: Vec<Option<QueuedPod>>,
    pub(super) positions: Vec<Position>,
    /// The first event each pod in flight may have missed.
    in_flight_since: Vec<Option<u64>>,
    free: Vec<Slot>,
}

impl Slots {
    pub(super) fn find(&self, uid: &str) -> Option<Slot> {
        self.by_uid.get(uid).copied()
    }

    /// The slot of a UID, a new one if need be.
    pub(super) fn claim(&mut self, uid: &str) -> Slot {
        if let Some(slot) = self.find(uid) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.pods.push(None);
            self.positions.push(Position::default());
            self.in_flight_since.push(None);
            Slot::try_from(self.pods.len() - 1).expect("a queue has fewer than 2^32 pods")
        });
        self.by_uid.insert(uid.into(), slot);
        slot
    }

    /// Frees the slot of a pod that stands nowhere and is not in flight.
    pub(super) fn release(&mut self, slot: Slot, uid: &str) {
        let at = slot as usize;
        if self.positions[at].sub_queue == SubQueue::None
            && self.in_flight_since[at].is_none()
            && self.by_uid.remove(uid).is_some()
        {
            self.free.push(slot);
        }
    }

    pub(super) fn sub_queue(&self, slot: Slot) -> SubQueue {
        self.positions[slot as usize].sub_queue
    }

    pub(super) fn in_flight_since(&self, slot: Slot) -> Option<u64> {
        self.in_flight_since[slot as usize]
    }

    pub(super) fn set_in_flight_since(&mut self, slot: Slot, since: Option<u64>) -> Option<u64> {
        std::mem::replace(&mut self.in_flight_since[slot as usize], since)
    }

    pub(super) fn pod(&self, slot: Slot) -> &QueuedPod {
        self.pods[slot as usize].as_ref().expect("a pod that is in a line is in its slot")
    }

    pub(super) fn pod_mut(&mut self, slot: Slot) -> &mut QueuedPod {
        self.pods[slot as usize].as_mut().expect("a pod that is in a line is in its slot")
    }

    /// Puts a pod into a line; its place there is for the line to note.
    pub(super) fn put(&mut self, slot: Slot, pod: QueuedPod, sub_queue: SubQueue) {
        self.pods[slot as usize] = Some(pod);
        self.positions[slot as usize].sub_queue = sub_queue;
    }

    /// Takes a pod that has left its line.
    pub(super) fn take(&mut self, slot: Slot) -> QueuedPod {
        self.positions[slot as usize].sub_queue = SubQueue::None;
        self.pods[slot as usize].take().expect("a pod that was in a line is in its slot")
    }
}
