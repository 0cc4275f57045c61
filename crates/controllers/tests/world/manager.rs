//! One controller-manager: its loops, and the watch events that have not reached it yet.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bayplan_controllers::{
    Cache, Controller, DaemonSetController, DeploymentController, EndpointSliceConfig, EndpointSliceController,
    EndpointSliceMirroringConfig, EndpointSliceMirroringController, EndpointsController, Kind, Process,
    ReplicaSetController, StatefulSetController,
};

use bayplan_model::meta::{HasMeta, ObjectMeta};

use super::server::{Server, Trouble, Watch, namespace};
use super::services;

/// Which controllers run in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    Deployments,
    DaemonSets,
    StatefulSets,
    Services,
}

impl Cast {
    /// The resources that are watched.
    pub(crate) fn plurals(self) -> &'static [&'static str] {
        match self {
            Cast::Deployments => &["deployments", "pods", "replicasets"],
            Cast::DaemonSets => &["controllerrevisions", "daemonsets", "nodes", "pods"],
            Cast::StatefulSets => &["controllerrevisions", "persistentvolumeclaims", "pods", "statefulsets"],
            Cast::Services => &["endpoints", "endpointslices", "nodes", "pods", "services"],
        }
    }

    fn loops(self, cache: &Arc<Cache>) -> Vec<Arc<dyn Controller>> {
        match self {
            Cast::Deployments => vec![
                Arc::new(DeploymentController::new(cache.clone())),
                Arc::new(ReplicaSetController::new(cache.clone())),
            ],
            Cast::DaemonSets => vec![Arc::new(DaemonSetController::new(cache.clone()))],
            Cast::StatefulSets => vec![Arc::new(StatefulSetController::new(cache.clone()))],
            Cast::Services => {
                let slices =
                    EndpointSliceConfig { endpoints_max: services::ENDPOINTS_MAX, ..EndpointSliceConfig::default() };
                let mirroring = EndpointSliceMirroringConfig::default();
                vec![
                    Arc::new(EndpointsController::new(cache.clone(), Duration::ZERO)),
                    Arc::new(EndpointSliceController::new(cache.clone(), slices)),
                    Arc::new(EndpointSliceMirroringController::new(cache.clone(), mirroring)),
                ]
            }
        }
    }
}

fn kind(plural: &str) -> Kind {
    let mut kinds = Kind::ALL.iter().copied();
    kinds.find(|kind| kind.resource().plural == plural).unwrap_or_else(|| panic!("no kind of {plural}"))
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
    pub(super) fn start(cast: Cast, server: &Server, now: Duration) -> Self {
        let cache = Arc::new(Cache::default());
        let loops = cast.loops(&cache);
        let process = Process::new(cache, loops.clone());
        let mut manager = Manager { process, pending: VecDeque::new(), held: None };
        for plural in cast.plurals() {
            manager.relist(plural, server, now);
        }
        for each in loops {
            manager.process.wake(each.name(), each.start(), now);
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
            None => cache.remove(kind(&event.plural), namespace(&event.plural), &event.name, &event.version),
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
        let name = |meta: &ObjectMeta| meta.name.clone();
        match kind(plural) {
            Kind::Pod => cache.pods().namespace("ns").map(|pod| name(&pod.metadata)).collect(),
            Kind::ReplicaSet => cache.replica_sets().namespace("ns").map(|rs| name(&rs.metadata)).collect(),
            Kind::Deployment => cache.deployments().namespace("ns").map(|d| name(&d.metadata)).collect(),
            Kind::DaemonSet => cache.daemon_sets().namespace("ns").map(|ds| name(&ds.metadata)).collect(),
            Kind::StatefulSet => cache.stateful_sets().namespace("ns").map(|set| name(&set.metadata)).collect(),
            Kind::VolumeClaim => cache.volume_claims().namespace("ns").map(|claim| name(&claim.metadata)).collect(),
            Kind::ControllerRevision => {
                cache.controller_revisions().namespace("ns").map(|r| name(&r.metadata)).collect()
            }
            Kind::Service => cache.services().namespace("ns").map(|s| name(&s.metadata)).collect(),
            Kind::Endpoints => cache.endpoints().namespace("ns").map(|e| name(&e.metadata)).collect(),
            Kind::EndpointSlice => cache.endpoint_slices().namespace("ns").map(|s| name(&s.metadata)).collect(),
            Kind::Node => cache.nodes().all().map(|node| name(node.meta())).collect(),
            kind => panic!("no world has {kind:?}"),
        }
    }
}
