//! The API server of the world: every resource is a map of objects with optimistic concurrency, patches, finalizers and
//! watches; and one fault at one write.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use bayplan_controllers::Kind;
use bayplan_model::api::{Api, DeleteOptions, PatchKind, Request, Verb};
use bayplan_model::status::{Status, reason};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, pending, ready};
use jiff::Timestamp;
use serde_json::{Value, json};

/// What goes wrong at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It takes effect, and the caller crashes before it has the answer.
    CrashAfter,
    /// The caller dies before it takes effect.
    CrashBefore,
    /// It takes effect, and the answer is lost.
    LostAnswer,
    /// It is refused because the object changed meanwhile.
    Conflict,
    /// It goes well, and from then on a watch has trouble.
    Watch(Trouble),
}

/// What is wrong with a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Whose watch.
    pub(crate) kind: Kind,
    /// Its events are lost until it lists again, and not only late.
    pub(crate) lost: bool,
    /// It ends after this time, when there is nothing else left to do.
    pub(crate) lasts: Duration,
}

/// Resource, namespace and name.
type Key = (String, String, String);

/// One watch event; without an object, the object is gone.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) plural: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) object: Option<Value>,
}

#[derive(Clone, Default)]
struct State {
    objects: BTreeMap<Key, Value>,
    revision: u64,
    events: VecDeque<Watch>,
    now: Timestamp,
    writes: usize,
    fault: Option<(usize, Fault)>,
    trouble: Option<Trouble>,
}

/// The server.
#[derive(Default)]
pub(crate) struct Server(Mutex<State>);

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn key(plural: &str, object: &Value) -> Key {
    let metadata = &object["metadata"];
    (plural.to_owned(), text(&metadata["namespace"]), text(&metadata["name"]))
}

fn conflict() -> Status {
    Status::failure(409, reason::CONFLICT, "the object has been modified")
}

/// RFC 7386, and of a strategic patch what it says of finalizers.
fn merge(target: &mut Value, patch: &Value, kind: PatchKind) {
    let Value::Object(patch) = patch else { return target.clone_from(patch) };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, value) in patch {
        match field.strip_prefix("$deleteFromPrimitiveList/") {
            Some(list) => {
                let gone = value.as_array().unwrap();
                target[list].as_array_mut().into_iter().for_each(|kept| kept.retain(|item| !gone.contains(item)));
            }
            None if kind == PatchKind::Strategic && field == "finalizers" => {
                let mut list = target[field].as_array().cloned().unwrap_or_default();
                list.extend(
                    value.as_array().unwrap().iter().filter(|item| !list.contains(item)).cloned().collect::<Vec<_>>(),
                );
                target[field] = json!(list);
            }
            None if value.is_null() => drop(target.as_object_mut().unwrap().remove(field)),
            None => merge(&mut target[field], value, kind),
        }
    }
}

impl State {
    fn store(&mut self, plural: &str, mut object: Value) -> Value {
        self.revision += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.revision.to_string());
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{}", self.revision));
            metadata["creationTimestamp"] = json!(self.second());
        }
        let over = !object["metadata"]["deletionTimestamp"].is_null()
            && object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        let key = key(plural, &object);
        let (name, namespace) = (key.2.clone(), key.1.clone());
        let version = self.revision.to_string();
        let kept = (!over).then(|| object.clone());
        match &kept {
            Some(object) => drop(self.objects.insert(key, object.clone())),
            None => drop(self.objects.remove(&key)),
        }
        self.events.push_back(Watch { plural: plural.into(), namespace, name, version, object: kept });
        object
    }

    fn second(&self) -> Timestamp {
        Timestamp::from_second(self.now.as_second()).unwrap()
    }

    /// Deletes an object, or marks it as deleted while it has finalizers.
    fn delete(&mut self, key: &Key) {
        let mut object = self.objects[key].clone();
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = json!(self.second());
            self.store(&key.0, object);
        }
    }

    /// Replaces an object or its status, unless what the caller read is not what is there.
    fn replace(&mut self, key: &Key, old: &Value, sent: &Value, status: bool) -> Result<Value, Status> {
        let sent_version = &sent["metadata"]["resourceVersion"];
        let sent_uid = &sent["metadata"]["uid"];
        let differs = |sent: &Value, field: &str| !sent.is_null() && *sent != old["metadata"][field];
        if differs(sent_version, "resourceVersion") || differs(sent_uid, "uid") {
            return Err(conflict());
        }
        let mut new = if status { old.clone() } else { sent.clone() };
        let other = if status { sent } else { old };
        match other.get("status") {
            Some(status) => new["status"] = status.clone(),
            None => drop(new.as_object_mut().unwrap().remove("status")),
        }
        for field in ["uid", "creationTimestamp", "resourceVersion", "deletionTimestamp"] {
            match old["metadata"].get(field) {
                Some(kept) => new["metadata"][field] = kept.clone(),
                None => drop(new["metadata"].as_object_mut().unwrap().remove(field)),
            }
        }
        Ok(if new == *old { new } else { self.store(&key.0, new) })
    }

    fn apply(&mut self, request: &Request) -> Result<Value, Status> {
        let plural = request.resource.plural.as_ref();
        let key = (plural.to_owned(), request.namespace.clone(), request.name.clone());
        let status = request.subresource == Some("status");
        let found = self.objects.get(&key).cloned();
        let found = found.ok_or_else(|| Status::failure(404, reason::NOT_FOUND, format!("{key:?} not found")));
        match &request.verb {
            Verb::Get => found,
            Verb::Create(body) => {
                let object: Value = serde_json::from_slice(body).unwrap();
                if self.objects.contains_key(&self::key(plural, &object)) {
                    return Err(Status::failure(409, reason::ALREADY_EXISTS, "it exists"));
                }
                Ok(self.store(plural, object))
            }
            Verb::Update(body) => {
                let sent: Value = serde_json::from_slice(body).unwrap();
                self.replace(&key, &found?, &sent, status)
            }
            Verb::Patch(kind, body) => {
                let old = found?;
                let mut sent = old.clone();
                merge(&mut sent, &serde_json::from_slice(body).unwrap(), *kind);
                self.replace(&key, &old, &sent, status)
            }
            Verb::Delete(DeleteOptions { preconditions, .. }) => {
                let old = found?;
                let uid = preconditions.as_ref().and_then(|conditions| conditions.uid.as_deref());
                if uid.is_some_and(|uid| old["metadata"]["uid"] != uid) {
                    return Err(conflict());
                }
                self.delete(&key);
                Ok(old)
            }
            verb => panic!("no controller calls {verb:?} here"),
        }
    }
}

impl Server {
    pub(crate) fn set_now(&self, now: Timestamp) {
        self.0.lock().unwrap().now = now;
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.lock().unwrap().now
    }

    /// How many writes controllers have made.
    pub(crate) fn writes(&self) -> usize {
        self.0.lock().unwrap().writes
    }

    /// The version of the last write.
    pub(crate) fn revision(&self) -> String {
        self.0.lock().unwrap().revision.to_string()
    }

    /// A server with the same objects and no past: no writes, no watches.
    pub(crate) fn copy(&self) -> Server {
        let state = self.0.lock().unwrap().clone();
        Server(Mutex::new(State { events: VecDeque::new(), writes: 0, fault: None, trouble: None, ..state }))
    }

    /// Lets a fault happen at the nth write from the start, counted from 1.
    pub(crate) fn plan(&self, write: usize, fault: Fault) {
        self.0.lock().unwrap().fault = Some((write, fault));
    }

    /// Lets a fault happen at the next write.
    pub(crate) fn plan_next(&self, fault: Fault) {
        let mut state = self.0.lock().unwrap();
        state.fault = Some((state.writes + 1, fault));
    }

    pub(crate) fn take_events(&self) -> Vec<Watch> {
        std::mem::take(&mut self.0.lock().unwrap().events).into()
    }

    pub(crate) fn take_trouble(&self) -> Option<Trouble> {
        self.0.lock().unwrap().trouble.take()
    }

    pub(crate) fn list(&self, plural: &str) -> Vec<Watch> {
        let event = |object: Value| Watch {
            plural: plural.to_owned(),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
            version: text(&object["metadata"]["resourceVersion"]),
            object: Some(object),
        };
        self.objects(plural).into_iter().map(event).collect()
    }

    pub(crate) fn objects(&self, plural: &str) -> Vec<Value> {
        let state = self.0.lock().unwrap();
        state.objects.iter().filter(|(key, _)| key.0 == plural).map(|(_, object)| object.clone()).collect()
    }

    /// Every object, without what counts writes or tells the time of them.
    pub(crate) fn outcome(&self) -> Value {
        let state = self.0.lock().unwrap();
        state.objects.iter().map(|(key, object)| json!([key.0, comparable(object)])).collect()
    }

    /// The object of this name, wherever it is.
    pub(crate) fn find(&self, plural: &str, name: &str) -> Option<Value> {
        let state = self.0.lock().unwrap();
        let mut found = state.objects.iter().filter(|(key, _)| key.0 == plural && key.2 == name);
        found.next().map(|(_, object)| object.clone())
    }

    /// A write of the user or of another part, to which nothing goes wrong.
    pub(crate) fn put(&self, plural: &str, object: Value) {
        self.0.lock().unwrap().store(plural, object);
    }

    /// A change by the user or another part, if the object is there.
    pub(crate) fn edit(&self, plural: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let Some(mut object) = self.find(plural, name) else { return };
        let old = object.clone();
        edit(&mut object);
        if object != old {
            self.put(plural, object);
        }
    }

    /// A deletion by the user or another part, if the object is there.
    pub(crate) fn remove(&self, plural: &str, name: &str) {
        let Some(object) = self.find(plural, name) else { return };
        self.0.lock().unwrap().delete(&key(plural, &object));
    }

    /// Answers a call; nothing when the caller dies of it.
    fn respond(&self, request: &Request) -> Option<Result<Bytes, Status>> {
        let mut state = self.0.lock().unwrap();
        let is_write = !matches!(request.verb, Verb::Get);
        state.writes += usize::from(is_write);
        let due = state.fault.filter(|(write, _)| is_write && *write == state.writes).map(|(_, fault)| fault);
        if due.is_some() {
            state.fault = None;
        }
        match due {
            Some(Fault::CrashBefore) => return None,
            Some(Fault::Conflict) => return Some(Err(conflict())),
            Some(Fault::Watch(trouble)) => state.trouble = Some(trouble),
            _ => {}
        }
        let answer = state.apply(request).map(|object| Bytes::from(object.to_string()));
        match due {
            Some(Fault::CrashAfter) => None,
            Some(Fault::LostAnswer) => Some(Err(Status::failure(0, reason::SERVICE_UNAVAILABLE, "connection lost"))),
            _ => Some(answer),
        }
    }

    /// Answers a call without a crash.
    pub(crate) fn answer(&self, request: &Request) -> Result<Bytes, Status> {
        self.respond(request).expect("only a planned crash has no answer")
    }
}

/// The object without versions, UIDs and times.
fn comparable(object: &Value) -> Value {
    match object {
        Value::Object(fields) => {
            let counts = |field: &str| {
                let end = ["Timestamp", "TransitionTime", "resourceVersion", "uid", "heartbeat"];
                end.iter().any(|end| field.ends_with(end))
            };
            let kept = fields.iter().filter(|(field, _)| !counts(field));
            kept.map(|(field, value)| (field.clone(), comparable(value))).collect()
        }
        Value::Array(items) => items.iter().map(comparable).collect(),
        other => other.clone(),
    }
}

impl Api for Server {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        match self.respond(&request) {
            Some(answer) => ready(answer).boxed(),
            None => pending().boxed(),
        }
    }
}
