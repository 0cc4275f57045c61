//! A small world under virtual time: an API server in memory, its watches, kubelets, and the controllers that may
//! crash.
//!
//! Watch events reach the controllers one at a time, between any two reconciles, so their caches are as stale as a
//! real one's; a crash forgets everything but the server. [`World::settle`] takes every step in a fixed order,
//! [`storm`] in a random one, and there reconciles overlap call by call.

#![allow(dead_code, reason = "each test binary uses its part of the world")]

pub(crate) mod jobs;
mod manager;
pub(crate) mod server;
pub(crate) mod storm;

use std::sync::Arc;
use std::time::Duration;

use bayplan_controllers::Context;
use bayplan_testkit::NoEvents;
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::Value;

pub(crate) use manager::Cast;
use manager::Manager;
use server::Server;

/// A pod is ready this long after its creation.
const POD_START: Duration = Duration::from_secs(2);

/// Nothing here may need longer; a world that is still busy then is livelocked.
const HORIZON: Duration = Duration::from_secs(48 * 3600);

/// The world.
pub(crate) struct World {
    pub(crate) server: Arc<Server>,
    /// How many reconciles there were.
    pub(crate) reconciles: usize,
    /// How many watch events are delivered between two reconciles.
    pub(crate) events_per_reconcile: usize,
    /// A run pauses here, for what goes on for ever.
    pub(crate) until: Duration,
    cast: Cast,
    now: Duration,
    managers: Vec<Manager>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_managers(1)
    }

    /// Without a lease, so that all of them work at the same time.
    pub(crate) fn with_managers(count: usize) -> Self {
        Self::of(Cast::Deployments, Server::default(), Duration::ZERO, count)
    }

    /// A world of DaemonSets.
    pub(crate) fn of_daemon_sets(managers: usize) -> Self {
        Self::of(Cast::DaemonSets, Server::default(), Duration::ZERO, managers)
    }

    /// A world of Jobs and CronJobs.
    pub(crate) fn of_jobs(managers: usize) -> Self {
        let server = Server::of_jobs();
        server.set_now(base());
        Self::of(Cast::Jobs, server, Duration::ZERO, managers)
    }

    fn of(cast: Cast, server: Server, now: Duration, managers: usize) -> Self {
        let managers = (0..managers).map(|_| Manager::start(cast, &server, now)).collect();
        let server = Arc::new(server);
        World { server, reconciles: 0, events_per_reconcile: 1, until: HORIZON, cast, now, managers }
    }

    /// The same objects at the same time, under controllers that have just started.
    pub(crate) fn restarted(&self) -> Self {
        self.restarted_as(1)
    }

    /// The same with several managers.
    pub(crate) fn restarted_as(&self, managers: usize) -> Self {
        Self::of(self.cast, self.server.copy(), self.now, managers)
    }

    /// How long it takes to the next minute on the clock.
    pub(crate) fn until_the_minute(&self) -> Duration {
        let past = self.timestamp().as_second().rem_euclid(60);
        self.now + Duration::from_secs(60 - past.unsigned_abs())
    }

    /// Nothing pauses the runs any more.
    pub(crate) fn goes_on(&mut self) {
        self.until = HORIZON;
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
                // Some events, then one reconcile: caches lag behind as they do in a real cluster.
                let delivered =
                    (0..self.events_per_reconcile).take_while(|_| self.managers[at].deliver_one(self.now)).count();
                busy |= delivered > 0;
                busy |= self.reconcile_one(at);
            }
            if busy || self.managers.iter_mut().any(|manager| manager.release(&self.server, self.now)) {
                continue;
            }
            let Some(next) = self.next_time().filter(|next| *next < self.until) else { return };
            self.pass_to(next);
        }
    }

    /// What the server has written since the last time goes to everybody's watches.
    fn hear(&mut self) {
        let trouble = self.server.take_watch_trouble();
        let events = self.server.take_watch_events();
        for manager in &mut self.managers {
            if let Some(trouble) = trouble {
                manager.trouble(trouble, self.now);
            }
            manager.hear(&events);
        }
    }

    fn pass_to(&mut self, time: Duration) {
        self.now = time;
        self.server.set_now(self.timestamp());
        self.run_kubelets();
    }

    /// Lets time pass and delivers every object again, as a resync does.
    pub(crate) fn resync(&mut self, after: Duration) {
        self.now += after;
        for manager in &mut self.managers {
            manager.resync(&self.server);
        }
        self.settle();
    }

    fn next_time(&mut self) -> Option<Duration> {
        let queues = self.managers.iter_mut().filter_map(Manager::next_deadline);
        let next = queues.chain(self.server.next_change_of_a_pod().map(since_base)).min()?;
        let next = next.max(self.now + Duration::from_millis(1));
        assert!(next < HORIZON || self.until < HORIZON, "the world does not come to rest");
        Some(next)
    }

    fn run_kubelets(&mut self) {
        let now = self.timestamp();
        let second = Timestamp::from_second(now.as_second()).unwrap();
        for pod in self.server.pods_due(now) {
            jobs::live(&self.server, pod, second);
        }
    }

    fn reconcile_one(&mut self, at: usize) -> bool {
        let now = self.timestamp();
        let manager = &mut self.managers[at];
        let Some(job) = manager.process.take(self.now) else { return false };
        self.reconciles += 1;
        let context = Context { now, api: &*self.server, recorder: &NoEvents };
        // The server answers at once; a call without an answer is the crash, and drops the reconcile where it was.
        match job.run(context).now_or_never() {
            Some(outcome) => manager.process.finish(job, outcome, self.now),
            None => {
                // What was written before is in the list that the next one begins with.
                self.hear();
                self.managers[at] = Manager::start(self.cast, &self.server, self.now);
            }
        }
        true
    }
}

fn base() -> Timestamp {
    Timestamp::from_second(1_780_000_000).unwrap()
}

fn since_base(time: Timestamp) -> Duration {
    time.duration_since(base()).unsigned_abs()
}

/// When a kubelet next changes a pod.
fn due(pod: &Value) -> Option<Timestamp> {
    let created: Timestamp = pod["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    (pod["status"]["phase"] != "Running").then(|| created + POD_START)
}
