//! A scripted API server for tests: what is asked of it, in order, and what it answers.

use std::collections::VecDeque;
use std::sync::Mutex;

use bayplan_model::api::{Api, Event, PatchKind, Recorder, Request, Verb};
use bayplan_model::status::{Cause, Details, Status, reason};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::controller::{Context, Controller, Next, lock};
use crate::error::Error;

/// One exchange: the request line (`GET ns/things/a metadata`), its body, and the answer.
pub(crate) type Step = (&'static str, Value, Result<Value, Status>);

/// Stands for any body.
pub(crate) const ANY: Value = Value::Bool(true);

/// The exchanges still to come.
pub(crate) struct Script {
    case: &'static str,
    steps: Mutex<VecDeque<Step>>,
    events: Mutex<Vec<String>>,
}

/// A refusal, with the reason that goes with the code.
pub(crate) fn refused(code: u16) -> Result<Value, Status> {
    let reason = match code {
        404 => reason::NOT_FOUND,
        405 => reason::METHOD_NOT_ALLOWED,
        409 => reason::CONFLICT,
        415 => reason::UNSUPPORTED_MEDIA_TYPE,
        422 => reason::INVALID,
        _ => reason::INTERNAL_ERROR,
    };
    Err(Status::failure(code, reason, format!("refused with {code}")))
}

/// The refusal to create what is there already.
pub(crate) fn exists() -> Result<Value, Status> {
    Err(Status::failure(409, reason::ALREADY_EXISTS, "exists"))
}

/// The refusal to create anything in a namespace that goes away.
pub(crate) fn closing() -> Result<Value, Status> {
    let cause = Cause { reason: "NamespaceTerminating".into(), ..Cause::default() };
    let details = Details { causes: vec![cause], ..Details::default() };
    Err(Status::failure(403, reason::FORBIDDEN, "closing").with_details(details))
}

/// When scripts play.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_780_000_000).unwrap()
}

impl Script {
    /// A script of one case of a table.
    pub(crate) fn new(case: &'static str, steps: impl IntoIterator<Item = Step>) -> Self {
        Script { case, steps: Mutex::new(steps.into_iter().collect()), events: Mutex::default() }
    }

    /// Reconciles a key; every exchange must have taken place.
    pub(crate) fn play(&self, controller: &dyn Controller, key: &str) -> Result<Next, Error> {
        self.play_at(0, controller, key)
    }

    /// Reconciles a key so many seconds after the scripts begin to play.
    pub(crate) fn play_at(&self, second: i64, controller: &dyn Controller, key: &str) -> Result<Next, Error> {
        let now = now() + jiff::SignedDuration::from_secs(second);
        let context = Context { now, api: self, recorder: self };
        let outcome = controller.sync(key, context).now_or_never().expect("a script answers at once");
        let left: Vec<_> = lock(&self.steps).iter().map(|step| step.0).collect();
        assert_eq!(left, [""; 0], "{}: not asked for", self.case);
        outcome
    }

    /// The reasons of the events that were recorded.
    pub(crate) fn events(&self) -> Vec<String> {
        lock(&self.events).clone()
    }
}

fn line(request: &Request) -> (String, Value) {
    let body = |bytes: &Bytes| serde_json::from_slice(bytes).unwrap();
    let (verb, body) = match &request.verb {
        Verb::Get => ("GET", Value::Null),
        Verb::List(_) => ("LIST", Value::Null),
        Verb::Create(bytes) => ("POST", body(bytes)),
        Verb::Update(bytes) => ("PUT", body(bytes)),
        Verb::Patch(PatchKind::Json, bytes) => ("JSON-PATCH", body(bytes)),
        Verb::Patch(PatchKind::Merge, bytes) => ("MERGE-PATCH", body(bytes)),
        Verb::Patch(PatchKind::Strategic, bytes) => ("STRATEGIC-PATCH", body(bytes)),
        Verb::Delete(options) => ("DELETE", json!(options)),
        Verb::DeleteCollection(_, options) => ("DELETE-COLLECTION", json!(options)),
    };
    let parts = [request.namespace.as_str(), &request.resource.plural, &request.name];
    let path: Vec<_> = parts.into_iter().chain(request.subresource).filter(|part| !part.is_empty()).collect();
    let metadata = if request.metadata_only { " metadata" } else { "" };
    (format!("{verb} {}{metadata}", path.join("/")), body)
}

impl Api for Script {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        let (asked, body) = line(&request);
        let Some((expected, sent, answer)) = lock(&self.steps).pop_front() else {
            panic!("{}: asked for {asked} {body}, which is not in the script", self.case)
        };
        assert_eq!(asked, expected, "{}", self.case);
        assert!(sent == ANY || body == sent, "{}: {asked} with\n{body} instead of\n{sent}", self.case);
        ready(answer.map(|object| Bytes::from(object.to_string()))).boxed()
    }
}

impl Recorder for Script {
    fn record(&self, event: Event) {
        lock(&self.events).push(event.reason.into_owned());
    }
}
