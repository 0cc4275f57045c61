//! A small world around a fleet: the objects of an API server, a clock, and a log of every request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{Request, Verb};
use bayplan_model::delta::Delta;
use bayplan_model::status::{Status, reason};
use bayplan_sim::{Effect, Event, Fleet, FleetConfig, NodeView, PodView};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const START: i64 = 1_767_225_600;

/// Objects by path, a clock, and a log of every request.
pub(crate) struct World {
    pub(crate) fleet: Fleet,
    pub(crate) now: Timestamp,
    pub(crate) objects: BTreeMap<String, Value>,
    pub(crate) log: Vec<(Duration, Request)>,
    /// Requests are answered at once unless this holds them back.
    pub(crate) held: Option<Vec<Effect>>,
}

impl World {
    pub(crate) fn new(config: FleetConfig) -> Self {
        let now = Timestamp::from_second(START).unwrap();
        let mut world =
            World { fleet: Fleet::new(config).unwrap(), now, objects: BTreeMap::new(), log: Vec::new(), held: None };
        let effects = world.fleet.start(now);
        world.serve(effects);
        world
    }

    pub(crate) fn small() -> Self {
        Self::new(FleetConfig { nodes: 2, ..Default::default() })
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now.duration_since(Timestamp::from_second(START).unwrap()).try_into().unwrap()
    }

    pub(crate) fn serve(&mut self, effects: Vec<Effect>) {
        let mut queue = std::collections::VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            if let Some(held) = &mut self.held {
                held.push(effect);
                continue;
            }
            self.log.push((self.elapsed(), effect.request.clone()));
            let (answer, event) = self.apply(&effect.request);
            queue.extend(self.fleet.answered(&effect.ticket, answer.as_deref(), self.now));
            if let Some(event) = event {
                queue.extend(self.fleet.handle(event, self.now));
            }
        }
    }

    /// Does what an API server would, as far as these tests look.
    fn apply(&mut self, request: &Request) -> (Result<Vec<u8>, Status>, Option<Event>) {
        let not_found = || (Err(Status::failure(404, reason::NOT_FOUND, "not found")), None);
        let mut path = path(request);
        match &request.verb {
            Verb::Create(body) => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                path.push_str(object["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&path) {
                    return (Err(Status::failure(409, reason::ALREADY_EXISTS, "there")), None);
                }
                object["metadata"]["uid"] = format!("uid-{path}").into();
                self.objects.insert(path.clone(), object.clone());
                (Ok(Vec::new()), event(&path, object))
            }
            Verb::Patch(_, patch) => {
                let patch: Value = serde_json::from_slice(patch).unwrap();
                let Some(object) = self.objects.get_mut(&path) else { return not_found() };
                merge(object, &patch);
                let object = object.clone();
                (Ok(Vec::new()), event(&path, object))
            }
            Verb::Delete(options) => {
                assert_eq!(options.grace_period_seconds, Some(0));
                let wanted = options.preconditions.clone().unwrap().uid.unwrap();
                let Some(object) = self.objects.remove(&path) else { return not_found() };
                assert_eq!(object["metadata"]["uid"], wanted);
                (Ok(Vec::new()), Some(Event::Pod(Delta::Deleted(Arc::new(serde_json::from_value(object).unwrap())))))
            }
            Verb::Get => match self.objects.get(&path) {
                Some(object) => (Ok(serde_json::to_vec(object).unwrap()), None),
                None => not_found(),
            },
            other => panic!("{other:?}"),
        }
    }

    /// The events since the last time, by reason and note.
    pub(crate) fn told(&mut self) -> Vec<String> {
        self.fleet.take_events().into_iter().map(|event| format!("{} {}", event.reason, event.note)).collect()
    }

    /// Lets time pass until every deadline before the end has been served.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + SignedDuration::try_from(time).unwrap();
        loop {
            let (effects, next) = self.fleet.tick(self.now);
            self.serve(effects);
            match next.into_iter().chain(self.fleet.next_deadline()).min().filter(|next| *next <= end) {
                Some(next) => self.now = next.max(self.now),
                None => break,
            }
        }
        self.now = end;
    }

    /// A user or another component changes an object (or makes it).
    pub(crate) fn put(&mut self, path: &str, object: Value) {
        self.objects.insert(path.into(), object.clone());
        let effects = self.fleet.handle(event(path, object).unwrap(), self.now);
        self.serve(effects);
    }

    pub(crate) fn change(&mut self, path: &str, patch: Value) {
        let mut object = self.objects[path].clone();
        merge(&mut object, &patch);
        self.put(path, object);
    }

    pub(crate) fn bind(&mut self, name: &str, node: &str, more: Value) {
        let mut pod = json!({
            "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": 1 },
            "spec": {
                "nodeName": node, "restartPolicy": "Always",
                "containers": [{ "name": "main", "image": "nginx" }],
            },
            "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "True" }] },
        });
        merge(&mut pod, &more);
        self.put(&format!("shop/pods/{name}"), pod);
    }

    pub(crate) fn delete(&mut self, name: &str, grace: i64) {
        let deletion = json!({ "deletionTimestamp": self.now.to_string(), "deletionGracePeriodSeconds": grace });
        self.change(&format!("shop/pods/{name}"), json!({ "metadata": deletion }));
    }

    pub(crate) fn delete_node(&mut self, name: &str) {
        let node = self.objects.remove(&format!("/nodes/{name}")).unwrap();
        let effects =
            self.fleet.handle(Event::Node(Delta::Deleted(Arc::new(serde_json::from_value(node).unwrap()))), self.now);
        self.serve(effects);
    }

    pub(crate) fn pod(&self, name: &str) -> &Value {
        &self.objects[&format!("shop/pods/{name}")]["status"]
    }

    pub(crate) fn has_pod(&self, name: &str) -> bool {
        self.objects.contains_key(&format!("shop/pods/{name}"))
    }

    /// What was asked about one object, with the time and the gist of it.
    pub(crate) fn trace(&self, name: &str) -> Vec<String> {
        let gist = |(at, request): &(Duration, Request)| {
            let what = match &request.verb {
                Verb::Patch(_, patch) => {
                    let status = serde_json::from_slice::<Value>(patch).unwrap()["status"].clone();
                    let init = states(&status["initContainerStatuses"]);
                    let main = states(&status["containerStatuses"]);
                    format!("{} {init}{main}", status["phase"].as_str().unwrap_or("?"))
                }
                Verb::Delete(_) => "DELETE".into(),
                other => panic!("{other:?}"),
            };
            format!("{}ms {what}", at.as_millis())
        };
        self.log.iter().filter(|(_, request)| request.name == name).map(gist).collect()
    }

    pub(crate) fn count(&self, of: impl Fn(&Request) -> bool) -> usize {
        self.log.iter().filter(|(_, request)| of(request)).count()
    }
}

fn path(request: &Request) -> String {
    format!("{}/{}/{}", request.namespace, request.resource.plural, request.name)
}

pub(crate) fn event(path: &str, object: Value) -> Option<Event> {
    if path.contains("/pods/") {
        return Some(Event::Pod(Delta::Added(Arc::new(serde_json::from_value::<PodView>(object).unwrap()))));
    }
    let node = || Arc::new(serde_json::from_value::<NodeView>(object).unwrap());
    path.contains("/nodes/").then(|| Event::Node(Delta::Added(node())))
}

/// Merges a patch as the API server does, lists of conditions by their type.
pub(crate) fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    for (field, value) in patch {
        if let (Value::Null, Value::Object(fields)) = (value, &mut *into) {
            fields.remove(field);
            continue;
        }
        match (&mut into[field], value) {
            (Value::Array(old), Value::Array(new)) if field == "conditions" => {
                for condition in new {
                    if condition["$patch"] == "delete" {
                        old.retain(|known| known["type"] != condition["type"]);
                        continue;
                    }
                    match old.iter_mut().find(|c| c["type"] == condition["type"]) {
                        Some(known) => merge(known, condition),
                        None => old.push(condition.clone()),
                    }
                }
            }
            (slot @ Value::Object(_), value) => merge(slot, value),
            (slot, value) => *slot = value.clone(),
        }
    }
}

pub(crate) fn states(statuses: &Value) -> String {
    let one = |status: &Value| {
        let (kind, state) = status["state"].as_object().unwrap().iter().next().unwrap();
        let detail = state["reason"].as_str().unwrap_or(kind);
        let restarts = status["restartCount"].as_u64().unwrap();
        format!("[{detail}{}]", if restarts > 0 { format!(" x{restarts}") } else { String::new() })
    };
    statuses.as_array().into_iter().flatten().map(one).collect()
}

pub(crate) fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind).unwrap()
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
