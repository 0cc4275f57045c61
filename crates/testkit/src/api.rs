//! API servers that answer at once, in memory.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bayplan_model::api::{Api, Event, PatchKind, Recorder, Request, Verb};
use bayplan_model::status::{Status, reason};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};

/// A recorder that drops events.
pub struct NoEvents;

impl Recorder for NoEvents {
    fn record(&self, _: Event) {}
}

type Answer = Box<dyn Fn(&Request) -> Result<Value, Status> + Send + Sync>;

/// An API server that answers every request with one function, and keeps the requests and events.
pub struct FakeApi {
    answer: Answer,
    calls: Mutex<Vec<Request>>,
    events: Mutex<Vec<Event>>,
}

impl FakeApi {
    /// A server that answers so.
    pub fn new(answer: impl Fn(&Request) -> Result<Value, Status> + Send + Sync + 'static) -> Self {
        FakeApi { answer: Box::new(answer), calls: Mutex::default(), events: Mutex::default() }
    }

    /// What was asked so far, in order.
    pub fn calls(&self) -> Vec<Request> {
        lock(&self.calls).clone()
    }

    /// The [request lines](request_line) of what was asked so far, in order.
    pub fn lines(&self) -> Vec<String> {
        lock(&self.calls).iter().map(|request| request_line(request).0).collect()
    }

    /// The events recorded so far, in order.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }
}

impl Default for FakeApi {
    /// A server that agrees to everything and answers with an empty object.
    fn default() -> Self {
        FakeApi::new(|_| Ok(json!({})))
    }
}

impl Api for FakeApi {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        let answer = (self.answer)(&request);
        lock(&self.calls).push(request);
        ready(answer.map(|object| Bytes::from(object.to_string()))).boxed()
    }
}

impl Recorder for FakeApi {
    fn record(&self, event: Event) {
        lock(&self.events).push(event);
    }
}

/// One exchange of a script: the [request line](request_line), the body ([`ANY`] for whatever it is), and the answer.
pub type Exchange = (&'static str, Value, Result<Value, Status>);

/// Stands for any body in an [`Exchange`].
pub const ANY: Value = Value::Bool(true);

/// An API server that expects exactly these exchanges, in this order.
pub struct ScriptedApi {
    case: &'static str,
    exchanges: Mutex<VecDeque<Exchange>>,
    events: Mutex<Vec<Event>>,
}

impl ScriptedApi {
    /// The script of one case of a table; the case is named in every failure.
    pub fn new(case: &'static str, exchanges: impl IntoIterator<Item = Exchange>) -> Self {
        ScriptedApi { case, exchanges: Mutex::new(exchanges.into_iter().collect()), events: Mutex::default() }
    }

    /// Fails the test when some exchange did not take place.
    pub fn assert_finished(&self) {
        let left: Vec<_> = lock(&self.exchanges).iter().map(|exchange| exchange.0).collect();
        assert_eq!(left, [""; 0], "{}: not asked for", self.case);
    }

    /// The events recorded so far, in order.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }
}

impl Api for ScriptedApi {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        let (line, body) = request_line(&request);
        let Some((expected, sent, answer)) = lock(&self.exchanges).pop_front() else {
            panic!("{}: asked for {line} {body}, which is not in the script", self.case)
        };
        assert_eq!(line, expected, "{}", self.case);
        assert!(sent == ANY || body == sent, "{}: {line} with\n{body} instead of\n{sent}", self.case);
        ready(answer.map(|object| Bytes::from(object.to_string()))).boxed()
    }
}

impl Recorder for ScriptedApi {
    fn record(&self, event: Event) {
        lock(&self.events).push(event);
    }
}

/// A refusal, with the reason the API gives for the code.
pub fn refused(code: u16) -> Result<Value, Status> {
    let reason = match code {
        404 => reason::NOT_FOUND,
        405 => reason::METHOD_NOT_ALLOWED,
        409 => reason::CONFLICT,
        415 => reason::UNSUPPORTED_MEDIA_TYPE,
        422 => reason::INVALID,
        0 | 503 => reason::SERVICE_UNAVAILABLE,
        _ => reason::INTERNAL_ERROR,
    };
    Err(Status::failure(code, reason, format!("refused with {code}")))
}

/// A request as a line, `GET ns/things/a metadata` for example, and its body.
pub fn request_line(request: &Request) -> (String, Value) {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use bayplan_model::api::Resource;

    use super::*;

    const PODS: Resource = Resource::new("", "v1", "pods");

    fn get(name: &str) -> Request {
        Request::object(&PODS, "ns", name, Verb::Get)
    }

    #[test]
    fn a_fake_server_answers_with_its_function_and_keeps_the_requests() {
        let api = FakeApi::new(|request| if request.name == "a" { Ok(json!({"a": 1})) } else { refused(404) });
        assert_eq!(api.call(get("a")).now_or_never().unwrap().unwrap(), r#"{"a":1}"#);
        assert_eq!(api.call(get("b").metadata_only()).now_or_never().unwrap().unwrap_err().code, 404);
        assert_eq!(api.lines(), ["GET ns/pods/a", "GET ns/pods/b metadata"]);
    }

    #[test]
    #[should_panic(expected = "case: asked for GET ns/pods/b null, which is not in the script")]
    fn a_script_refuses_what_it_does_not_expect() {
        let api = ScriptedApi::new("case", [("GET ns/pods/a", Value::Null, Ok(json!({})))]);
        assert!(api.call(get("a")).now_or_never().unwrap().is_ok());
        api.assert_finished();
        let _ = api.call(get("b")).now_or_never();
    }

    #[test]
    #[should_panic(expected = "case: not asked for")]
    fn a_script_insists_on_all_of_its_exchanges() {
        ScriptedApi::new("case", [("GET ns/pods/a", ANY, refused(409))]).assert_finished();
    }
}
