//! A heap of slots. The sort key is stored beside the slot, so that sifting need not touch pods.

use super::QueuePlugins;
use super::slots::{Slot, Slots};
use crate::framework::SortKey;

/// The number of children of an entry: four fit into two or three cache lines, and the heap is half as deep as with
/// two.
const ARITY: usize = 4;

#[derive(Clone, Copy)]
struct Entry {
    /// The second in which the backoff ends; 0 in the active queue.
    expiry: i64,
    key: Option<SortKey>,
    slot: Slot,
}

#[derive(Default)]
pub(super) struct Heap {
    entries: Vec<Entry>,
}

fn before(a: &Entry, b: &Entry, slots: &Slots, plugins: &dyn QueuePlugins) -> bool {
    if a.expiry != b.expiry {
        return a.expiry < b.expiry;
    }
    match (a.key, b.key) {
        (Some(a), Some(b)) => a < b,
        _ => plugins.less(slots.pod(a.slot), slots.pod(b.slot)),
    }
}

impl Heap {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The first slot, and the second in which its backoff ends.
    pub(super) fn peek(&self) -> Option<(Slot, i64)> {
        self.entries.first().map(|entry| (entry.slot, entry.expiry))
    }

    /// Whether the first entry comes before the first one of another heap; an empty heap comes last.
    pub(super) fn is_ahead_of(&self, other: &Heap, slots: &Slots, plugins: &dyn QueuePlugins) -> bool {
        match (self.entries.first(), other.entries.first()) {
            (Some(own), Some(other)) => before(own, other, slots, plugins),
            (own, _) => own.is_some(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.entries.iter().map(|entry| entry.slot)
    }

    pub(super) fn push(&mut self, slot: Slot, expiry: i64, slots: &mut Slots, plugins: &dyn QueuePlugins) {
        let entry = Entry { expiry, key: plugins.sort_key(slots.pod(slot)), slot };
        self.entries.push(entry);
        self.up(self.entries.len() - 1, slots, plugins);
    }

    pub(super) fn pop(&mut self, slots: &mut Slots, plugins: &dyn QueuePlugins) -> Option<Slot> {
        let slot = self.entries.first()?.slot;
        self.remove(slot, slots, plugins);
        Some(slot)
    }

    /// Removes a slot that is in this heap; its pod must still be there.
    pub(super) fn remove(&mut self, slot: Slot, slots: &mut Slots, plugins: &dyn QueuePlugins) {
        let at = slots.positions[slot as usize].at as usize;
        self.entries.swap_remove(at);
        if at < self.entries.len() {
            self.settle(at, slots, plugins);
        }
    }

    /// Restores the order after a pod in this heap has changed.
    pub(super) fn fix(&mut self, slot: Slot, slots: &mut Slots, plugins: &dyn QueuePlugins) {
        let at = slots.positions[slot as usize].at as usize;
        self.entries[at].key = plugins.sort_key(slots.pod(slot));
        self.settle(at, slots, plugins);
    }

    fn settle(&mut self, at: usize, slots: &mut Slots, plugins: &dyn QueuePlugins) {
        let at = self.up(at, slots, plugins);
        self.down(at, slots, plugins);
    }

    fn write(&mut self, at: usize, entry: Entry, slots: &mut Slots) {
        self.entries[at] = entry;
        slots.positions[entry.slot as usize].at = at as u32;
    }

    fn up(&mut self, mut at: usize, slots: &mut Slots, plugins: &dyn QueuePlugins) -> usize {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if !before(&entry, &self.entries[parent], slots, plugins) {
                break;
            }
            self.write(at, self.entries[parent], slots);
            at = parent;
        }
        self.write(at, entry, slots);
        at
    }

    fn down(&mut self, mut at: usize, slots: &mut Slots, plugins: &dyn QueuePlugins) {
        let entry = self.entries[at];
        loop {
            let children = ARITY * at + 1..(ARITY * at + 1 + ARITY).min(self.entries.len());
            let first = children.reduce(|first, child| {
                if before(&self.entries[child], &self.entries[first], slots, plugins) { child } else { first }
            });
            let Some(first) = first.filter(|first| before(&self.entries[*first], &entry, slots, plugins)) else {
                break;
            };
            self.write(at, self.entries[first], slots);
            at = first;
        }
        self.write(at, entry, slots);
    }
}
