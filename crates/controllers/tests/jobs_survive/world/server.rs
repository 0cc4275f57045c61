//! The API server of the small world: optimistic concurrency, generations, watches; and one fault at one write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::api::{Api, Request, Verb, encode};
use bayplan_model::label_selector::Selector;
use bayplan_model::status::{Status, reason};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, pending, ready};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::jobs::{self, Released};

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
    pub(crate) plural: &'static str,
    /// Its events are lost until it lists again, and not only late.
    pub(crate) lost: bool,
    /// It ends after this time, when there is nothing else left to do.
    pub(crate) lasts: Duration,
}

/// One watch event; without an object, the object is gone.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) plural: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) object: Option<Bytes>,
}

/// An object, encoded once for every answer and watch event that carries this version of it.
struct Stored {
    object: Value,
    json: Bytes,
}

#[derive(Clone, Default)]
struct State {
    objects: BTreeMap<(String, String), Arc<Stored>>,
    revision: u64,
    events: VecDeque<Watch>,
    now: Timestamp,
    writes: usize,
    pods_created: usize,
    fault: Option<(usize, Fault)>,
    trouble: Option<Trouble>,
    /// The pods that a kubelet will change, by time.
    due: BTreeSet<(Timestamp, String)>,
    /// Whether pods belong to Jobs: they end, and they go when their finalizers are gone.
    of_jobs: bool,
    /// The pods that Jobs have let go.
    released: Vec<Released>,
    /// Every Job that controllers have created, by name.
    jobs_created: Vec<String>,
}

/// The namespace of all objects of a resource.
pub(crate) fn namespace(plural: &str) -> &'static str {
    if plural == "nodes" { "" } else { "ns" }
}

/// The server.
#[derive(Default)]
pub(crate) struct Server(Mutex<State>);

impl Server {
    /// A server of Jobs.
    pub(crate) fn of_jobs() -> Self {
        Server(Mutex::new(State { of_jobs: true, ..State::default() }))
    }

    /// The pods that Jobs have let go so far.
    pub(crate) fn released(&self) -> Vec<Released> {
        self.0.lock().unwrap().released.clone()
    }

    /// The names of all Jobs that controllers have created.
    pub(crate) fn jobs_created(&self) -> Vec<String> {
        self.0.lock().unwrap().jobs_created.clone()
    }

    pub(crate) fn set_now(&self, now: Timestamp) {
        self.0.lock().unwrap().now = now;
    }

    /// How many writes controllers have made.
    pub(crate) fn writes(&self) -> usize {
        self.0.lock().unwrap().writes
    }

    /// How many pods controllers have created.
    pub(crate) fn pods_created(&self) -> usize {
        self.0.lock().unwrap().pods_created
    }

    /// The version of the last write.
    pub(crate) fn revision(&self) -> String {
        self.0.lock().unwrap().revision.to_string()
    }

    /// A server with the same objects and no past: no writes, no watches.
    pub(crate) fn copy(&self) -> Server {
        let state = self.0.lock().unwrap().clone();
        let fresh = State { events: VecDeque::new(), writes: 0, pods_created: 0, fault: None, trouble: None, ..state };
        Server(Mutex::new(fresh))
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

    pub(crate) fn take_watch_events(&self) -> Vec<Watch> {
        std::mem::take(&mut self.0.lock().unwrap().events).into()
    }

    pub(crate) fn take_watch_trouble(&self) -> Option<Trouble> {
        self.0.lock().unwrap().trouble.take()
    }

    pub(crate) fn list(&self) -> Vec<Watch> {
        let state = self.0.lock().unwrap();
        let event = |((plural, name), stored): (&(String, String), &Arc<Stored>)| Watch {
            plural: plural.clone(),
            name: name.clone(),
            version: stored.object["metadata"]["resourceVersion"].as_str().unwrap().into(),
            object: Some(stored.json.clone()),
        };
        state.objects.iter().map(event).collect()
    }

    pub(crate) fn objects(&self, plural: &str) -> Vec<Value> {
        let state = self.0.lock().unwrap();
        state.objects.iter().filter(|((p, _), _)| p == plural).map(|(_, stored)| stored.object.clone()).collect()
    }

    /// When a kubelet next changes a pod.
    pub(crate) fn next_change_of_a_pod(&self) -> Option<Timestamp> {
        self.0.lock().unwrap().due.first().map(|(at, _)| *at)
    }

    /// The pods that a kubelet changes by then.
    pub(crate) fn pods_due(&self, time: Timestamp) -> Vec<Value> {
        let state = self.0.lock().unwrap();
        let due = state.due.iter().take_while(|(at, _)| *at <= time);
        due.map(|(_, name)| state.objects[&("pods".to_owned(), name.clone())].object.clone()).collect()
    }

    /// A write of the user or of a kubelet, to which nothing goes wrong.
    pub(crate) fn put(&self, plural: &str, object: Value) {
        self.0.lock().unwrap().store(plural, object);
    }

    /// An object goes, as far as its finalizers let it.
    pub(crate) fn remove(&self, plural: &str, name: &str) {
        self.0.lock().unwrap().remove(plural, name);
    }

    /// A change of the user.
    pub(crate) fn edit(&self, plural: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut state = self.0.lock().unwrap();
        let mut object = state.objects[&(plural.to_owned(), name.to_owned())].object.clone();
        edit(&mut object);
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        object["metadata"]["generation"] = json!(generation);
        state.store(plural, object);
    }
}

impl State {
    fn store(&mut self, plural: &str, mut object: Value) -> Bytes {
        self.revision += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.revision.to_string());
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{}", self.revision));
            if !namespace(plural).is_empty() {
                metadata["namespace"] = json!(namespace(plural));
            }
            metadata["creationTimestamp"] = json!(Timestamp::from_second(self.now.as_second()).unwrap());
            metadata["generation"] = json!(1);
        }
        let name = metadata["name"].as_str().unwrap().to_owned();
        if plural == "pods" {
            self.forget_due(&name);
            self.due.extend(self.due_of(&object).map(|at| (at, name.clone())));
        }
        let json = Bytes::from(object.to_string());
        self.objects.insert((plural.into(), name.clone()), Arc::new(Stored { object, json: json.clone() }));
        let version = self.revision.to_string();
        self.events.push_back(Watch { plural: plural.into(), name, version, object: Some(json.clone()) });
        json
    }

    fn apply(&mut self, request: &Request) -> Result<Bytes, Status> {
        let plural = request.resource.plural.as_ref();
        let key = (plural.to_owned(), request.name.clone());
        let found = self.objects.get(&key).cloned();
        let missing = || Status::failure(404, reason::NOT_FOUND, format!("{plural} \"{}\" not found", request.name));
        match &request.verb {
            Verb::Get => found.map(|stored| stored.json.clone()).ok_or_else(missing),
            Verb::Create(body) => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                if object["metadata"]["name"].is_null() {
                    let prefix = object["metadata"]["generateName"].as_str().unwrap();
                    object["metadata"]["name"] = json!(format!("{prefix}{}", self.revision));
                }
                let name = object["metadata"]["name"].as_str().unwrap();
                if self.objects.contains_key(&(plural.to_owned(), name.to_owned())) {
                    return Err(Status::failure(409, reason::ALREADY_EXISTS, format!("{plural} \"{name}\" exists")));
                }
                self.pods_created += usize::from(plural == "pods");
                if self.of_jobs {
                    self.note_created(plural, &mut object);
                }
                Ok(self.store(plural, object))
            }
            Verb::Update(body) => {
                let stored = found.ok_or_else(missing)?;
                let old = &stored.object;
                let sent: Value = serde_json::from_slice(body).unwrap();
                if sent["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"] {
                    return Err(Status::failure(409, reason::CONFLICT, "the object has been modified"));
                }
                let mut new = old.clone();
                if let Some(annotations) = sent["metadata"].get("annotations") {
                    new["metadata"]["annotations"] = annotations.clone();
                }
                match (plural, request.subresource) {
                    ("controllerrevisions", _) => new["revision"] = sent["revision"].clone(),
                    (_, Some("status")) => new["status"] = sent["status"].clone(),
                    _ => new["spec"] = sent["spec"].clone(),
                }
                if new["spec"] != old["spec"] {
                    new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap() + 1);
                }
                if new == *old { Ok(stored.json.clone()) } else { Ok(self.store(plural, new)) }
            }
            Verb::Delete(_) => {
                let gone = found.ok_or_else(missing)?;
                match self.of_jobs {
                    true => self.remove(plural, &request.name),
                    false => self.erase(plural, &request.name),
                }
                Ok(gone.json.clone())
            }
            Verb::Patch(_, patch) => {
                let stored = found.ok_or_else(missing)?;
                let patch: Value = serde_json::from_slice(patch).unwrap();
                self.patch(plural, &stored.object, &patch)
            }
            Verb::List(options) => {
                let selector = Selector::parse(&options.label_selector).unwrap();
                let selected = |object: &&Value| {
                    let labels = serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
                    selector.matches::<BTreeMap<String, String>>(&labels)
                };
                let objects = self.objects.iter().filter(|((p, _), _)| p == plural).map(|(_, stored)| &stored.object);
                let items: Vec<&Value> = objects.filter(selected).collect();
                Ok(encode(&json!({"items": items})))
            }
            verb => panic!("no controller calls {verb:?} here"),
        }
    }

    /// When a kubelet next changes a pod.
    fn due_of(&self, pod: &Value) -> Option<Timestamp> {
        if self.of_jobs { jobs::due(pod) } else { super::due(pod) }
    }

    fn forget_due(&mut self, pod: &str) {
        let known = self.objects.get(&("pods".to_owned(), pod.to_owned()));
        if let Some(at) = known.and_then(|known| self.due_of(&known.object)) {
            self.due.remove(&(at, pod.to_owned()));
        }
    }

    /// Removes an object for good.
    fn erase(&mut self, plural: &str, name: &str) {
        if plural == "pods" {
            self.forget_due(name);
        }
        if self.objects.remove(&(plural.to_owned(), name.to_owned())).is_none() {
            return;
        }
        self.revision += 1;
        let version = self.revision.to_string();
        self.events.push_back(Watch { plural: plural.into(), name: name.into(), version, object: None });
    }

    /// The part of the server in a world of Jobs: a pod that runs or is held by a finalizer stays a while, and the pods
    /// of a Job that is gone go too.
    fn remove(&mut self, plural: &str, name: &str) {
        let Some(stored) = self.objects.get(&(plural.to_owned(), name.to_owned())).cloned() else { return };
        let mut object = stored.object.clone();
        if plural == "pods" && (jobs::is_held(&object) || jobs::runs(&object)) {
            if object["metadata"]["deletionTimestamp"].is_null() {
                object["metadata"]["deletionTimestamp"] = json!(Timestamp::from_second(self.now.as_second()).unwrap());
                object["metadata"]["deletionGracePeriodSeconds"] = json!(30);
                self.store(plural, object);
            }
            return;
        }
        self.erase(plural, name);
        if plural == "jobs" {
            let owned = |pod: &Value| pod["metadata"]["ownerReferences"][0]["uid"] == object["metadata"]["uid"];
            let pods = self.objects.iter().filter(|((p, _), pod)| p == "pods" && owned(&pod.object));
            let names: Vec<String> = pods.map(|((_, name), _)| name.clone()).collect();
            names.iter().for_each(|name| self.remove("pods", name));
        }
    }

    fn note_created(&mut self, plural: &str, object: &mut Value) {
        match plural {
            "pods" => object["metadata"]["annotations"]["ordinal"] = json!(self.pods_created.to_string()),
            _ => self.jobs_created.push(object["metadata"]["name"].as_str().unwrap().to_owned()),
        }
        if plural == "jobs" {
            jobs::select_own_pods(object);
        }
    }

    /// The one patch that Jobs send: a pod is let go.
    fn patch(&mut self, plural: &str, old: &Value, patch: &Value) -> Result<Bytes, Status> {
        let wanted = &patch["metadata"]["resourceVersion"];
        if !wanted.is_null() && *wanted != old["metadata"]["resourceVersion"] {
            return Err(Status::failure(409, reason::CONFLICT, "the object has been modified"));
        }
        let gone =
            patch["metadata"]["$deleteFromPrimitiveList/finalizers"].as_array().expect("nothing else is patched");
        let mut new = old.clone();
        let held = new["metadata"]["finalizers"].as_array_mut();
        if let Some(finalizers) = held {
            finalizers.retain(|finalizer| !gone.contains(finalizer));
        }
        if jobs::is_held(old) {
            let job = jobs::owner(old).and_then(|name| self.objects.get(&("jobs".to_owned(), name)));
            self.released.push(Released::of(old, job.map(|job| &job.object)));
        }
        let stored = self.store(plural, new.clone());
        if !new["metadata"]["deletionTimestamp"].is_null() && !jobs::runs(&new) {
            self.erase(plural, new["metadata"]["name"].as_str().unwrap());
        }
        Ok(stored)
    }
}

impl Server {
    /// Answers a call; nothing when the caller dies of it.
    fn respond(&self, request: &Request) -> Option<Result<Bytes, Status>> {
        let mut state = self.0.lock().unwrap();
        let is_write = !matches!(request.verb, Verb::Get | Verb::List(_));
        state.writes += usize::from(is_write);
        let due = state.fault.filter(|(write, _)| is_write && *write == state.writes).map(|(_, fault)| fault);
        if due.is_some() {
            state.fault = None;
        }
        match due {
            Some(Fault::CrashBefore) => return None,
            Some(Fault::Conflict) => {
                return Some(Err(Status::failure(409, reason::CONFLICT, "the object has been modified")));
            }
            Some(Fault::Watch(trouble)) => state.trouble = Some(trouble),
            _ => {}
        }
        let answer = state.apply(request);
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

impl Api for Server {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        match self.respond(&request) {
            Some(answer) => ready(answer).boxed(),
            None => pending().boxed(),
        }
    }
}
