//! One priority level at work.

use std::time::Duration;

use crate::borrowing::{Bounds, Wish};
use crate::config::{Limiting, PriorityLevel};
use crate::demand::Demand;
use crate::fair_queue::{Arrival, Executing, Lingering, QueueSet, QueueView, WaitingId};
use crate::retry_after::RetryAfter;
use crate::work::{Estimate, Work};

/// The part of a level's seats that one request may take at most, as upstream.
const WIDTH_SHARE: f64 = 0.15;

/// A priority level: its seats, its queues and what it wants; `T` is what wakes a request that waits.
pub struct Level<T> {
    bounds: Bounds,
    limiting: Limiting,
    queues: QueueSet<T>,
    demand: Demand,
    retry_after: RetryAfter,
    tally: Tally,
    quiescing: bool,
}

/// A request that is being served.
#[derive(Debug)]
pub struct Ticket(Executing);

impl Ticket {
    /// The seats that the request has.
    pub fn seats(&self) -> usize {
        self.0.seats()
    }
}

/// The seats that a request keeps for a while after it was served.
#[derive(Debug)]
pub struct Linger {
    /// How long it keeps them.
    pub time: Duration,
    seats: Lingering,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Answer {
    /// It is served.
    Serve(Ticket),
    /// It waits, and is woken when it is served.
    Wait(WaitingId),
    /// It is refused.
    Refuse(Refusal),
}

/// A request that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The client should try again after so many seconds.
    pub retry_after: u64,
    /// Upstream's word for why.
    pub reason: &'static str,
}

/// How many requests have come to which end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// They were served.
    pub dispatched: u64,
    /// They got no seat.
    pub rejected: u64,
    /// Of these, they waited for one in vain.
    pub cancelled: u64,
}

impl<T> Level<T> {
    /// A level with its seats.
    pub fn new(level: &PriorityLevel, bounds: Bounds, now: Duration) -> Level<T> {
        Level {
            bounds,
            limiting: level.limiting,
            queues: QueueSet::new(level.limiting, bounds.first()),
            demand: Demand::since(now),
            retry_after: RetryAfter::default(),
            tally: Tally::default(),
            quiescing: false,
        }
    }

    /// Makes it what its configuration says now. Requests that wait or are served stay; a level that nobody wants any
    /// more is `quiescing`: it goes on until they are gone.
    pub fn reconfigure(&mut self, level: &PriorityLevel, bounds: Bounds, quiescing: bool) {
        self.bounds = bounds;
        self.limiting = level.limiting;
        self.queues.set_limiting(level.limiting);
        self.quiescing = quiescing;
    }

    /// The bounds of its seats.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The most seats that one request takes, if the level has queues; otherwise only the kind of request limits it.
    pub fn width_max(&self) -> Option<usize> {
        let Limiting::Queue(queuing) = self.limiting else { return None };
        let share = (self.bounds.nominal as f64 * WIDTH_SHARE).ceil() as usize;
        Some(share.min(self.bounds.nominal / queuing.hand_size.max(1)).max(1))
    }

    /// The work of a request in this level.
    pub fn work(&self, estimate: Estimate) -> Work {
        Work::new(estimate, self.width_max())
    }

    /// A request of a flow arrives. `wake` is only made if it waits.
    pub fn arrive(&mut self, flow: u64, work: Work, now: Duration, wake: impl FnOnce() -> T) -> Answer {
        let arrival = self.queues.arrive(flow, work, now, wake);
        self.demand.set(self.queues.demand(), now);
        match arrival {
            Arrival::Executes(executing) => {
                self.tally.dispatched += 1;
                Answer::Serve(Ticket(executing))
            }
            Arrival::Waits(waiting) => Answer::Wait(waiting),
            Arrival::QueueFull => Answer::Refuse(self.refuse("queue-full", now)),
            Arrival::NoSeat => Answer::Refuse(self.refuse("concurrency-limit", now)),
        }
    }

    fn refuse(&mut self, reason: &'static str, now: Duration) -> Refusal {
        self.tally.rejected += 1;
        Refusal { retry_after: self.retry_after.refuse(now), reason }
    }

    /// A request has been served. Others may now be [dispatched](Self::dispatch). It may keep its seats for a while:
    /// then they are to be [released](Self::release).
    pub fn finish(&mut self, ticket: &Ticket, now: Duration) -> Option<Linger> {
        let lingering = self.queues.finish(&ticket.0, now);
        self.demand.set(self.queues.demand(), now);
        lingering.map(|(time, seats)| Linger { time, seats })
    }

    /// A request gives back the seats that it kept. Others may now be [dispatched](Self::dispatch).
    pub fn release(&mut self, linger: &Linger, now: Duration) {
        self.queues.release(&linger.seats, now);
        self.demand.set(self.queues.demand(), now);
    }

    /// A request waits no longer. If it was not dispatched in the meantime, it is refused.
    pub fn cancel(&mut self, waiting: WaitingId, now: Duration) -> Option<Refusal> {
        let waited = self.queues.cancel(waiting, now);
        self.demand.set(self.queues.demand(), now);
        self.tally.cancelled += u64::from(waited);
        waited.then(|| self.refuse("time-out", now))
    }

    /// The next request that is served, with what wakes it. Call until there is none.
    pub fn dispatch(&mut self, now: Duration) -> Option<(T, Ticket)> {
        let (wake, executing) = self.queues.dispatch(now)?;
        self.tally.dispatched += 1;
        Some((wake, Ticket(executing)))
    }

    /// What the level wanted since this was last asked.
    pub fn wish(&mut self, now: Duration) -> Wish {
        let demand = self.demand.look(now);
        let (exempt, current) = (self.limiting == Limiting::Exempt, self.queues.limit());
        Wish { bounds: self.bounds, demand, exempt, current }
    }

    #[cfg(test)]
    pub(crate) fn want(&mut self, seats: usize, now: Duration) {
        self.demand.set(seats, now);
    }

    /// Gives the level other seats. More requests may now be [dispatched](Self::dispatch).
    pub fn set_seats(&mut self, seats: usize, now: Duration) {
        self.queues.set_limit(seats, now);
    }

    /// True if requests wait although all seats of the level are lent. Upstream gives them back when it divides seats
    /// next; with greedy levels beside it, that would be ten seconds for every request that comes alone.
    pub fn is_starved(&self) -> bool {
        self.queues.waiting() > 0 && self.queues.limit() == 0 && self.bounds.max > 0
    }

    /// True if no request waits or is served.
    pub fn is_idle(&self) -> bool {
        self.queues.waiting() == 0 && self.queues.executing() == 0
    }

    /// True if the level goes as soon as it is idle.
    pub fn is_quiescing(&self) -> bool {
        self.quiescing
    }

    /// The requests that wait, and those that are served.
    pub fn requests(&self) -> (usize, usize) {
        (self.queues.waiting(), self.queues.executing())
    }

    /// The seats in use, and those that there are.
    pub fn seats(&self) -> (usize, usize) {
        (self.queues.seats_in_use(), self.queues.limit())
    }

    /// How many requests have come to which end.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// How many queues there are, as far as requests need any.
    pub fn queue_count(&self) -> usize {
        match self.limiting {
            Limiting::Queue(queuing) => queuing.queues,
            Limiting::Exempt | Limiting::Reject => 0,
        }
    }

    /// The queues with requests, by number.
    pub fn queues(&self) -> impl Iterator<Item = (usize, QueueView)> {
        self.queues.view()
    }

    /// What wakes those who wait, with their queue and their seats: while they are served, after that, and for how
    /// long.
    pub fn waiting(&self) -> impl Iterator<Item = (usize, &T, &Work)> {
        self.queues.all_waiting()
    }
}
