//! Events that pods in flight may have missed, kept for as long as somebody may ask for them.

use std::collections::VecDeque;

use super::ClusterChange;

struct KeptEvent {
    change: ClusterChange,
    /// Pods in flight for which this is the first event they may have missed.
    pods_starting_here: u32,
}

/// Events since the oldest pod in flight was popped.
#[derive(Default)]
pub(super) struct InFlightEvents {
    events: VecDeque<KeptEvent>,
    /// The number of the first event that is kept.
    first: u64,
    /// Pods in flight that have missed nothing yet.
    starting_at_end: u32,
    in_flight: usize,
}

impl InFlightEvents {
    pub(super) fn anyone_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// How many pods are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// All events that are kept.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ClusterChange> {
        self.events.iter().map(|kept| &kept.change)
    }

    /// A pod takes off; the answer is the number of the first event it may miss.
    pub(super) fn start(&mut self) -> u64 {
        self.in_flight += 1;
        self.starting_at_end += 1;
        self.first + self.events.len() as u64
    }

    /// A pod that took off at this number has landed; events nobody asks for any more are dropped.
    pub(super) fn finish(&mut self, since: u64) {
        self.in_flight -= 1;
        match self.events.get_mut((since - self.first) as usize) {
            Some(kept) => kept.pods_starting_here -= 1,
            None => self.starting_at_end -= 1,
        }
        // An event is needed by pods that took off at or before it; before the first kept one nobody did.
        while self.events.front().is_some_and(|kept| kept.pods_starting_here == 0) {
            self.events.pop_front();
            self.first += 1;
        }
    }

    /// Keeps an event for the pods in flight, if there are any.
    pub(super) fn note(&mut self, change: ClusterChange) {
        if self.in_flight > 0 {
            self.events.push_back(KeptEvent { change, pods_starting_here: std::mem::take(&mut self.starting_at_end) });
        }
    }

    /// The events a pod in flight has missed.
    pub(super) fn since(&self, since: u64) -> impl Iterator<Item = &ClusterChange> {
        self.events.range((since - self.first) as usize..).map(|kept| &kept.change)
    }
}
