//! A control loop as the shell that runs it sees it.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bayplan_model::api::{Api, Event, EventType, ObjectReference, Recorder};
use bayplan_model::delta::Delta;
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_model::work_queue::RetryLimits;
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::cache::{AnyDelta, Kind};
use crate::discovery::ApiResource;
use crate::error::Error;

/// What a reconcile may use: the time, the API server and the event recorder.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The time at which the reconcile runs.
    pub now: Timestamp,
    /// The API server.
    pub api: &'a dyn Api,
    /// Where events go.
    pub recorder: &'a dyn Recorder,
}

impl Context<'_> {
    /// Records an event of type `Normal`.
    pub fn normal(&self, regarding: ObjectReference, reason: &'static str, note: String) {
        self.event(regarding, EventType::Normal, reason, note);
    }

    /// Records an event of type `Warning`.
    pub fn warning(&self, regarding: ObjectReference, reason: &'static str, note: String) {
        self.event(regarding, EventType::Warning, reason, note);
    }

    /// Records an event of type `Warning` whose reason an object gives.
    pub fn warning_of(&self, regarding: ObjectReference, reason: String, note: String) {
        self.event(regarding, EventType::Warning, reason, note);
    }

    fn event(
        &self,
        regarding: ObjectReference,
        event_type: EventType,
        reason: impl Into<Cow<'static, str>>,
        note: String,
    ) {
        self.recorder.record(Event { regarding, event_type, reason: reason.into(), action: "".into(), note });
    }

    /// `now` as the API writes it: whole seconds.
    pub fn second(&self) -> Timestamp {
        Timestamp::from_second(self.now.as_second()).unwrap_or(self.now)
    }
}

/// A key to put into the work queue, at once or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The key to reconcile.
    pub key: String,
    /// How long to wait first.
    pub after: Duration,
}

impl Wakeup {
    /// A key to reconcile as soon as a worker is free.
    pub fn now(key: impl Into<String>) -> Self {
        Wakeup { key: key.into(), after: Duration::ZERO }
    }

    /// A key to reconcile after this long.
    pub fn after(key: impl Into<String>, after: Duration) -> Self {
        Wakeup { key: key.into(), after }
    }
}

/// When a key that was reconciled with success is reconciled again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Requeue {
    /// When something changes.
    #[default]
    OnChange,
    /// After this long.
    After(Duration),
    /// After the queue's back-off.
    RateLimited,
    /// After the queue's back-off because something failed, and also when the time has come that was waited for anyway.
    Failed {
        /// What failed.
        why: String,
        /// What is waited for.
        after: Duration,
    },
    /// After the queue's back-off when `again` is set, and other keys as well.
    Keys {
        /// The other keys.
        keys: Vec<Wakeup>,
        /// Whether to requeue this key.
        again: bool,
    },
}

/// One control loop: which changes wake it, and what it does about a key.
pub trait Controller: Send + Sync {
    /// Upstream's name of the controller, as `--controllers` spells it.
    fn name(&self) -> &'static str;

    /// The component its events come from.
    fn component(&self) -> &'static str {
        self.name()
    }

    /// The kinds whose objects it reads and whose deltas it observes.
    fn watches(&self) -> &'static [Kind];

    /// How many keys are reconciled at the same time.
    fn workers(&self) -> usize {
        5
    }

    /// How often a failing key is retried before it waits for the next change.
    fn max_retries(&self) -> u32 {
        u32::MAX
    }

    /// The keys to start with, for loops that run periodically and not only on changes.
    fn start(&self) -> Vec<Wakeup> {
        Vec::new()
    }

    /// How failing keys are slowed down.
    fn retry_limits(&self) -> RetryLimits {
        RetryLimits::default()
    }

    /// The keys that a change concerns. The cache has the change already.
    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup>;

    /// Whether it follows the metadata of a resource's objects, whatever kind they are of.
    fn follows(&self, _resource: &ApiResource) -> bool {
        false
    }

    /// Whether it follows objects of any resource at all; it starts when all of them are known.
    fn follows_objects(&self) -> bool {
        false
    }

    /// The keys that a change of an object concerns, of a resource that it follows. Every object is told of once as
    /// added, and once as deleted.
    fn observe_metadata(&self, _resource: &ApiResource, _delta: &Delta<Arc<PartialObjectMetadata>>) -> Vec<Wakeup> {
        Vec::new()
    }

    /// A resource that it followed is not served any more; if it is again, all its objects are told of again.
    fn forget_objects(&self, _resource: &ApiResource) {}

    /// Brings one key closer to what its spec asks for.
    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>>;
}

/// Locks a mutex whose data is whole between any two statements, so a panicked holder leaves nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Splits a work queue key into namespace (empty for cluster-scoped objects) and name.
pub fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}
