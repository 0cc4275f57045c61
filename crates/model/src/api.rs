//! The calls a pure core may ask of the shell, and the traits through which it asks: [`Api`], [`Recorder`], [`Timer`].
//!
//! Reconcilers and binding cycles are `async fn`s over [`Api`]: the compiler turns them into the state machines
//! "response in, next request out", so the same code runs over HTTP, in-process, and under the simulator, which may
//! answer, delay, fail or never resume any single call. Nothing here needs an async runtime.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::status::{Status, reason};
use crate::trace::SpanContext;

/// A resource as URLs name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// API group, empty for core.
    pub group: Cow<'static, str>,
    /// API version.
    pub version: Cow<'static, str>,
    /// Plural name.
    pub plural: Cow<'static, str>,
}

impl Resource {
    /// A resource known at compile time.
    pub const fn new(group: &'static str, version: &'static str, plural: &'static str) -> Self {
        Resource { group: Cow::Borrowed(group), version: Cow::Borrowed(version), plural: Cow::Borrowed(plural) }
    }
}

/// What to do with the resource.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// Read one object; always the latest.
    Get,
    /// Read a collection.
    List(ListOptions),
    /// Create, with the JSON of the object.
    Create(Bytes),
    /// Replace, with the JSON of the object.
    Update(Bytes),
    /// Change, with a patch.
    Patch(PatchKind, Bytes),
    /// Delete one object.
    Delete(DeleteOptions),
    /// Delete every object that matches.
    DeleteCollection(ListOptions, DeleteOptions),
}

/// Which patch a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, for built-in kinds.
    Strategic,
}

/// What part of a collection to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Label selector in query form; empty selects all.
    pub label_selector: String,
    /// Field selector in query form; empty selects all.
    pub field_selector: String,
}

/// `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeleteOptions {
    /// Overrides the object's own grace period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    /// What must still hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preconditions: Option<Preconditions>,
    /// `Orphan`, `Background` or `Foreground`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagation_policy: Option<String>,
}

/// What must hold for a deletion to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preconditions {
    /// The object's UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The object's resource version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

/// One call to an API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What to do.
    pub verb: Verb,
    /// With which resource.
    pub resource: Resource,
    /// In which namespace; empty for cluster-scoped resources and for lists over all namespaces.
    pub namespace: String,
    /// With which object; empty for collections.
    pub name: String,
    /// With which subresource, if any.
    pub subresource: Option<&'static str>,
    /// Ask for `PartialObjectMetadata` answers, for callers that read metadata only.
    pub metadata_only: bool,
    /// The span that it is a part of, if it is traced.
    pub trace: Option<SpanContext>,
}

impl Request {
    /// A call on a collection (list, create, delete collection).
    pub fn collection(resource: &Resource, namespace: &str, verb: Verb) -> Self {
        Self::object(resource, namespace, "", verb)
    }

    /// A call on one object.
    pub fn object(resource: &Resource, namespace: &str, name: &str, verb: Verb) -> Self {
        Request {
            verb,
            resource: resource.clone(),
            namespace: namespace.into(),
            name: name.into(),
            subresource: None,
            metadata_only: false,
            trace: None,
        }
    }

    /// The same call on a subresource.
    #[must_use]
    pub fn subresource(mut self, name: &'static str) -> Self {
        self.subresource = Some(name);
        self
    }

    /// The same call, answered with metadata only.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }
}

/// The API server as a pure core sees it: every read and write goes through here.
pub trait Api: Send + Sync {
    /// Sends one request; the answer is the JSON body, or the server's `Status`.
    ///
    /// A transport failure arrives as a `Status` with code 0 and reason `ServiceUnavailable`: the caller cannot
    /// know whether the request took effect.
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>>;
}

/// Reads an answer's JSON into a view.
pub fn decode<T: DeserializeOwned>(answer: &[u8]) -> Result<T, Status> {
    serde_json::from_slice(answer)
        .map_err(|error| Status::failure(500, reason::INTERNAL_ERROR, format!("undecodable answer: {error}")))
}

/// Writes a view as the JSON body of a request.
pub fn encode<T: Serialize>(object: &T) -> Bytes {
    // Views hold strings, numbers, lists and string-keyed maps only; such values always have a JSON form.
    Bytes::from(serde_json::to_vec(object).expect("views are plain data"))
}

/// The object of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Resource version the writer saw.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// Information.
    Normal,
    /// A problem.
    Warning,
}

/// An event for users, which the shell writes as a Kubernetes Event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The object it is about.
    pub regarding: ObjectReference,
    /// `Normal` or `Warning`.
    pub event_type: EventType,
    /// Short machine-readable reason.
    pub reason: Cow<'static, str>,
    /// The action, `Scheduling` for example; empty for core/v1 events.
    pub action: Cow<'static, str>,
    /// The sentence for the user.
    pub note: String,
}

/// Where a pure core reports events; the shell correlates and writes them.
pub trait Recorder: Send + Sync {
    /// Records one event; never blocks, and may drop it under pressure.
    fn record(&self, event: Event);
}

/// The clock and the timers that the shell lends to multi-step work, a binding cycle for example.
pub trait Timer: Send + Sync {
    /// The time.
    fn now(&self) -> Timestamp;

    /// Resolves after this long.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}
