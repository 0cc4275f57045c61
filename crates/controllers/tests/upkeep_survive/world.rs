//! A small world under virtual time: an API server in memory, its watches, the parts outside, and managers that may
//! crash.
//!
//! Watch events reach the managers one at a time, between any two reconciles, so their caches are as stale as a real
//! one's; a crash forgets everything but the server. [`World::settle`] takes every step in a fixed order,
//! [`World::storm`] in a random one, and there reconciles overlap call by call.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Polling, Poll};
use std::time::Duration;

use bayplan_controllers::{Context, Error, Job, Requeue};
use bayplan_model::api::{Api, Request};
use bayplan_model::status::Status;
use bayplan_testkit::{NoEvents, Rng};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, poll_fn};
use futures::task::noop_waker;
use jiff::Timestamp;

use super::lives::{Edit, Life};
use super::manager::Manager;
use super::server::{Fault, Server};

/// Nothing here may need longer; a world that is still busy then is livelocked.
const HORIZON: Duration = Duration::from_secs(48 * 3600);

/// The user changes something once in so many steps.
const EDIT_ONE_IN: usize = 20;

/// When the world begins.
pub(crate) fn base() -> Timestamp {
    Timestamp::from_second(1_780_000_000).unwrap()
}

/// The world.
pub(crate) struct World {
    pub(crate) life: &'static Life,
    pub(crate) server: Arc<Server>,
    now: Duration,
    managers: Vec<Manager>,
}

impl World {
    /// Several managers have no lease, so that all of them work at the same time.
    pub(crate) fn new(life: &'static Life, managers: usize) -> Self {
        Self::of(life, Server::default(), Duration::ZERO, managers)
    }

    fn of(life: &'static Life, server: Server, now: Duration, managers: usize) -> Self {
        server.set_now(base() + now);
        let managers = (0..managers).map(|_| Manager::start(life, &server, now)).collect();
        World { life, server: Arc::new(server), now, managers }
    }

    /// The same objects at the same time, under one manager that has just started.
    pub(crate) fn restarted(&self) -> Self {
        Self::of(self.life, self.server.copy(), self.now, 1)
    }

    /// Lets stages pass, each to its end.
    pub(crate) fn live_through(mut self, stages: Range<usize>) -> Self {
        for stage in stages {
            (self.life.stages[stage])(&self.server);
            self.settle();
            (self.life.report)(&self.server);
            self.settle();
        }
        self
    }

    fn timestamp(&self) -> Timestamp {
        base() + self.now
    }

    /// Runs until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        self.pass_to(self.now);
        loop {
            self.hear();
            let mut busy = false;
            for at in 0..self.managers.len() {
                busy |= self.managers[at].deliver_one(self.now);
                busy |= self.reconcile_one(at);
            }
            if busy || self.managers.iter_mut().any(|manager| manager.release(&self.server, self.now)) {
                continue;
            }
            let Some(next) = self.next_time() else { return };
            self.pass_to(next);
        }
    }

    /// What the server has written since the last time goes to everybody's watches.
    fn hear(&mut self) {
        let (trouble, events) = (self.server.take_trouble(), self.server.take_events());
        for manager in &mut self.managers {
            if let Some(trouble) = trouble {
                manager.trouble(trouble, self.now);
            }
            manager.hear(&events);
        }
    }

    fn pass_to(&mut self, time: Duration) {
        assert!(time < HORIZON, "the world does not come to rest");
        self.now = time;
        self.server.set_now(self.timestamp());
        (self.life.others)(&self.server);
    }

    /// Lets time pass and delivers every object again, as a resync does.
    pub(crate) fn resync(&mut self, after: Duration) {
        self.now += after;
        self.hear();
        for manager in &mut self.managers {
            manager.resync(&self.server);
        }
        self.settle();
    }

    fn next_time(&mut self) -> Option<Duration> {
        let others = (self.life.others)(&self.server).map(|due| due.duration_since(base()).unsigned_abs());
        let queues = self.managers.iter_mut().filter_map(Manager::next_deadline);
        queues.chain(others).min().map(|at| at.max(self.now + Duration::from_millis(1)))
    }

    fn reconcile_one(&mut self, at: usize) -> bool {
        let now = self.timestamp();
        let manager = &mut self.managers[at];
        let Some(job) = manager.process.take(self.now) else { return false };
        let context = Context { now, api: &*self.server, recorder: &NoEvents };
        // The server answers at once; a call without an answer is the crash, and drops the reconcile where it was.
        match job.run(context).now_or_never() {
            Some(outcome) => manager.process.finish(job, outcome, self.now),
            None => {
                // What was written before is in the list that the next one begins with.
                self.hear();
                self.managers[at] = Manager::start(self.life, &self.server, self.now);
            }
        }
        true
    }
}

/// Lets one call pass at a time, so that any other reconcile may come between two calls of one.
struct Gate {
    server: Arc<Server>,
    open: AtomicBool,
}

impl Api for Gate {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        let mut request = Some(request);
        Box::pin(poll_fn(move |_| {
            let passes = self.open.swap(false, Ordering::Relaxed);
            match passes.then(|| request.take()).flatten() {
                Some(request) => Poll::Ready(self.server.answer(&request)),
                None => Poll::Pending,
            }
        }))
    }
}

type Reconcile = Pin<Box<dyn Future<Output = (Job, Result<Requeue, Error>)>>>;

/// A reconcile that is under way.
struct Flight {
    gate: Arc<Gate>,
    reconcile: Reconcile,
}

impl Flight {
    fn begin(job: Job, world: &World) -> Self {
        let gate = Arc::new(Gate { server: world.server.clone(), open: AtomicBool::new(false) });
        let (now, api) = (world.timestamp(), gate.clone());
        let reconcile = Box::pin(async move {
            let outcome = job.run(Context { now, api: &*api, recorder: &NoEvents }).await;
            (job, outcome)
        });
        Flight { gate, reconcile }
    }

    /// Lets it get on by one call.
    fn step(&mut self) -> Option<(Job, Result<Requeue, Error>)> {
        self.gate.open.store(true, Ordering::Relaxed);
        let waker = noop_waker();
        match self.reconcile.as_mut().poll(&mut Polling::from_waker(&waker)) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }
}

/// What may go wrong, each once in so many steps; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// A manager forgets everything.
    pub(crate) crash: usize,
    /// A watch loses its undelivered events, and lists again.
    pub(crate) lost_watch: usize,
    /// A write takes effect and its answer is lost, or is refused as too old.
    pub(crate) bad_answer: usize,
    /// How many things go wrong before it clears up.
    pub(crate) faults: usize,
}

impl World {
    /// Runs in random order until nothing is left to do, while the user makes these changes one after the other.
    pub(crate) fn storm(&mut self, rng: &mut Rng, mut weather: Weather, edits: Vec<Edit>) {
        let mut edits = VecDeque::from(edits);
        let mut seen = String::new();
        self.pass_to(self.now);
        let mut flights: Vec<Vec<Flight>> = self.managers.iter().map(|_| Vec::new()).collect();
        loop {
            self.hear();
            if self.server.revision() != seen {
                seen = self.server.revision();
                (self.life.assert_always)(&self.server, self.managers.len());
            }
            if rng.one_in(EDIT_ONE_IN)
                && let Some(edit) = edits.pop_front()
            {
                edit(&self.server);
                continue;
            }
            for (at, flights) in flights.iter_mut().enumerate() {
                self.misfortune(at, flights, rng, &mut weather);
            }
            let at = rng.below(self.managers.len());
            if self.act(at, &mut flights[at], rng) || self.anyone_acts(&mut flights, rng) {
                continue;
            }
            match self.next_time() {
                Some(next) => self.pass_to(next),
                None if edits.is_empty() => return,
                None => {}
            }
        }
    }

    fn misfortune(&mut self, at: usize, flights: &mut Vec<Flight>, rng: &mut Rng, weather: &mut Weather) {
        let mut strikes = |chance: usize| {
            let strikes = chance > 0 && weather.faults > 0 && rng.one_in(chance);
            weather.faults -= usize::from(strikes);
            strikes
        };
        let (crash, lost, bad) = (strikes(weather.crash), strikes(weather.lost_watch), strikes(weather.bad_answer));
        if crash {
            flights.clear();
            self.managers[at] = Manager::start(self.life, &self.server, self.now);
        }
        if lost {
            let kind = *rng.pick(self.life.kinds);
            self.managers[at].relist(kind, &self.server, self.now);
        }
        if bad {
            self.server.plan_next(if rng.one_in(2) { Fault::LostAnswer } else { Fault::Conflict });
        }
    }

    /// Something that this manager can do now, if there is anything.
    fn act(&mut self, at: usize, flights: &mut Vec<Flight>, rng: &mut Rng) -> bool {
        let first = rng.below(3);
        (0..3).any(|offset| match (first + offset) % 3 {
            0 => {
                let kinds = self.life.kinds;
                let first = rng.below(kinds.len());
                let mut in_turn = (0..kinds.len()).map(|offset| kinds[(first + offset) % kinds.len()]);
                in_turn.any(|kind| self.managers[at].deliver_of(kind, self.now))
            }
            1 => {
                let manager = &mut self.managers[at];
                let job = if flights.len() < manager.workers { manager.process.take(self.now) } else { None };
                let Some(job) = job else { return false };
                flights.push(Flight::begin(job, self));
                true
            }
            _ => {
                if flights.is_empty() {
                    return false;
                }
                let which = rng.below(flights.len());
                if let Some((job, outcome)) = flights[which].step() {
                    drop(flights.swap_remove(which));
                    self.managers[at].process.finish(job, outcome, self.now);
                }
                true
            }
        })
    }

    fn anyone_acts(&mut self, flights: &mut [Vec<Flight>], rng: &mut Rng) -> bool {
        (0..self.managers.len()).any(|at| self.act(at, &mut flights[at], rng))
    }
}
