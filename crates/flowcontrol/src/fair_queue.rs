//! The queues of one level, served fairly: fair queuing by virtual time, for requests whose length is not known before.
//!
//! The set has a clock of its own, `R`: the seat-time that a queue with work has been entitled to since the start.
//! While several queues have work, it advances by `seats / queues with work` for each unit of time. A queue's `next`
//! is the time on that clock at which its next request would begin if each queue had its share to itself. The request
//! that would end first is dispatched. A request is counted with a guess of its length when it is dispatched, and the
//! difference is made good when it ends.
//!
//! Only queues with requests are kept, in the order in which they are served: a level of ten million queues costs no
//! more than one of ten. When there are fewer queues than before, those that are too many are emptied as they were
//! filled, and get no more requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::config::{Limiting, Queuing};
use crate::shuffle_sharding::{HAND_MAX, deal};
use crate::work::{GUESS, SeatTime, Work, seat_time};

/// The queues of a level; `T` is what wakes a request that waits.
pub struct QueueSet<T> {
    limiting: Limiting,
    /// The queues with requests, by number.
    queues: BTreeMap<usize, Queue<T>>,
    /// The queues in which requests wait, by when the oldest one would end.
    order: BTreeSet<(SeatTime, usize)>,
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
    /// The seats of requests that came through a queue.
    seats_of_queues: usize,
    /// Queues with requests that wait or execute.
    busy: usize,
    next_id: u64,
}

struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    work_waiting: SeatTime,
    requests_executing: usize,
    seats_in_use: usize,
    next: SeatTime,
    /// When the oldest request would end, as it is in the order.
    end: Option<SeatTime>,
}

impl<T> Queue<T> {
    fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || self.requests_executing > 0
    }
}

struct Waiting<T> {
    id: u64,
    work: Work,
    arrival: SeatTime,
    wake: T,
}

/// A request that executes.
#[derive(Debug)]
pub struct Executing {
    /// Nothing if it needed no queue.
    queue: Option<usize>,
    work: Work,
    since: Duration,
}

/// The seats that a request keeps after it has ended.
#[derive(Debug)]
pub struct Lingering {
    queue: Option<usize>,
    seats: usize,
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
    QueueFull,
    /// There is no seat, and no queue.
    NoSeat,
}

/// One queue, as it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueView {
    /// The requests that wait in it.
    pub waiting: usize,
    /// Its requests that execute.
    pub executing: usize,
    /// The seats that these have.
    pub seats_in_use: usize,
    /// When its next request would begin, in nanoseconds of one seat.
    pub next: i128,
    /// The seats that those who wait want while they are served.
    pub initial_seats: usize,
    /// The most seats that they want.
    pub seats_max: usize,
    /// The work of those who wait, in nanoseconds of one seat.
    pub work: i128,
}

impl Executing {
    /// The seats that the request has.
    pub fn seats(&self) -> usize {
        self.work.seats_max()
    }
}

impl<T> QueueSet<T> {
    /// Empty queues and so many seats.
    pub fn new(limiting: Limiting, limit: usize) -> QueueSet<T> {
        QueueSet {
            limiting,
            queues: BTreeMap::new(),
            order: BTreeSet::new(),
            limit,
            r: 0,
            last: Duration::ZERO,
            robin: 0,
            enqueued: 0,
            requests_waiting: 0,
            requests_executing: 0,
            seats_waiting: 0,
            seats_in_use: 0,
            seats_of_queues: 0,
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

    /// The requests that execute.
    pub fn executing(&self) -> usize {
        self.requests_executing
    }

    /// The seats that may be taken.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The queues with requests, by number.
    pub fn view(&self) -> impl Iterator<Item = (usize, QueueView)> {
        let sum = |queue: &Queue<T>, seats: fn(&Work) -> usize| {
            queue.waiting.iter().map(|waiting| seats(&waiting.work)).sum::<usize>()
        };
        self.queues.iter().map(move |(number, queue)| {
            let view = QueueView {
                waiting: queue.waiting.len(),
                executing: queue.requests_executing,
                seats_in_use: queue.seats_in_use,
                next: queue.next,
                initial_seats: sum(queue, |work| work.seats),
                seats_max: sum(queue, Work::seats_max),
                work: queue.work_waiting,
            };
            (*number, view)
        })
    }

    /// What wakes those who wait, by queue and in their order.
    pub fn all_waiting(&self) -> impl Iterator<Item = (usize, &T, &Work)> {
        self.queues
            .iter()
            .flat_map(|(number, queue)| queue.waiting.iter().map(|waiting| (*number, &waiting.wake, &waiting.work)))
    }

    /// Advances the clock `R`.
    fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        if self.busy > 0 {
            let wanted = self.seats_of_queues + self.seats_waiting;
            self.r += seat_time(wanted.min(self.limit), passed) / self.busy as SeatTime;
        }
    }

    /// A request of a flow arrives. `wake` is only made if it waits.
    pub fn arrive(&mut self, flow: u64, work: Work, now: Duration, wake: impl FnOnce() -> T) -> Arrival {
        self.advance(now);
        let Limiting::Queue(queuing) = self.limiting else {
            let accommodated = self.limiting == Limiting::Exempt || self.accommodates(&work);
            return if accommodated { Arrival::Executes(self.execute(None, work, now)) } else { Arrival::NoSeat };
        };
        let number = self.shortest_of_hand(flow, queuing);
        if self.requests_waiting == 0 && self.seats_in_use < self.limit && self.accommodates(&work) {
            self.activate(number);
            let executing = self.execute(Some(number), work.on(self.limit), now);
            self.settle(number);
            return Arrival::Executes(executing);
        }
        let length = self.queues.get(&number).map_or(0, |queue| queue.waiting.len());
        if self.seats_in_use >= self.limit && length >= queuing.queue_length_limit {
            return Arrival::QueueFull;
        }
        self.next_id += 1;
        let waiting = Waiting { id: self.next_id, work, arrival: self.r, wake: wake() };
        let id = WaitingId { queue: number, id: waiting.id };
        let queue = self.activate(number);
        queue.waiting.push_back(waiting);
        queue.work_waiting += work.total();
        self.requests_waiting += 1;
        self.seats_waiting += work.seats_max();
        self.settle(number);
        Arrival::Waits(id)
    }

    /// The queue, in which there will be a request.
    fn activate(&mut self, number: usize) -> &mut Queue<T> {
        let queue = self.queues.entry(number).or_insert_with(|| Queue {
            waiting: VecDeque::new(),
            work_waiting: 0,
            requests_executing: 0,
            seats_in_use: 0,
            next: 0,
            end: None,
        });
        if !queue.is_busy() {
            queue.next = self.r;
            self.busy += 1;
        }
        queue
    }

    /// Puts a queue into order after a change. No request begins before it came: a queue that used less than its share
    /// does not save the rest.
    fn settle(&mut self, number: usize) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        let oldest = queue.waiting.front().map(|oldest| (oldest.arrival, oldest.work.total()));
        let end = oldest.map(|(arrival, work)| {
            queue.next = queue.next.max(arrival);
            queue.next + work
        });
        if queue.end != end {
            if let Some(end) = queue.end {
                self.order.remove(&(end, number));
            }
            if let Some(end) = end {
                self.order.insert((end, number));
            }
            queue.end = end;
        }
        if !queue.is_busy() && queue.seats_in_use == 0 {
            self.queues.remove(&number);
        }
    }

    /// The queue of the flow's hand with the least work waiting; ties go to another queue each time.
    fn shortest_of_hand(&mut self, flow: u64, queuing: Queuing) -> usize {
        let mut hand = [0; HAND_MAX];
        let hand = deal(flow, queuing.queues.max(1), queuing.hand_size.max(1), &mut hand);
        let first = self.enqueued % hand.len();
        self.enqueued = self.enqueued.wrapping_add(1);
        let order = hand[first..].iter().chain(&hand[..first]);
        let work = |number: &usize| self.queues.get(number).map_or(0, |queue| queue.work_waiting);
        *order.min_by_key(|number| work(number)).expect("a hand has at least one queue")
    }

    /// True if there are seats for a request. One that needs more than all of them gets its turn alone.
    fn accommodates(&self, work: &Work) -> bool {
        let seats = work.seats_max();
        if seats > self.limit { self.requests_executing == 0 } else { self.seats_in_use + seats <= self.limit }
    }

    fn execute(&mut self, queue: Option<usize>, work: Work, now: Duration) -> Executing {
        let seats = work.seats_max();
        self.seats_in_use += seats;
        self.requests_executing += 1;
        if let Some(queue) = queue.and_then(|number| self.queues.get_mut(&number)) {
            queue.requests_executing += 1;
            queue.seats_in_use += seats;
            queue.next += work.total();
            self.seats_of_queues += seats;
        }
        Executing { queue, work, since: now }
    }

    /// A request has ended. It may keep its seats for a while, after which they are to be [released](Self::release).
    pub fn finish(&mut self, request: &Executing, now: Duration) -> Option<(Duration, Lingering)> {
        self.advance(now);
        let Executing { queue: number, work, since } = *request;
        self.requests_executing -= 1;
        if let Some(queue) = number.and_then(|number| self.queues.get_mut(&number)) {
            queue.requests_executing -= 1;
            queue.next += seat_time(work.seats, now.saturating_sub(since)) - seat_time(work.seats, GUESS);
            self.busy -= usize::from(!queue.is_busy());
        }
        let lingering = Lingering { queue: number, seats: work.seats_max() };
        if !work.final_time.is_zero() {
            number.into_iter().for_each(|number| self.settle(number));
            return Some((work.final_time, lingering));
        }
        self.give_back(&lingering);
        None
    }

    /// A request gives back the seats that it kept.
    pub fn release(&mut self, lingering: &Lingering, now: Duration) {
        self.advance(now);
        self.give_back(lingering);
    }

    fn give_back(&mut self, lingering: &Lingering) {
        let Lingering { queue: number, seats } = *lingering;
        self.seats_in_use -= seats;
        let Some(number) = number else { return };
        self.seats_of_queues -= seats;
        if let Some(queue) = self.queues.get_mut(&number) {
            queue.seats_in_use -= seats;
        }
        self.settle(number);
    }

    /// A request waits no longer; false if it has been dispatched already.
    pub fn cancel(&mut self, request: WaitingId, now: Duration) -> bool {
        self.advance(now);
        let Some(queue) = self.queues.get_mut(&request.queue) else { return false };
        let Ok(at) = queue.waiting.binary_search_by_key(&request.id, |waiting| waiting.id) else { return false };
        let Some(Waiting { work, .. }) = queue.waiting.remove(at) else { return false };
        queue.work_waiting -= work.total();
        self.busy -= usize::from(!queue.is_busy());
        self.requests_waiting -= 1;
        self.seats_waiting -= work.seats_max();
        self.settle(request.queue);
        true
    }

    /// Changes the number of seats.
    pub fn set_limit(&mut self, limit: usize, now: Duration) {
        self.advance(now);
        self.limit = limit;
    }

    /// Changes the queues. Requests that wait keep their places.
    pub fn set_limiting(&mut self, limiting: Limiting) {
        self.limiting = limiting;
    }

    /// The next request that gets its seats now, with what wakes it. Call until there is none.
    pub fn dispatch(&mut self, now: Duration) -> Option<(T, Executing)> {
        if self.requests_waiting == 0 || self.seats_in_use >= self.limit {
            return None;
        }
        let &(end, first) = self.order.first()?;
        // Among equals, the next one after the queue that was served last.
        let next = self.order.range((end, self.robin + 1)..).next().filter(|(equal, _)| *equal == end);
        let number = next.map_or(first, |(_, number)| *number);
        let queue = self.queues.get_mut(&number)?;
        let work = queue.waiting.front()?.work;
        if !self.accommodates(&work) {
            return None;
        }
        let queue = self.queues.get_mut(&number)?;
        let Waiting { wake, .. } = queue.waiting.pop_front()?;
        queue.work_waiting -= work.total();
        self.robin = number;
        self.requests_waiting -= 1;
        self.seats_waiting -= work.seats_max();
        let executing = self.execute(Some(number), work.on(self.limit), now);
        self.settle(number);
        Some((wake, executing))
    }
}

#[cfg(test)]
#[path = "fair_queue_tests.rs"]
mod tests;
