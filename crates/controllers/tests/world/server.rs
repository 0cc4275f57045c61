//! The API server of the small world: optimistic concurrency, generations, watches; and one fault at one write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::api::{Api, Request, Verb};
use bayplan_model::status::{Status, reason};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, pending, ready};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{is_over, is_ready};

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
    /// Creations of what was there already.
    creations_refused: usize,
    pods_created: usize,
    fault: Option<(usize, Fault)>,
    trouble: Option<Trouble>,
    /// Pods that are not running yet, by creation.
    starting: BTreeSet<(Timestamp, String)>,
    /// Whether running pods take a while to stop.
    graceful: bool,
    /// Pods that are stopping, by deletion.
    stopping: BTreeSet<(Timestamp, String)>,
}

/// The namespace of all objects of a resource.
pub(crate) fn namespace(plural: &str) -> &'static str {
    if plural == "nodes" { "" } else { "ns" }
}

/// The server.
#[derive(Default)]
pub(crate) struct Server(Mutex<State>);

impl Server {
    /// A server that keeps a running pod until its kubelet has stopped it.
    pub(crate) fn with_graceful_deletion() -> Self {
        Server(Mutex::new(State { graceful: true, ..State::default() }))
    }

    pub(crate) fn set_now(&self, now: Timestamp) {
        self.0.lock().unwrap().now = now;
    }

    /// How many writes controllers have made.
    pub(crate) fn writes(&self) -> usize {
        self.0.lock().unwrap().writes
    }

    /// How many of the writes wanted to create what was there already.
    pub(crate) fn creations_refused(&self) -> usize {
        self.0.lock().unwrap().creations_refused
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
        Server(Mutex::new(State { creations_refused: 0, ..fresh }))
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

    /// When the oldest pod that is not running yet was created.
    pub(crate) fn next_pod_start(&self) -> Option<Timestamp> {
        self.0.lock().unwrap().starting.first().map(|(created, _)| *created)
    }

    /// The pods that are not running yet and were created by then.
    pub(crate) fn pods_created_before(&self, time: Timestamp) -> Vec<Value> {
        let state = self.0.lock().unwrap();
        let due = state.starting.iter().take_while(|(created, _)| *created <= time);
        due.map(|(_, name)| state.objects[&("pods".to_owned(), name.clone())].object.clone()).collect()
    }

    /// When the first of the pods that are stopping was deleted.
    pub(crate) fn next_pod_stop(&self) -> Option<Timestamp> {
        self.0.lock().unwrap().stopping.first().map(|(deleted, _)| *deleted)
    }

    /// The kubelets have stopped what was deleted by then.
    pub(crate) fn stop_pods_deleted_before(&self, time: Timestamp) {
        let mut state = self.0.lock().unwrap();
        while let Some((_, name)) = state.stopping.first().filter(|(deleted, _)| *deleted <= time).cloned() {
            state.remove("pods", &name);
        }
    }

    /// Whether a claim outlived the pod that owns it.
    pub(crate) fn has_garbage(&self) -> bool {
        !self.0.lock().unwrap().garbage().is_empty()
    }

    /// Deletes the claims that outlived the pod that owns them.
    pub(crate) fn collect_garbage(&self) {
        let mut state = self.0.lock().unwrap();
        for name in state.garbage() {
            state.remove("persistentvolumeclaims", &name);
        }
    }

    /// The user deletes a pod.
    pub(crate) fn delete_pod(&self, name: &str) {
        let mut state = self.0.lock().unwrap();
        if state.objects.contains_key(&("pods".to_owned(), name.to_owned())) {
            state.delete_pod(name);
        }
    }

    /// A pod ends by itself.
    pub(crate) fn end_pod(&self, name: &str, phase: &str) {
        let mut state = self.0.lock().unwrap();
        let Some(stored) = state.objects.get(&("pods".to_owned(), name.to_owned())) else { return };
        let mut pod = stored.object.clone();
        if is_ready(&pod) {
            pod["status"] = json!({"phase": phase});
            state.store("pods", pod);
        }
    }

    /// A write of the user or of a kubelet, to which nothing goes wrong.
    pub(crate) fn put(&self, plural: &str, object: Value) {
        self.0.lock().unwrap().store(plural, object);
    }

    /// A deletion by the user, a kubelet or the garbage collector.
    pub(crate) fn remove(&self, plural: &str, name: &str) {
        let mut state = self.0.lock().unwrap();
        if state.objects.contains_key(&(plural.to_owned(), name.to_owned())) {
            state.remove(plural, name);
        }
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
            let created = metadata["creationTimestamp"].as_str().unwrap().parse().unwrap();
            let entry = (created, name.clone());
            match is_ready(&object) || is_over(&object) {
                true => self.starting.remove(&entry),
                false => self.starting.insert(entry),
            };
        }
        let json = Bytes::from(object.to_string());
        self.objects.insert((plural.into(), name.clone()), Arc::new(Stored { object, json: json.clone() }));
        let version = self.revision.to_string();
        self.events.push_back(Watch { plural: plural.into(), name, version, object: Some(json.clone()) });
        json
    }

    fn remove(&mut self, plural: &str, name: &str) {
        let gone = self.objects.remove(&(plural.to_owned(), name.to_owned())).unwrap();
        if plural == "pods" {
            let time = |field: &str| gone.object["metadata"][field].as_str().map(|time| time.parse().unwrap());
            self.starting.remove(&(time("creationTimestamp").unwrap(), name.to_owned()));
            if let Some(deleted) = time("deletionTimestamp") {
                self.stopping.remove(&(deleted, name.to_owned()));
            }
        }
        self.revision += 1;
        let version = self.revision.to_string();
        self.events.push_back(Watch { plural: plural.into(), name: name.into(), version, object: None });
    }

    /// Deletes a pod; one that runs is gone once its kubelet has stopped it.
    fn delete_pod(&mut self, name: &str) {
        let mut pod = self.objects[&("pods".to_owned(), name.to_owned())].object.clone();
        if !self.graceful || !is_ready(&pod) {
            self.remove("pods", name);
        } else if pod["metadata"]["deletionTimestamp"].is_null() {
            let now = Timestamp::from_second(self.now.as_second()).unwrap();
            pod["metadata"]["deletionTimestamp"] = json!(now);
            self.stopping.insert((now, name.to_owned()));
            self.store("pods", pod);
        }
    }

    /// The claims whose owner is a pod that is gone.
    fn garbage(&self) -> Vec<String> {
        let pods = self.objects.iter().filter(|((plural, _), _)| plural == "pods");
        let living: BTreeSet<&str> = pods.filter_map(|(_, pod)| pod.object["metadata"]["uid"].as_str()).collect();
        let claims = self.objects.iter().filter(|((plural, _), _)| plural == "persistentvolumeclaims");
        let orphaned = claims.filter(|(_, claim)| {
            let owner = &claim.object["metadata"]["ownerReferences"][0];
            owner["kind"] == "Pod" && !living.contains(owner["uid"].as_str().unwrap())
        });
        orphaned.map(|((_, name), _)| name.clone()).collect()
    }

    /// Replaces an object without status; what the server keeps of it stays.
    fn replace(&mut self, plural: &str, stored: &Stored, mut new: Value) -> Bytes {
        let old = &stored.object;
        for field in ["uid", "creationTimestamp", "namespace", "generation", "resourceVersion", "generateName"] {
            match old["metadata"].get(field) {
                Some(kept) => new["metadata"][field] = kept.clone(),
                None => drop(new["metadata"].as_object_mut().unwrap().remove(field)),
            }
        }
        if new == *old {
            return stored.json.clone();
        }
        let content = |object: &Value| {
            let labels = &object["metadata"]["labels"];
            json!([object["endpoints"], object["ports"], object["subsets"], labels])
        };
        if content(&new) != content(old) {
            new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap() + 1);
        }
        self.store(plural, new)
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
                    self.creations_refused += 1;
                    return Err(Status::failure(409, reason::ALREADY_EXISTS, format!("{plural} \"{name}\" exists")));
                }
                if plural == "pods" {
                    self.pods_created += 1;
                    object["status"] = json!({"phase": "Pending"});
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
                if plural == "endpoints" || plural == "endpointslices" {
                    return Ok(self.replace(plural, &stored, sent));
                }
                let mut new = old.clone();
                if let Some(annotations) = sent["metadata"].get("annotations") {
                    new["metadata"]["annotations"] = annotations.clone();
                }
                for field in ["labels", "ownerReferences"] {
                    if let ("pods" | "persistentvolumeclaims", Some(sent)) = (plural, sent["metadata"].get(field)) {
                        new["metadata"][field] = sent.clone();
                    }
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
            Verb::Delete(options) => {
                let stored = found.ok_or_else(missing)?;
                assert_eq!(options.grace_period_seconds, None, "no controller here kills at once");
                if plural == "pods" {
                    self.delete_pod(&request.name)
                } else {
                    self.remove(plural, &request.name)
                }
                Ok(stored.json.clone())
            }
            verb => panic!("no controller calls {verb:?} here"),
        }
    }
}

impl Server {
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
