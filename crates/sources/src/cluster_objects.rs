//! What was read from a source: objects as they were written, and what is known about their completeness.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::attempts::FailedAttempts;
use crate::resources::{RESOURCES, Resource, resource_of};

/// An object as its source had it.
#[derive(Clone, Debug)]
pub struct SourceObject {
    /// What kind of object it is; none for objects that no decision reads.
    pub resource: &'static Resource,
    /// Empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// The object's `metadata.name`.
    pub name: Box<str>,
    /// The whole object as JSON, with `apiVersion` and `kind`.
    pub json: Box<RawValue>,
}

/// What kind of source objects came from; `source.kind` of an explanation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OriginKind {
    /// An API server.
    Live,
    /// A file that `bayplan snapshot` wrote.
    Snapshot,
    /// YAML or JSON.
    #[default]
    Objects,
    /// An archive that a support tool wrote.
    Bundle,
    /// An etcd snapshot.
    Etcd,
    /// A decision log.
    Log,
}

/// Where and when objects were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The kind of source.
    pub kind: OriginKind,
    /// When the state was taken, if the source says.
    pub time: Option<Timestamp>,
    /// The `resourceVersion` of the state, if the source says.
    pub resource_version: Option<String>,
}

/// The objects of one or several sources.
#[derive(Clone, Debug, Default)]
pub struct ClusterObjects {
    /// Where they come from.
    pub origin: Origin,
    /// The objects, in the order in which they were read.
    pub objects: Vec<SourceObject>,
    /// Names of resources whose objects the source lists, even if there are none.
    pub listed: BTreeSet<&'static str>,
    /// What events say of the pods that wait, by namespace and name; one for each pod.
    pub failed_attempts: Vec<FailedAttempts>,
    /// One line for each thing that could not be read or was left out.
    pub notes: Vec<String>,
}

impl ClusterObjects {
    /// These objects, as they are. Those that no decision reads are left out.
    pub fn of(objects: &[Value]) -> Self {
        let source = |json: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let resource = resource_of(&text(&json["apiVersion"]), &text(&json["kind"]))?;
            let (namespace, name) = (&json["metadata"]["namespace"], &json["metadata"]["name"]);
            let json = to_raw_value(json).ok()?;
            Some(SourceObject { resource, namespace: text(namespace).into(), name: text(name).into(), json })
        };
        ClusterObjects { objects: objects.iter().filter_map(source).collect(), ..ClusterObjects::default() }
    }

    /// The resources that decisions read and the source says nothing about; they may change an answer.
    pub fn missing(&self) -> Vec<&'static str> {
        let seen: BTreeSet<&str> = self.objects.iter().map(|object| object.resource.name).collect();
        let deciding = RESOURCES.iter().filter(|resource| resource.decides);
        deciding
            .map(|resource| resource.name)
            .filter(|name| !seen.contains(name) && !self.listed.contains(name))
            .collect()
    }
}
