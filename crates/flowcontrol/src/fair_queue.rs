//! The queues of one level, served fairly: fair queuing by virtual time, for requests whose length is not known before.
//!
//! The set has a clock of its own, `R`: the seat-time that a queue with work has been entitled to since the start.
//! While several queues have work, it advances by `seats / queues with work` for each unit of time. A queue's `next`
//! is the time on that clock at which its next request would begin if each queue had its share to itself. The request
//! that would end first is dispatched. A request is counted with a guess of its length when it is dispatched, and the
//! difference is made good when it ends.

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::Queuing;
use crate::shuffle_sharding::{HAND_MAX, deal};

/// The guess of how long a request takes, as upstream.
const GUESS: Duration = Duration::from_millis(3);

/// Seats multiplied by nanoseconds. A year of 1,000,000 seats is 2^115 of them.
type SeatTime = i128;

fn seat_time(seats: usize, time: Duration) -> SeatTime {
    seats as SeatTime * time.as_nanos() as SeatTime
}

/// The queues of a level; `T` is what wakes a request that waits.
pub struct QueueSet<T> {
    config: Queuing,
    queues: Vec<Queue<T>>,
    /// The seats that may be taken.
    limit: usize,
    r: SeatTime,
    last: Duration,
    /// The queue that was served last; ties go to the others.
    robin: usize,
    enqueued: usize,
    requests_waiting: usize,
    requests_executing: usize,
    seats_waiting: usize,
    seats_in_use: usize,
    /// Queues with requests that wait or execute.
    busy: usize,
    next_id: u64,
}

struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    seats_waiting: usize,
    requests_executing: usize,
    next: SeatTime,
}

struct Waiting<T> {
    id: u64,
    seats: usize,
    arrival: SeatTime,
    wake: T,
}

/// A request that executes.
#[derive(Debug)]
pub struct Executing {
    queue: usize,
    seats: usize,
    since: Duration,
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub struct WaitingId {
    queue: usize,
    id: u64,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Arrival {
    /// It has its seats.
    Executes(Executing),
    /// It waits, and is woken when it has its seats.
    Waits(WaitingId),
    /// Its queue is full.
    Refused,
}

impl<T> QueueSet<T> {
    /// Empty queues and so many seats.
    pub fn new(config: Queuing, limit: usize) -> QueueSet<T> {
        let queue = || Queue { waiting: VecDeque::new(), seats_waiting: 0, requests_executing: 0, next: 0 };
        QueueSet {
            config,
            queues: std::iter::repeat_with(queue).take(config.queues.max(1)).collect(),
            limit,
            r: 0,
            last: Duration::ZERO,
            robin: 0,
            enqueued: 0,
            requests_waiting: 0,
            requests_executing: 0,
            seats_waiting: 0,
            seats_in_use: 0,
            busy: 0,
            next_id: 0,
        }
    }

    /// The seats that are taken or waited for.
    pub fn demand(&self) -> usize {
        self.seats_in_use + self.seats_waiting
    }

    /// The seats that are taken.
    pub fn seats_in_use(&self) -> usize {
        self.seats_in_use
    }

    /// The requests that wait.
    pub fn waiting(&self) -> usize {
        self.requests_waiting
    }

    /// Advances the clock `R`.
    fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        if self.busy > 0 {
            self.r += seat_time(self.demand().min(self.limit), passed) / self.busy as SeatTime;
        }
    }

    /// A request of a flow arrives. `wake` is only made if it waits.
    pub fn arrive(&mut self, flow: u64, seats: usize, now: Duration, wake: impl FnOnce() -> T) -> Arrival {
        self.advance(now);
        let queue = self.shortest_of_hand(flow);
        if self.requests_waiting == 0 && self.accommodates(seats) {
            self.start_if_empty(queue);
            return Arrival::Executes(self.execute(queue, seats, now));
        }
        if self.seats_in_use >= self.limit && self.queues[queue].waiting.len() >= self.config.queue_length_limit {
            return Arrival::Refused;
        }
        self.start_if_empty(queue);
        self.next_id += 1;
        let id = self.next_id;
        self.queues[queue].waiting.push_back(Waiting { id, seats, arrival: self.r, wake: wake() });
        self.queues[queue].seats_waiting += seats;
        self.requests_waiting += 1;
        self.seats_waiting += seats;
        self.bound(queue);
        Arrival::Waits(WaitingId { queue, id })
    }

    fn start_if_empty(&mut self, queue: usize) {
        let queue = &mut self.queues[queue];
        if queue.waiting.is_empty() && queue.requests_executing == 0 {
            queue.next = self.r;
            self.busy += 1;
        }
    }

    fn end_if_empty(&mut self, queue: usize) {
        let queue = &self.queues[queue];
        if queue.waiting.is_empty() && queue.requests_executing == 0 {
            self.busy -= 1;
        }
    }

    /// The queue of the flow's hand with the least work waiting; ties go to another queue each time.
    fn shortest_of_hand(&mut self, flow: u64) -> usize {
        let mut hand = [0; HAND_MAX];
        let hand = deal(flow, self.queues.len(), self.config.hand_size.max(1), &mut hand);
        let first = self.enqueued % hand.len();
        self.enqueued = self.enqueued.wrapping_add(1);
        let order = hand[first..].iter().chain(&hand[..first]);
        *order.min_by_key(|queue| self.queues[**queue].seats_waiting).expect("a hand has at least one queue")
    }

    /// True if there are seats for a request. One that needs more than all of them gets its turn alone.
    fn accommodates(&self, seats: usize) -> bool {
        if seats > self.limit { self.requests_executing == 0 } else { self.seats_in_use + seats <= self.limit }
    }

    fn execute(&mut self, queue: usize, seats: usize, now: Duration) -> Executing {
        self.seats_in_use += seats;
        self.requests_executing += 1;
        self.queues[queue].requests_executing += 1;
        self.queues[queue].next += seat_time(seats, GUESS);
        Executing { queue, seats, since: now }
    }

    /// No request begins before it came: a queue that used less than its share does not save the rest.
    fn bound(&mut self, queue: usize) {
        let queue = &mut self.queues[queue];
        if let Some(oldest) = queue.waiting.front() {
            queue.next = queue.next.max(oldest.arrival);
        }
    }

    /// A request has ended.
    pub fn finish(&mut self, request: &Executing, now: Duration) {
        self.advance(now);
        let Executing { queue, seats, since } = *request;
        self.seats_in_use -= seats;
        self.requests_executing -= 1;
        self.queues[queue].requests_executing -= 1;
        self.queues[queue].next += seat_time(seats, now.saturating_sub(since)) - seat_time(seats, GUESS);
        self.bound(queue);
        self.end_if_empty(queue);
    }

    /// A request waits no longer; false if it has been dispatched already.
    pub fn cancel(&mut self, request: WaitingId, now: Duration) -> bool {
        self.advance(now);
        let queue = &mut self.queues[request.queue];
        let Some(at) = queue.waiting.iter().position(|waiting| waiting.id == request.id) else { return false };
        let Some(waiting) = queue.waiting.remove(at) else { return false };
        queue.seats_waiting -= waiting.seats;
        self.requests_waiting -= 1;
        self.seats_waiting -= waiting.seats;
        self.bound(request.queue);
        self.end_if_empty(request.queue);
        true
    }

    /// Changes the number of seats.
    pub fn set_limit(&mut self, limit: usize, now: Duration) {
        self.advance(now);
        self.limit = limit;
    }

    /// The next request that gets its seats now, with what wakes it. Call until there is none.
    pub fn dispatch(&mut self, now: Duration) -> Option<(T, Executing)> {
        if self.requests_waiting == 0 || self.seats_in_use >= self.limit {
            return None;
        }
        let count = self.queues.len();
        let order = (1..=count).map(|step| (self.robin + step) % count);
        let end = |queue: usize| {
            let Queue { waiting, next, .. } = &self.queues[queue];
            waiting.front().map(|oldest| (next + seat_time(oldest.seats, GUESS), queue))
        };
        let (_, queue) = order.filter_map(end).min_by_key(|(end, _)| *end)?;
        if !self.accommodates(self.queues[queue].waiting.front()?.seats) {
            return None;
        }
        let Waiting { seats, wake, .. } = self.queues[queue].waiting.pop_front()?;
        self.robin = queue;
        self.queues[queue].seats_waiting -= seats;
        self.requests_waiting -= 1;
        self.seats_waiting -= seats;
        let executing = self.execute(queue, seats, now);
        self.bound(queue);
        Some((wake, executing))
    }
}

#[cfg(test)]
#[path = "fair_queue_tests.rs"]
mod tests;
