//! Plays one reconcile of a controller against a scripted API server.

use bayplan_model::status::{Cause, Details, Status, reason};
use bayplan_testkit::ScriptedApi;
pub(crate) use bayplan_testkit::{ANY, Exchange as Step, refused};
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::Value;

use crate::controller::{Context, Controller, Requeue};
use crate::error::Error;

/// The exchanges a reconcile must have with the API server, in order.
pub(crate) struct Script(ScriptedApi);

/// The refusal to create what exists.
pub(crate) fn exists() -> Result<Value, Status> {
    Err(Status::failure(409, reason::ALREADY_EXISTS, "exists"))
}

/// The refusal to create anything in a namespace that is being deleted.
pub(crate) fn closing() -> Result<Value, Status> {
    let cause = Cause { reason: "NamespaceTerminating".into(), ..Cause::default() };
    let details = Details { causes: vec![cause], ..Details::default() };
    Err(Status::failure(403, reason::FORBIDDEN, "closing").with_details(details))
}

/// The time at which scripts play.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_780_000_000).unwrap()
}

impl Script {
    /// The script of one case of a table.
    pub(crate) fn new(case: &'static str, steps: impl IntoIterator<Item = Step>) -> Self {
        Script(ScriptedApi::new(case, steps))
    }

    /// Reconciles a key; every exchange must take place.
    pub(crate) fn play(&self, controller: &dyn Controller, key: &str) -> Result<Requeue, Error> {
        self.play_at(0, controller, key)
    }

    /// Reconciles a key this many seconds after [`now`].
    pub(crate) fn play_at(&self, second: i64, controller: &dyn Controller, key: &str) -> Result<Requeue, Error> {
        let now = now() + jiff::SignedDuration::from_secs(second);
        let context = Context { now, api: &self.0, recorder: &self.0 };
        let outcome = controller.sync(key, context).now_or_never().expect("a script answers at once");
        self.0.assert_finished();
        outcome
    }

    /// The reasons of the recorded events.
    pub(crate) fn events(&self) -> Vec<String> {
        self.0.events().into_iter().map(|event| event.reason.into_owned()).collect()
    }

    /// The notes of the recorded events.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.0.events().into_iter().map(|event| event.note).collect()
    }
}
