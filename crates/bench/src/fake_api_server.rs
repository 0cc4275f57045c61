//! An API server made of a few maps: it accepts the requests of effects and remembers what the scheduler would see
//! next.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bayplan_model::api::{Api, Event, Recorder, Request, Verb};
use bayplan_model::status::{Status, reason};
use bayplan_scheduler::Timer;
use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::Value;

/// Writes since the last call of [`FakeApiServer::take_writes`].
#[derive(Default)]
pub(crate) struct Writes {
    /// Deleted pods, by `namespace/name`.
    pub(crate) deleted: Vec<String>,
    /// Claims after the write.
    pub(crate) claims: Vec<Value>,
}

#[derive(Default)]
struct State {
    /// Resource claims by `namespace/name`.
    claims: FxHashMap<String, Value>,
    version: u64,
    writes: Writes,
}

#[derive(Default)]
pub(crate) struct FakeApiServer(Mutex<State>);

impl FakeApiServer {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // The maps are whole after every single call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_claim(&self, key: String, claim: Value) {
        self.state().claims.insert(key, claim);
    }

    pub(crate) fn take_writes(&self) -> Writes {
        std::mem::take(&mut self.state().writes)
    }
}

impl State {
    fn claim(&mut self, key: &str, verb: &Verb) -> Option<Bytes> {
        self.version += 1;
        let claim = self.claims.get_mut(key)?;
        if let Verb::Patch(_, body) = verb {
            *claim = bayplan_patch::merge_patch::apply(claim.take(), body).ok()?;
            claim["metadata"]["resourceVersion"] = (1000 + self.version).to_string().into();
            if claim["status"]["allocation"].is_object() {
                self.writes.claims.push(claim.clone());
            }
        }
        Some(bayplan_model::api::encode(claim))
    }
}

impl Api for FakeApiServer {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        let key = format!("{}/{}", request.namespace, request.name);
        let mut state = self.state();
        let answer = match (&*request.resource.plural, &request.verb) {
            ("resourceclaims", verb) => {
                let missing = || Status::failure(404, reason::NOT_FOUND, "no such claim");
                state.claim(&key, verb).ok_or_else(missing)
            }
            ("pods", Verb::Delete(_)) => {
                state.writes.deleted.push(key);
                Ok(Bytes::new())
            }
            _ => Ok(Bytes::new()),
        };
        Box::pin(std::future::ready(answer))
    }
}

impl Recorder for FakeApiServer {
    fn record(&self, _event: Event) {}
}

impl Timer for FakeApiServer {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn sleep(&self, _duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
