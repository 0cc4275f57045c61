//! Keeps what decisions read of all that documents hold.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::attempts::{Attempts, FailedAttempts, is_event, uid_if_waiting};
use crate::cluster_objects::{ClusterObjects, Origin, SourceObject};
use crate::document::{Sink, typed};
use crate::limits::{ATTEMPT_EVENTS_MAX, KEPT_BYTES_MAX, KEPT_WHOLE_BYTES_MAX};
use crate::notes::Notes;
use crate::resources::{Resource, Version, version_of};
use crate::snapshot::prune;

/// What tells objects apart.
#[derive(Deserialize)]
struct Head<'t> {
    #[serde(default, borrow, rename = "apiVersion")]
    api_version: Cow<'t, str>,
    #[serde(default, borrow)]
    kind: Cow<'t, str>,
    #[serde(default, borrow)]
    metadata: Option<Metadata<'t>>,
}

#[derive(Default, Deserialize)]
struct Metadata<'t> {
    #[serde(default, borrow)]
    namespace: Option<Cow<'t, str>>,
    #[serde(default, borrow)]
    name: Option<Cow<'t, str>>,
}

/// The objects of all sources so far.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    pub(crate) origin: Origin,
    objects: Vec<SourceObject>,
    bytes: usize,
    listed: BTreeSet<&'static str>,
    pub(crate) notes: Notes,
    /// The `apiVersion` and kind of objects that do not say them, by the path of the file that is read.
    pub(crate) implied: Option<(&'static str, &'static str)>,
    /// Objects of versions that are not read, by `apiVersion` and kind.
    unknown_versions: BTreeMap<(String, &'static str), (usize, &'static Resource)>,
    untyped: usize,
    nameless: usize,
    beyond_limit: usize,
    attempts: Attempts,
    /// Objects of any kind.
    seen: usize,
}

impl Collector {
    /// How many objects of any kind were there.
    pub(crate) fn seen(&self) -> usize {
        self.seen
    }

    /// Says that a source holds all objects of a resource, even if there are none.
    pub(crate) fn list(&mut self, resource: &'static Resource) {
        self.listed.insert(resource.name);
    }

    /// Keeps an object.
    pub(crate) fn keep(&mut self, mut object: SourceObject) {
        if self.bytes > KEPT_WHOLE_BYTES_MAX
            && let Some(pruned) = pruned(&object)
        {
            object.json = pruned;
        }
        let bytes = object.json.get().len();
        if self.bytes + bytes > KEPT_BYTES_MAX {
            self.beyond_limit += 1;
        } else {
            self.bytes += bytes;
            self.objects.push(object);
        }
    }

    /// An object as it is kept; none for one that no decision reads.
    fn resolve(&mut self, json: Box<RawValue>) -> Option<SourceObject> {
        let Ok(head) = serde_json::from_str::<Head<'_>>(json.get()) else {
            self.untyped += 1;
            return None;
        };
        if head.api_version.is_empty()
            && head.kind.is_empty()
            && head.metadata.is_some()
            && let Some((api_version, kind)) = self.implied.take()
        {
            let object = typed(&json, api_version, kind).and_then(|json| self.resolve(json));
            self.implied = Some((api_version, kind));
            return object;
        }
        if head.api_version.is_empty() || head.kind.is_empty() {
            // A line of a log is JSON too; it is no object that forgot its kind.
            self.untyped += usize::from(head.metadata.is_some());
            return None;
        }
        self.seen += 1;
        if is_event(&head.api_version, &head.kind) {
            self.attempts.add(&json);
            return None;
        }
        let (resource, same) = match version_of(&head.api_version, &head.kind)? {
            Version::Read(resource) => (resource, true),
            Version::Twin(resource) => (resource, false),
            Version::Other(resource) => {
                let key = (head.api_version.into_owned(), resource.kind);
                self.unknown_versions.entry(key).or_insert((0, resource)).0 += 1;
                return None;
            }
        };
        let metadata = head.metadata.unwrap_or_default();
        let Some(name) = metadata.name.filter(|name| !name.is_empty()).map(|name| Box::from(&*name)) else {
            self.nameless += 1;
            return None;
        };
        let given: Box<str> = metadata.namespace.as_deref().unwrap_or_default().into();
        let namespace: Box<str> = match (resource.namespaced, given.is_empty()) {
            (true, true) => "default".into(),
            (true, false) => given.clone(),
            (false, _) => "".into(),
        };
        let json = if same && namespace == given { json } else { rewritten(&json, resource, &namespace)? };
        Some(SourceObject { resource, namespace, name, json })
    }

    /// Leaves out copies: bundles hold many objects twice, alone and in a list. Of two versions the newer one counts.
    fn leave_out_copies(&mut self) {
        let mut places: HashMap<(&'static str, &str, &str), usize> = HashMap::with_capacity(self.objects.len());
        let mut superseded = BTreeSet::new();
        let mut versions = 0;
        for (at, object) in self.objects.iter().enumerate() {
            let key = (object.resource.name, &*object.namespace, &*object.name);
            let Some(before) = places.insert(key, at) else { continue };
            let (old, new) = (&self.objects[before].json, &object.json);
            let (old_version, new_version) = (version_in(old), version_in(new));
            if old.get() == new.get() || (!old_version.is_empty() && old_version == new_version) {
                superseded.insert(before);
            } else if let (Ok(old), Ok(new)) = (old_version.parse::<u64>(), new_version.parse::<u64>()) {
                versions += 1;
                superseded.insert(if old < new { before } else { at });
                places.insert(key, if old < new { at } else { before });
            }
        }
        if versions > 0 {
            self.notes.add(format!("{versions} objects are there in several versions; the newest of each counts"));
        }
        drop(places);
        if !superseded.is_empty() {
            let mut at = 0..;
            self.objects.retain(|_| at.next().is_some_and(|at| !superseded.contains(&at)));
        }
    }

    /// All that was collected.
    pub(crate) fn finish(mut self) -> ClusterObjects {
        self.leave_out_copies();
        for ((api_version, kind), (count, resource)) in std::mem::take(&mut self.unknown_versions) {
            let read = resource.api_version;
            self.notes
                .add(format!("{count} objects of kind {kind} are left out: {api_version} is not read, {read} is"));
        }
        let counted = [
            (self.untyped, "objects are left out that do not say their apiVersion and kind"),
            (self.nameless, "objects are left out that have no name"),
        ];
        for (count, text) in counted.into_iter().filter(|(count, _)| *count > 0) {
            self.notes.add(format!("{count} {text}"));
        }
        if self.beyond_limit > 0 {
            let (count, limit) = (self.beyond_limit, KEPT_BYTES_MAX >> 30);
            self.notes.add(format!("{count} objects are left out, because together they take more than {limit} GiB"));
        }
        if self.attempts.beyond_limit > 0 {
            let count = self.attempts.beyond_limit;
            self.notes
                .add(format!("{count} events are left out: attempts are counted from {ATTEMPT_EVENTS_MAX} at most"));
        }
        let failed_attempts = self.failed_attempts();
        let notes = self.notes.finish();
        ClusterObjects { origin: self.origin, objects: self.objects, listed: self.listed, failed_attempts, notes }
    }

    /// The attempts of pods that wait.
    fn failed_attempts(&mut self) -> Vec<FailedAttempts> {
        let attempts = std::mem::take(&mut self.attempts);
        if attempts.is_empty() {
            return Vec::new();
        }
        let named = self
            .objects
            .iter()
            .filter(|object| object.resource.kind == "Pod" && attempts.is_about(&object.namespace, &object.name));
        let waiting: HashMap<(&str, &str), String> = named
            .filter_map(|object| Some(((&*object.namespace, &*object.name), uid_if_waiting(&object.json)?)))
            .collect();
        attempts.finish(|namespace, name| waiting.get(&(namespace, name)).cloned())
    }
}

/// The `resourceVersion` of an object; empty when it says none.
fn version_in(json: &RawValue) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Versioned {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    serde_json::from_str::<Versioned>(json.get()).unwrap_or_default().metadata.resource_version
}

/// The object with nothing in it but what decisions read; none when it is no object at all.
fn pruned(object: &SourceObject) -> Option<Box<RawValue>> {
    let mut value: Value = serde_json::from_str(object.json.get()).ok()?;
    prune(object.resource.kind, &mut value)?;
    to_raw_value(&value).ok()
}

/// The object in the version that is read and with a namespace, if it needs one.
fn rewritten(json: &RawValue, resource: &Resource, namespace: &str) -> Option<Box<RawValue>> {
    let mut object: Value = serde_json::from_str(json.get()).ok()?;
    object["apiVersion"] = resource.api_version.into();
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    match resource.namespaced {
        true => metadata.insert("namespace".to_owned(), namespace.into()),
        false => metadata.remove("namespace"),
    };
    to_raw_value(&object).ok()
}

impl Sink for Collector {
    fn object(&mut self, json: Box<RawValue>) {
        if let Some(object) = self.resolve(json) {
            self.keep(object);
        }
    }

    fn listed(&mut self, api_version: &str, kind: &str) {
        if let Some(Version::Read(resource) | Version::Twin(resource)) = version_of(api_version, kind) {
            self.list(resource);
        }
    }

    fn ignores(&self, api_version: &str, kind: &str) -> bool {
        version_of(api_version, kind).is_none() && !is_event(api_version, kind)
    }

    fn note(&mut self, line: String) {
        self.notes.add(line);
    }
}
