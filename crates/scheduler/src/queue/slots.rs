//! The queue's pods by slot: a small number that stands for a UID while the queue has the pod.

use rustc_hash::FxHashMap;

use super::QueuedPod;

/// The slot of a pod; reused after the pod is gone.
pub(super) type Slot = u32;

/// The sub-queue of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SubQueue {
    /// None: the pod is in flight, or moves from one sub-queue to another.
    #[default]
    None,
    /// Active, and never tried.
    Active,
    /// Active, and tried before.
    ActiveAgain,
    Backoff,
    ErrorBackoff,
    /// Waits for an event; gated pods are here, too.
    Unschedulable,
}

/// The position of a pod in its sub-queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    pub(super) sub_queue: SubQueue,
    /// The index in the heap or in the group.
    pub(super) at: u32,
    /// The group, while the pod is unschedulable.
    pub(super) group: u32,
}

/// Everything that is stored by slot, in columns: sifting a heap touches positions, not pods.
#[derive(Default)]
pub(super) struct Slots {
    /// The API server draws UIDs: no client can choose those that fall together.
    by_uid: FxHashMap<Box<str>, Slot>,
    pods: Vec<Option<QueuedPod>>,
    pub(super) positions: Vec<Position>,
    /// For each pod in flight the number of the first event since its attempt began.
    in_flight_since: Vec<Option<u64>>,
    free: Vec<Slot>,
}

impl Slots {
    pub(super) fn find(&self, uid: &str) -> Option<Slot> {
        self.by_uid.get(uid).copied()
    }

    /// The slot of a UID; a new one when it has none.
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

    /// Frees the slot of a pod that is neither in a sub-queue nor in flight.
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
        self.pods[slot as usize].as_ref().expect("a pod in a sub-queue is in its slot")
    }

    pub(super) fn pod_mut(&mut self, slot: Slot) -> &mut QueuedPod {
        self.pods[slot as usize].as_mut().expect("a pod in a sub-queue is in its slot")
    }

    /// Puts a pod into its slot; its position is for the sub-queue to set.
    pub(super) fn put(&mut self, slot: Slot, pod: QueuedPod, sub_queue: SubQueue) {
        self.pods[slot as usize] = Some(pod);
        self.positions[slot as usize].sub_queue = sub_queue;
    }

    /// Takes a pod out of its slot, after it has left its sub-queue.
    pub(super) fn take(&mut self, slot: Slot) -> QueuedPod {
        self.positions[slot as usize].sub_queue = SubQueue::None;
        self.pods[slot as usize].take().expect("a pod in a sub-queue is in its slot")
    }
}
