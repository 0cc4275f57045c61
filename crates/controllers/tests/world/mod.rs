//! A small world under virtual time: an API server in memory, its watches, kubelets, and the controllers that may
//! crash.
//!
//! Watch events reach the controllers one at a time, between any two reconciles, so their caches are as stale as a
//! real one's; a crash forgets everything but the server. [`World::settle`] takes every step in a fixed order,
//! [`storm`] in a random one, and there reconciles overlap call by call.

#![allow(dead_code, reason = "each test binary uses its part of the world")]

pub(crate) mod daemons;
mod desired;
pub(crate) mod life;
mod manager;
mod outcome;
pub(crate) mod server;
pub(crate) mod services;
pub(crate) mod stateful;
pub(crate) mod storm;

use std::sync::Arc;
use std::time::Duration;

use bayplan_controllers::Context;
use bayplan_testkit::NoEvents;
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use manager::Cast;
use manager::Manager;
use server::Server;

/// A pod is ready this long after its creation.
const POD_START: Duration = Duration::from_secs(2);

/// A pod is gone this long after its deletion, where deletion is graceful.
const POD_STOP: Duration = Duration::from_secs(1);

/// Claims are collected this long after their owner is gone.
const GARBAGE_DELAY: Duration = Duration::from_secs(2);

/// Nothing here may need longer; a world that is still busy then is livelocked.
const HORIZON: Duration = Duration::from_secs(48 * 3600);

/// The world.
pub(crate) struct World {
    pub(crate) server: Arc<Server>,
    /// How many reconciles there were.
    pub(crate) reconciles: usize,
    /// How many watch events are delivered between two reconciles.
    pub(crate) events_per_reconcile: usize,
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

    /// A world of StatefulSets, whose pods take a while to stop.
    pub(crate) fn of_stateful_sets(managers: usize) -> Self {
        Self::of(Cast::StatefulSets, Server::with_graceful_deletion(), Duration::ZERO, managers)
    }

    /// A world of Services.
    pub(crate) fn of_services(managers: usize) -> Self {
        Self::of(Cast::Services, Server::default(), Duration::ZERO, managers)
    }

    fn of(cast: Cast, server: Server, now: Duration, managers: usize) -> Self {
        let managers = (0..managers).map(|_| Manager::start(cast, &server, now)).collect();
        World { server: Arc::new(server), reconciles: 0, events_per_reconcile: 1, cast, now, managers }
    }

    /// The same objects at the same time, under controllers that have just started.
    pub(crate) fn restarted(&self) -> Self {
        self.restarted_as(1)
    }

    /// The same with several managers.
    pub(crate) fn restarted_as(&self, managers: usize) -> Self {
        Self::of(self.cast, self.server.copy(), self.now, managers)
    }

    fn timestamp(&self) -> Timestamp {
        base() + self.now
    }

    /// A fault costs a few writes, no more. Only while a cache does not show yet what was created, every reconcile
    /// wants to create it again, as upstream's do: each learns from one refusal that it is there.
    pub(crate) fn assert_no_storm(&self, undisturbed: usize, point: &str) {
        let (writes, refused) = (self.server.writes(), self.server.creations_refused());
        assert!(writes - refused < 2 * undisturbed + 5, "{point} made a storm of {writes} writes");
        assert!(refused <= self.reconciles, "{point}: {refused} creations refused in {} reconciles", self.reconciles);
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
            let Some(next) = self.next_time() else { return };
            assert!(next < HORIZON, "the world does not come to rest");
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
        let starts = self.server.next_pod_start().map(|created| since_base(created) + POD_START);
        let stops = self.server.next_pod_stop().map(|deleted| since_base(deleted) + POD_STOP);
        let garbage = self.server.has_garbage().then_some(self.now + GARBAGE_DELAY);
        let next = queues.chain(starts).chain(stops).chain(garbage).min();
        next.map(|at| at.max(self.now + Duration::from_millis(1)))
    }

    fn run_kubelets(&mut self) {
        let now = self.timestamp();
        self.server.collect_garbage();
        self.server.stop_pods_deleted_before(now - POD_STOP);
        let second = Timestamp::from_second(now.as_second()).unwrap();
        for mut pod in self.server.pods_created_before(now - POD_START) {
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": second});
            pod["status"] = json!({"phase": "Running", "conditions": [ready]});
            // The scheduler bound it before.
            if let Some(node) = daemons::target(&pod) {
                pod["spec"]["nodeName"] = json!(node);
            }
            self.server.put("pods", pod);
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

pub(crate) fn is_ready(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

fn is_over(pod: &Value) -> bool {
    pod["status"]["phase"] == "Failed" || pod["status"]["phase"] == "Succeeded"
}
