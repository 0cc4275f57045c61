//! One controller-manager: its loops, and the watch events that have not reached it yet.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bayplan_controllers::{Cache, Controller, DeploymentController, Kind, Process, ReplicaSetController};

use super::server::{Server, Trouble, Watch};

/// The resources that are watched.
pub(crate) const PLURALS: [&str; 3] = ["deployments", "pods", "replicasets"];

fn kind(plural: &str) -> Kind {
    match plural {
        "pods" => Kind::Pod,
        "replicasets" => Kind::ReplicaSet,
        _ => Kind::Deployment,
    }
}

/// The manager, from start to crash.
pub(super) struct Manager {
    pub(super) process: Process,
    pub(super) pending: VecDeque<Watch>,
    /// The watch that does not get through, and until when at least.
    held: Option<(Trouble, Duration)>,
}

impl Manager {
    /// Begins with a list; no worker starts before the caches are complete.
    pub(super) fn start(server: &Server, now: Duration) -> Self {
        let cache = Arc::new(Cache::default());
        let loops: [Arc<dyn Controller>; 2] =
            [Arc::new(DeploymentController::new(cache.clone())), Arc::new(ReplicaSetController::new(cache.clone()))];
        let mut manager = Manager { process: Process::new(cache, loops), pending: VecDeque::new(), held: None };
        for plural in PLURALS {
            manager.relist(plural, server, now);
        }
        manager
    }

    /// What was written goes into the watches, or is lost with one of them.
    pub(super) fn hear(&mut self, events: &[Watch]) {
        let lost = self.held.filter(|(trouble, _)| trouble.lost).map(|(trouble, _)| trouble.plural);
        self.pending.extend(events.iter().filter(|event| Some(event.plural.as_str()) != lost).cloned());
    }

    pub(super) fn trouble(&mut self, trouble: Trouble, now: Duration) {
        if trouble.lost {
            self.pending.retain(|event| event.plural != trouble.plural);
        }
        self.held = Some((trouble, now + trouble.lasts));
    }

    /// Ends the trouble when its time has come; answers whether there was any.
    pub(super) fn release(&mut self, server: &Server, now: Duration) -> bool {
        let Some((trouble, _)) = self.held.take_if(|(_, until)| *until <= now) else { return false };
        if trouble.lost {
            self.relist(trouble.plural, server, now);
        }
        true
    }

    /// Every object once more.
    pub(super) fn resync(&mut self, server: &Server) {
        self.pending = server.list().into();
    }

    pub(super) fn next_deadline(&mut self) -> Option<Duration> {
        let held = self.held.map(|(_, until)| until);
        self.process.next_deadline().into_iter().chain(held).min()
    }

    /// Tells of the first event that gets through.
    pub(super) fn deliver_one(&mut self, now: Duration) -> bool {
        let held = self.held.map(|(trouble, _)| trouble.plural);
        let first = self.pending.iter().position(|event| Some(event.plural.as_str()) != held);
        let Some(event) = first.and_then(|first| self.pending.remove(first)) else { return false };
        self.observe(&event, now);
        true
    }

    /// Tells of the first event of one resource: watches of different resources do not wait for one another.
    pub(super) fn deliver_of(&mut self, plural: &str, now: Duration) -> bool {
        let first = self.pending.iter().position(|event| event.plural == plural);
        let Some(event) = first.and_then(|first| self.pending.remove(first)) else { return false };
        self.observe(&event, now);
        true
    }

    fn observe(&mut self, event: &Watch, now: Duration) {
        let cache = self.process.cache();
        let change = match &event.object {
            Some(object) => Some(cache.set(kind(&event.plural), object).unwrap()),
            None => cache.remove(kind(&event.plural), "ns", &event.name, &event.version),
        };
        if let Some(change) = change {
            self.process.observe(&change, now);
        }
    }

    /// A watch that broke lists again: what is listed exists, what is not was deleted.
    pub(super) fn relist(&mut self, plural: &str, server: &Server, now: Duration) {
        self.pending.retain(|event| event.plural != plural);
        let listed: Vec<Watch> = server.list().into_iter().filter(|event| event.plural == plural).collect();
        let names: BTreeSet<&str> = listed.iter().map(|event| event.name.as_str()).collect();
        let version = server.revision();
        for name in self.known(plural).into_iter().filter(|name| !names.contains(name.as_str())) {
            self.observe(&Watch { plural: plural.into(), name, version: String::new(), object: None }, now);
        }
        for event in &listed {
            self.observe(event, now);
        }
        self.process.cache().bookmark(kind(plural), &version);
    }

    fn known(&self, plural: &str) -> Vec<String> {
        let cache = self.process.cache();
        match kind(plural) {
            Kind::Pod => cache.pods().namespace("ns").map(|pod| pod.metadata.name.clone()).collect(),
            Kind::ReplicaSet => cache.replica_sets().namespace("ns").map(|rs| rs.metadata.name.clone()).collect(),
            _ => cache.deployments().namespace("ns").map(|d| d.metadata.name.clone()).collect(),
        }
    }
}
