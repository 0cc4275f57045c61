//! Keeps what decisions read of all that documents hold.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::cluster_objects::{ClusterObjects, Origin, SourceObject};
use crate::document::Sink;
use crate::limits::KEPT_BYTES_MAX;
use crate::notes::Notes;
use crate::resources::{Resource, Version, version_of};

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
    /// Objects of versions that are not read, by `apiVersion` and kind.
    unknown_versions: BTreeMap<(String, &'static str), (usize, &'static Resource)>,
    untyped: usize,
    nameless: usize,
    beyond_limit: usize,
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
    pub(crate) fn keep(&mut self, object: SourceObject) {
        self.bytes += object.json.get().len();
        if self.bytes > KEPT_BYTES_MAX {
            self.beyond_limit += 1;
        } else {
            self.objects.push(object);
        }
    }

    /// An object as it is kept; none for one that no decision reads.
    fn resolve(&mut self, json: Box<RawValue>) -> Option<SourceObject> {
        let Ok(head) = serde_json::from_str::<Head<'_>>(json.get()) else {
            self.untyped += 1;
            return None;
        };
        if head.api_version.is_empty() || head.kind.is_empty() {
            // A line of a log is JSON too; it is no object that forgot its kind.
            self.untyped += usize::from(head.metadata.is_some());
            return None;
        }
        self.seen += 1;
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

    /// All that was collected.
    pub(crate) fn finish(mut self) -> ClusterObjects {
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
        let notes = self.notes.finish();
        ClusterObjects { origin: self.origin, objects: self.objects, listed: self.listed, notes }
    }
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
        version_of(api_version, kind).is_none()
    }

    fn note(&mut self, line: String) {
        self.notes.add(line);
    }
}
