//! Events during the attempts of pods in flight; upstream's `inFlightEvents`. An event is kept as long as the attempt
//! of a pod runs that began before it.

use std::collections::VecDeque;

use super::ClusterChange;

struct KeptEvent {
    change: ClusterChange,
    /// The number of pods in flight whose attempt began right before this event.
    pods_starting_here: u32,
}

/// Events since the oldest attempt in flight began.
#[derive(Default)]
pub(super) struct InFlightEvents {
    events: VecDeque<KeptEvent>,
    /// The number of the first kept event.
    first: u64,
    /// The number of pods in flight whose attempt began after the last event.
    starting_at_end: u32,
    in_flight: usize,
}

impl InFlightEvents {
    pub(super) fn anyone_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// The number of pods in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// All kept events.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ClusterChange> {
        self.events.iter().map(|kept| &kept.change)
    }

    /// Starts an attempt; the answer is the number of the next event.
    pub(super) fn start(&mut self) -> u64 {
        self.in_flight += 1;
        self.starting_at_end += 1;
        self.first + self.events.len() as u64
    }

    /// Finishes an attempt that started at this number, and drops the events that no other attempt needs.
    pub(super) fn finish(&mut self, since: u64) {
        self.in_flight -= 1;
        match self.events.get_mut((since - self.first) as usize) {
            Some(kept) => kept.pods_starting_here -= 1,
            None => self.starting_at_end -= 1,
        }
        // An event is needed by attempts that started before it; none started before the first kept one.
        while self.events.front().is_some_and(|kept| kept.pods_starting_here == 0) {
            self.events.pop_front();
            self.first += 1;
        }
    }

    /// Keeps an event, if pods are in flight.
    pub(super) fn note(&mut self, change: ClusterChange) {
        if self.in_flight > 0 {
            self.events.push_back(KeptEvent { change, pods_starting_here: std::mem::take(&mut self.starting_at_end) });
        }
    }

    /// The events since an attempt started.
    pub(super) fn since(&self, since: u64) -> impl Iterator<Item = &ClusterChange> {
        self.events.range((since - self.first) as usize..).map(|kept| &kept.change)
    }
}
