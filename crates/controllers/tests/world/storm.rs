//! The world in a random order: watches, reconciles and single calls overlap as they like, and things go wrong.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Polling, Poll};

use bayplan_controllers::{Context, Error, Job, Requeue};
use bayplan_model::api::{Api, Request};
use bayplan_model::status::Status;
use bayplan_testkit::{NoEvents, Rng};
use bytes::Bytes;
use futures::future::{BoxFuture, poll_fn};
use futures::task::noop_waker;

use super::manager::Manager;
use super::server::{Fault, Server};
use super::{HORIZON, World};

/// As many reconciles of a manager overlap as a controller has workers.
const WORKERS: usize = 5;

/// The user changes something once in so many steps.
const EDIT_ONE_IN: usize = 40;

/// A change of the user.
pub(crate) type Edit = Box<dyn Fn(&Server)>;

/// Lets one call pass at a time, so that any other reconcile may come between two calls of one.
struct Gate {
    server: Arc<Server>,
    open: AtomicBool,
}

impl Api for Gate {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        let mut request = Some(request);
        Box::pin(poll_fn(move |polling| {
            let passes = self.open.swap(false, Ordering::Relaxed);
            match passes.then(|| request.take()).flatten() {
                Some(request) => Poll::Ready(self.server.answer(&request)),
                None => {
                    polling.waker().wake_by_ref();
                    Poll::Pending
                }
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
        let mut polling = Polling::from_waker(&waker);
        match self.reconcile.as_mut().poll(&mut polling) {
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
    /// Runs in random order until nothing is left to do.
    pub(crate) fn storm(&mut self, rng: &mut Rng, weather: Weather) {
        self.storm_with(rng, weather, Vec::new());
    }

    /// The same, while the user makes these changes one after the other, each at any moment.
    pub(crate) fn storm_with(&mut self, rng: &mut Rng, weather: Weather, edits: Vec<Edit>) {
        self.storm_watched(rng, weather, edits, |_| {});
    }

    /// The same, with a look at the world after every write.
    pub(crate) fn storm_watched(
        &mut self,
        rng: &mut Rng,
        mut weather: Weather,
        edits: Vec<Edit>,
        watch: impl Fn(&World),
    ) {
        let mut edits = VecDeque::from(edits);
        let mut seen = String::new();
        self.pass_to(self.now);
        let mut flights: Vec<Vec<Flight>> = self.managers.iter().map(|_| Vec::new()).collect();
        loop {
            self.hear();
            if self.server.revision() != seen {
                seen = self.server.revision();
                watch(self);
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
                Some(next) => {
                    assert!(next < HORIZON, "the world does not come to rest");
                    self.pass_to(next);
                }
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
            self.managers[at] = Manager::start(self.cast, &self.server, self.now);
        }
        if lost {
            let plurals = self.cast.plurals();
            let plural = plurals[rng.below(plurals.len())];
            self.managers[at].relist(plural, &self.server, self.now);
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
                let plurals = self.cast.plurals();
                let first = rng.below(plurals.len());
                let mut in_turn = (0..plurals.len()).map(|offset| plurals[(first + offset) % plurals.len()]);
                in_turn.any(|plural| self.managers[at].deliver_of(plural, self.now))
            }
            1 => {
                let job = if flights.len() < WORKERS { self.managers[at].process.take(self.now) } else { None };
                let Some(job) = job else { return false };
                self.reconciles += 1;
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
