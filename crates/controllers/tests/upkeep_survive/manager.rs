//! One controller manager: its loop, and the watch events that have not reached it yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bayplan_controllers::{Cache, Kind, Process};
use serde_json::Value;

use super::lives::Life;
use super::server::{Server, Trouble, Watch};

/// The manager, from start to crash.
pub(crate) struct Manager {
    kinds: &'static [Kind],
    pub(crate) process: Process,
    /// How many reconciles may overlap.
    pub(crate) workers: usize,
    /// What was heard and not told yet; watches of different kinds do not wait for one another.
    pending: VecDeque<(Kind, Watch)>,
    /// The names of the objects it was told of.
    known: BTreeMap<Kind, BTreeSet<(String, String)>>,
    /// The watch that does not get through, and until when at least.
    held: Option<(Trouble, Duration)>,
}

/// Whether a watch of this kind shows the object.
fn selects(kind: Kind, object: &Value) -> bool {
    let selector = kind.field_selector();
    let Some((field, value)) = selector.split_once('=') else { return true };
    object.pointer(&format!("/{}", field.replace('.', "/"))).is_some_and(|found| *found == value)
}

impl Manager {
    /// Begins with a list; no worker starts before the caches are complete.
    pub(crate) fn start(life: &Life, server: &Server, now: Duration) -> Self {
        let cache = Arc::new(Cache::default());
        let controller = (life.controller)(cache.clone());
        let workers = controller.workers();
        let process = Process::new(cache, [controller]);
        let (pending, known) = (VecDeque::new(), BTreeMap::new());
        let mut manager = Manager { kinds: life.kinds, process, workers, pending, known, held: None };
        for kind in life.kinds {
            manager.relist(*kind, server, now);
        }
        manager
    }

    /// What was written goes into the watches, or is lost with one of them.
    pub(crate) fn hear(&mut self, events: &[Watch]) {
        let lost = self.held.filter(|(trouble, _)| trouble.lost).map(|(trouble, _)| trouble.kind);
        for event in events {
            let kinds = self.kinds.iter().filter(|kind| kind.resource().plural == *event.plural);
            self.pending.extend(kinds.filter(|kind| Some(**kind) != lost).map(|kind| (*kind, event.clone())));
        }
    }

    pub(crate) fn trouble(&mut self, trouble: Trouble, now: Duration) {
        if trouble.lost {
            self.pending.retain(|(kind, _)| *kind != trouble.kind);
        }
        self.held = Some((trouble, now + trouble.lasts));
    }

    /// Ends the trouble when its time has come; answers whether there was any.
    pub(crate) fn release(&mut self, server: &Server, now: Duration) -> bool {
        let Some((trouble, _)) = self.held.take_if(|(_, until)| *until <= now) else { return false };
        if trouble.lost {
            self.relist(trouble.kind, server, now);
        }
        true
    }

    /// Every object once more.
    pub(crate) fn resync(&mut self, server: &Server) {
        let list = |kind: Kind| server.list(&kind.resource().plural).into_iter().map(move |event| (kind, event));
        self.pending = self.kinds.iter().copied().flat_map(list).collect();
    }

    pub(crate) fn next_deadline(&mut self) -> Option<Duration> {
        let held = self.held.map(|(_, until)| until);
        self.process.next_deadline().into_iter().chain(held).min()
    }

    /// Tells of the first event that gets through.
    pub(crate) fn deliver_one(&mut self, now: Duration) -> bool {
        let held = self.held.map(|(trouble, _)| trouble.kind);
        let first = self.pending.iter().position(|(kind, _)| Some(*kind) != held);
        self.deliver_at(first, now)
    }

    /// Tells of the first event of one kind.
    pub(crate) fn deliver_of(&mut self, kind: Kind, now: Duration) -> bool {
        let first = self.pending.iter().position(|(each, _)| *each == kind);
        self.deliver_at(first, now)
    }

    fn deliver_at(&mut self, at: Option<usize>, now: Duration) -> bool {
        let Some((kind, event)) = at.and_then(|at| self.pending.remove(at)) else { return false };
        self.observe(kind, &event, now);
        true
    }

    fn observe(&mut self, kind: Kind, event: &Watch, now: Duration) {
        let (cache, known) = (self.process.cache(), self.known.entry(kind).or_default());
        let name = (event.namespace.clone(), event.name.clone());
        let change = match event.object.as_ref().filter(|object| selects(kind, object)) {
            Some(object) => {
                known.insert(name);
                Some(cache.set(kind, object.to_string().as_bytes()).unwrap())
            }
            None => {
                known.remove(&name);
                cache.remove(kind, &event.namespace, &event.name, &event.version)
            }
        };
        if let Some(change) = change {
            self.process.observe(&change, now);
        }
    }

    /// A watch that broke lists again: what is listed exists, what is not was deleted.
    pub(crate) fn relist(&mut self, kind: Kind, server: &Server, now: Duration) {
        self.pending.retain(|(each, _)| *each != kind);
        let plural = kind.resource().plural;
        let listed = server.list(&plural);
        let version = server.revision();
        let names: BTreeSet<_> = listed.iter().map(|event| (event.namespace.clone(), event.name.clone())).collect();
        for (namespace, name) in self.known.get(&kind).cloned().unwrap_or_default().difference(&names).cloned() {
            let version = String::new();
            self.observe(kind, &Watch { plural: plural.to_string(), namespace, name, version, object: None }, now);
        }
        for event in &listed {
            self.observe(kind, event, now);
        }
        self.process.cache().bookmark(kind, &version);
    }
}
