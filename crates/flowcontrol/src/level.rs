//! One priority level at work.

use std::time::Duration;

use crate::borrowing::{Bounds, Wish};
use crate::config::{Limiting, PriorityLevel};
use crate::demand::Demand;
use crate::fair_queue::{Arrival, Executing, QueueSet, WaitingId};
use crate::retry_after::RetryAfter;

/// The part of a level's seats that one request may take at most, as upstream.
const WIDTH_SHARE: f64 = 0.15;

/// A priority level: its seats, its queues and what it wants; `T` is what wakes a request that waits.
pub struct Level<T> {
    bounds: Bounds,
    limiting: Limiting,
    queues: QueueSet<T>,
    /// Requests that need no seat.
    exempt: usize,
    demand: Demand,
    retry_after: RetryAfter,
}

/// A request that is being served.
#[derive(Debug)]
pub struct Ticket(Kind);

#[derive(Debug)]
enum Kind {
    Exempt,
    Seats(Executing),
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Answer {
    /// It is served.
    Serve(Ticket),
    /// It waits, and is woken when it is served.
    Wait(WaitingId),
    /// It is refused; the client should try again after so many seconds.
    Refuse(u64),
}

impl<T> Level<T> {
    /// A level with its seats.
    pub fn new(level: &PriorityLevel, bounds: Bounds) -> Level<T> {
        let queuing = match level.limiting {
            Limiting::Queue(queuing) => queuing,
            // One queue in which nobody waits.
            _ => crate::config::Queuing { queues: 1, hand_size: 1, queue_length_limit: 0 },
        };
        Level {
            bounds,
            limiting: level.limiting,
            queues: QueueSet::new(queuing, bounds.nominal),
            exempt: 0,
            demand: Demand::default(),
            retry_after: RetryAfter::default(),
        }
    }

    /// The most seats that one request takes.
    pub fn width_max(&self) -> usize {
        let Limiting::Queue(queuing) = self.limiting else { return 1 };
        let share = (self.bounds.nominal as f64 * WIDTH_SHARE).ceil() as usize;
        share.min(self.bounds.nominal / queuing.hand_size.max(1)).max(1)
    }

    /// A request of a flow arrives that takes so many seats. `wake` is only made if it waits.
    pub fn arrive(&mut self, flow: u64, seats: usize, now: Duration, wake: impl FnOnce() -> T) -> Answer {
        if self.limiting == Limiting::Exempt {
            self.exempt += 1;
            self.demand.set(self.exempt, now);
            return Answer::Serve(Ticket(Kind::Exempt));
        }
        let arrival = self.queues.arrive(flow, seats.clamp(1, self.width_max()), now, wake);
        self.demand.set(self.queues.demand(), now);
        match arrival {
            Arrival::Executes(executing) => Answer::Serve(Ticket(Kind::Seats(executing))),
            Arrival::Waits(waiting) => Answer::Wait(waiting),
            Arrival::Refused => Answer::Refuse(self.retry_after.refuse(now)),
        }
    }

    /// A request has been served. Others may now be [dispatched](Self::dispatch).
    pub fn finish(&mut self, ticket: &Ticket, now: Duration) {
        match &ticket.0 {
            Kind::Exempt => {
                self.exempt -= 1;
                self.demand.set(self.exempt, now);
            }
            Kind::Seats(executing) => {
                self.queues.finish(executing, now);
                self.demand.set(self.queues.demand(), now);
            }
        }
    }

    /// A request waits no longer. If it was not dispatched in the meantime, it is refused: the answer is after how many
    /// seconds its client should try again.
    pub fn cancel(&mut self, waiting: WaitingId, now: Duration) -> Option<u64> {
        let waited = self.queues.cancel(waiting, now);
        self.demand.set(self.queues.demand(), now);
        waited.then(|| self.retry_after.refuse(now))
    }

    /// The next request that is served, with what wakes it. Call until there is none.
    pub fn dispatch(&mut self, now: Duration) -> Option<(T, Ticket)> {
        let (wake, executing) = self.queues.dispatch(now)?;
        Some((wake, Ticket(Kind::Seats(executing))))
    }

    /// What the level wanted since this was last asked.
    pub fn wish(&mut self, now: Duration) -> Wish {
        let (peak, smoothed) = self.demand.look(now);
        Wish { bounds: self.bounds, peak, smoothed, exempt: self.limiting == Limiting::Exempt }
    }

    /// Gives the level other seats. More requests may now be [dispatched](Self::dispatch).
    pub fn set_seats(&mut self, seats: usize, now: Duration) {
        self.queues.set_limit(seats, now);
    }

    /// The seats in use and the requests that wait.
    pub fn load(&self) -> (usize, usize) {
        (self.queues.seats_in_use() + self.exempt, self.queues.waiting())
    }
}
