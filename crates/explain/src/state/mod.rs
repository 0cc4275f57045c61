//! The state of a cluster that questions are asked of.

mod edits;

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::inspect::Nominator;
use bayplan_scheduler::{Cluster, Nomination, Object, PodInfo, Scheduler};
use bayplan_sources::{ClusterObjects, FailedAttempts, Origin, Resource, SourceObject};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub use edits::Undo;

/// Where an object is found: its resource, namespace and name.
type Key = (&'static str, Box<str>, Box<str>);

/// A cluster as the scheduler sees it, and the objects it was made from.
#[derive(Clone, Default)]
pub struct State {
    cluster: Cluster,
    nominator: Nominator,
    /// Pods without a node, by namespace and name.
    pending: BTreeMap<(String, String), Arc<PodInfo>>,
    /// All objects as they were written.
    written: FxHashMap<Key, Arc<RawValue>>,
    origin: Origin,
    missing: Vec<&'static str>,
    /// What events say of pods that wait, by namespace and name.
    failed_attempts: BTreeMap<(String, String), FailedAttempts>,
    notes: Vec<String>,
}

impl State {
    /// Reads the objects of a source. An object that cannot be read is left out and noted.
    pub fn new(objects: ClusterObjects) -> Self {
        let missing = objects.missing();
        let attempts = objects.failed_attempts.into_iter();
        let failed_attempts = attempts.map(|of| ((of.namespace.clone(), of.name.clone()), of)).collect();
        let mut state =
            State { missing, failed_attempts, origin: objects.origin, notes: objects.notes, ..State::default() };
        let decoded = decode_all(&objects.objects);
        for (object, decoded) in objects.objects.into_iter().zip(decoded) {
            state.read(object, decoded);
        }
        state.note_unknown_nodes();
        state
    }

    /// The state that a scheduler has, with the objects as they are written.
    pub(crate) fn of_scheduler(scheduler: &Scheduler, objects: ClusterObjects) -> Self {
        let key = |pod: &PodInfo| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        let pending = scheduler.queue().pods().map(|pod| (key(&pod.info), pod.info.clone())).collect();
        let written = objects.objects.into_iter();
        State {
            cluster: scheduler.cluster().clone(),
            nominator: scheduler.queue().nominator.clone(),
            pending,
            written: written
                .map(|object| ((object.resource.name, object.namespace, object.name), object.json.into()))
                .collect(),
            origin: objects.origin,
            failed_attempts: BTreeMap::new(),
            missing: Vec::new(),
            notes: objects.notes,
        }
    }

    fn read(&mut self, object: SourceObject, decoded: Decoded) {
        let SourceObject { resource, namespace, name, json } = object;
        let shown = if namespace.is_empty() { name.to_string() } else { format!("{namespace}/{name}") };
        match decoded {
            Err(error) => self.notes.push(format!("{} {shown} cannot be read and is left out: {error}", resource.name)),
            Ok(decoded) => {
                let key = (resource.name, namespace, name);
                if self.written.insert(key, json.into()).is_some() {
                    self.notes.push(format!("{} {shown} appears more than once; the last one counts", resource.name));
                }
                if let Some(object) = decoded {
                    self.put(object);
                }
            }
        }
    }

    fn note_unknown_nodes(&mut self) {
        let mut unknown: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in self.cluster.objects.pods.iter().filter(|pod| pod.is_assigned()) {
            if self.cluster.node(&pod.spec.node_name).is_none() {
                *unknown.entry(&pod.spec.node_name).or_default() += 1;
            }
        }
        let line = |(node, pods): (&str, usize)| format!("{pods} pods are on node {node}, which is not there");
        let lines: Vec<String> = unknown.into_iter().map(line).collect();
        self.notes.extend(lines);
    }

    /// Stores an object, or a new version of it.
    pub fn put(&mut self, object: Object) {
        let Object::Pod(pod) = object else { return self.cluster.store(object) };
        let pod = with_uid(pod);
        drop(self.take_pod(&pod.metadata.namespace, &pod.metadata.name));
        if pod.is_terminal() {
            return;
        }
        if !pod.is_assigned() {
            let info = Arc::new(PodInfo::new(pod.clone()));
            self.nominator.add(&info, &Nomination::Keep);
            self.pending.insert((pod.metadata.namespace.clone(), pod.metadata.name.clone()), info);
        }
        self.cluster.store(Object::Pod(pod));
    }

    /// Says that a pod that was placed is bound: from here on it is one like those that were on nodes before.
    pub(crate) fn confirm(&mut self, pod: &PodInfo, node: &str) {
        self.cluster.store(Object::Pod(pod.pod_on(node)));
    }

    /// Nominates a pending pod to a node; empty clears its nomination.
    pub(crate) fn nominate(&mut self, pod: &Arc<PodInfo>, node: &str) {
        self.nominator.add(pod, &Nomination::Override(node.to_owned()));
    }

    /// The scheduler's view: nodes, the pods on them, and what plugins look up.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The pods that are nominated to nodes.
    pub fn nominator(&self) -> &Nominator {
        &self.nominator
    }

    /// The pods without a node, by namespace and name.
    pub fn pending(&self) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.pending.values()
    }

    /// A pod by namespace and name, on a node or not.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Arc<PodInfo>> {
        let placed = || self.cluster.placed(&self.cluster.objects.pods.get(namespace, name)?.metadata.uid);
        self.pending.get(&(namespace.to_owned(), name.to_owned())).or_else(placed)
    }

    /// Asks `question` of the state in which a pod is not on its node. Afterwards it is there again.
    pub(crate) fn without_placed<T>(&mut self, pod: &Arc<PodInfo>, question: impl FnOnce(&State) -> T) -> T {
        let taken = self.cluster.take_pod(pod.uid());
        let answer = question(self);
        if let Some(taken) = taken {
            self.cluster.put_back(taken);
        }
        answer
    }

    /// An object as it was written.
    pub fn written(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<&RawValue> {
        self.written.get(&(resource.name, namespace.into(), name.into())).map(|json| &**json)
    }

    /// All objects of a resource as they were written, by namespace and name.
    pub fn all_written(&self, resource: &'static Resource) -> Vec<(&str, &str, &RawValue)> {
        let of_resource = self.written.iter().filter(|((name, _, _), _)| *name == resource.name);
        let mut all: Vec<_> =
            of_resource.map(|((_, namespace, name), json)| (&**namespace, &**name, &**json)).collect();
        all.sort_unstable_by_key(|(namespace, name, _)| (*namespace, *name));
        all
    }

    /// Where the state comes from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The resources that decisions read and the source says nothing about.
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// What events say of the failed attempts to schedule a pod.
    pub fn failed_attempts(&self, namespace: &str, name: &str) -> Option<&FailedAttempts> {
        self.failed_attempts.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// One line for each thing that could not be read.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// The scheduler's view of an object; none for kinds that it does not read.
type Decoded = Result<Option<Object>, serde_json::Error>;

/// Fewer objects than this are decoded before another thread has started.
const OBJECTS_PER_THREAD_MIN: usize = 2000;

/// Decodes all objects, on as many threads as there are processors: it is most of the work of a load.
fn decode_all(objects: &[SourceObject]) -> Vec<Decoded> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = objects.len().div_ceil(threads).max(OBJECTS_PER_THREAD_MIN);
    let decode_share = |share: &[SourceObject]| -> Vec<Decoded> {
        share.iter().map(|object| decode(object.resource, &object.json)).collect()
    };
    std::thread::scope(|scope| {
        let mut shares = objects.chunks(share);
        let first = shares.next().unwrap_or_default();
        let others: Vec<_> = shares.map(|share| scope.spawn(move || decode_share(share))).collect();
        let mut decoded = decode_share(first);
        for other in others {
            match other.join() {
                Ok(share) => decoded.extend(share),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        decoded
    })
}

fn decode(resource: &Resource, json: &RawValue) -> Decoded {
    if resource.kind == "Pod" {
        return serde_json::from_str::<Pod>(json.get()).map(|pod| Some(Object::Pod(Arc::new(pod))));
    }
    let value = Value::deserialize(&mut serde_json::Deserializer::from_str(json.get()))?;
    Object::decode(&value).transpose()
}

/// Pods are known by UID; one that was written by hand has none and is known by its name.
pub(crate) fn with_uid(mut pod: Arc<Pod>) -> Arc<Pod> {
    if pod.metadata.uid.is_empty() {
        let metadata = &mut Arc::make_mut(&mut pod).metadata;
        metadata.uid = format!("{}/{}", metadata.namespace, metadata.name);
    }
    pod
}
