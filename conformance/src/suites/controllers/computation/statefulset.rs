//! The StatefulSet controller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bayplan_controllers::statefulset::{StatefulSet, StatefulSetController, proposed};
use bayplan_controllers::{Cache, Kind, requests, revisions};
use bayplan_model::api::{Event, Request, Verb};
use bayplan_model::status::{Status, reason};
use bayplan_testkit::FakeApi;
use futures::executor::block_on;
use serde_json::{Value, json};

use super::{Mismatch, Outcome, Types, context, equal, fill, parse};

pub(super) const TYPES: Types = &[("statefulSetRevision", revision), ("statefulSetSync", sync)];

/// The name and bytes of a revision.
fn revision(case: &Value) -> Outcome {
    let input = &case["input"];
    let set: StatefulSet = parse(&input["statefulSet"])?;
    let collisions: Option<i32> = parse(&input["collisionCount"])?;
    let revision = proposed(&set, parse(&input["revision"])?, collisions.unwrap_or(0));
    let answer = json!({
        "name": revision.metadata.name,
        "labels": revision.metadata.labels,
        "dataRaw": revisions::raw(&revision.data),
    });
    equal(&answer, &case["expect"])
}

/// The objects of a case by resource and name; what is written to claims is in the cache at once, as it was for the
/// recorder.
struct Server {
    cache: Arc<Cache>,
    objects: Mutex<BTreeMap<(String, String), Value>>,
}

impl Server {
    fn new(cache: &Arc<Cache>, input: &Value) -> Self {
        let mut objects = BTreeMap::new();
        let kinds = [("pods", "pods"), ("persistentVolumeClaims", "persistentvolumeclaims")];
        for (field, plural) in kinds.into_iter().chain([("controllerRevisions", "controllerrevisions")]) {
            for object in input[field].as_array().into_iter().flatten() {
                objects.insert((plural.to_owned(), name_of(object)), object.clone());
            }
        }
        Server { cache: cache.clone(), objects: Mutex::new(objects) }
    }

    fn answer(&self, request: &Request) -> Result<Value, Status> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let plural = request.resource.plural.to_string();
        let key = (plural, request.name.clone());
        let missing = || Status::failure(404, reason::NOT_FOUND, format!("{} not found", request.name));
        match &request.verb {
            Verb::Get => objects.get(&key).cloned().ok_or_else(missing),
            Verb::Delete(_) => objects.remove(&key).ok_or_else(missing),
            Verb::Create(body) | Verb::Update(body) => {
                let object: Value = serde_json::from_slice(body).unwrap_or_default();
                if request.resource == requests::PERSISTENT_VOLUME_CLAIMS {
                    let stored = self.cache.set(Kind::VolumeClaim, body);
                    stored.map_err(|error| Status::failure(500, reason::INTERNAL_ERROR, error.to_string()))?;
                }
                if request.subresource.is_none() {
                    objects.insert((key.0, name_of(&object)), object.clone());
                }
                Ok(object)
            }
            _ => Ok(json!({"metadata": {"name": request.name}})),
        }
    }

    fn revisions(&self) -> Vec<Value> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let revisions = objects.iter().filter(|((plural, _), _)| plural == "controllerrevisions");
        revisions.map(|((_, name), object)| json!({"name": name, "revision": object["revision"]})).collect()
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// One reconcile: what it writes and says.
fn sync(case: &Value) -> Outcome {
    let (input, expect) = (&case["input"], &case["expect"]);
    let cache = Arc::new(Cache::default());
    fill(&cache, Kind::StatefulSet, &input["statefulSet"])?;
    fill(&cache, Kind::Pod, &input["pods"])?;
    fill(&cache, Kind::ControllerRevision, &input["controllerRevisions"])?;
    fill(&cache, Kind::VolumeClaim, &input["persistentVolumeClaims"])?;
    let server = Arc::new(Server::new(&cache, input));
    let answers = server.clone();
    let api = FakeApi::new(move |request| answers.answer(request));
    let now = parse(&input["now"])?;
    let key = format!("ns/{}", name_of(&input["statefulSet"]));
    let outcome = block_on(StatefulSetController::new(cache).reconcile(&key, context(&api, now)));
    outcome.map_err(|error| Mismatch::Unreadable(error.to_string()))?;
    let calls = api.calls();
    let status = calls.iter().find_map(|call| match &call.verb {
        Verb::Update(body) if call.subresource == Some("status") => serde_json::from_slice::<Value>(body).ok(),
        _ => None,
    });
    let mut writes: Vec<Value> = calls.iter().filter_map(write).collect();
    let event = |event: &Event| format!("{:?} {} {}", event.event_type, event.reason, event.note);
    let mut events: Vec<String> = api.events().iter().map(event).collect();
    let mut expect = expect.clone();
    if expect["writesUnordered"] == true {
        // The recorder sorted by the text of its own form.
        let by_text = |write: &Value| write.to_string();
        writes.sort_by_key(by_text);
        events.sort();
        if let Some(expected) = expect["writes"].as_array_mut() {
            expected.sort_by_key(by_text);
        }
    }
    let known = &input["statefulSet"]["status"];
    let answer = json!({
        "controllerRevisions": server.revisions(),
        "events": events,
        "status": status.as_ref().map_or_else(|| known.clone(), |set| set["status"].clone()),
        "statusWritten": status.is_some(),
        "writes": writes,
        "writesUnordered": expect["writesUnordered"],
    });
    equal(&answer, &expect)
}

/// A write of a pod or claim in the recorded form.
fn write(call: &Request) -> Option<Value> {
    let plural = call.resource.plural.as_ref();
    if !["pods", "persistentvolumeclaims"].contains(&plural) {
        return None;
    }
    let (verb, body) = match &call.verb {
        Verb::Create(body) => ("create", body),
        Verb::Update(body) => ("update", body),
        Verb::Delete(_) => return Some(json!({"verb": "delete", "resource": plural, "name": call.name})),
        _ => return None,
    };
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut write = json!({"verb": verb, "resource": plural, "name": name_of(&object)});
    match (verb, plural) {
        ("create", "pods") => {
            let volumes = object["spec"]["volumes"].as_array().into_iter().flatten();
            let claims = volumes.filter_map(|volume| {
                let claim = volume.pointer("/persistentVolumeClaim/claimName")?.as_str()?;
                Some(format!("{}={claim}", volume["name"].as_str().unwrap_or_default()))
            });
            write["claims"] = claims.collect();
            write["hostname"] = object["spec"]["hostname"].clone();
            write["subdomain"] = object["spec"]["subdomain"].clone();
            write["image"] = object["spec"]["containers"][0]["image"].clone();
            write["labels"] = object["metadata"]["labels"].clone();
        }
        ("update", "persistentvolumeclaims") => {
            let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let text = |owner: &Value, field: &str| owner[field].as_str().unwrap_or_default().to_owned();
            write["owners"] = owners.map(|owner| format!("{}/{}", text(owner, "kind"), text(owner, "name"))).collect();
        }
        _ => write["labels"] = object["metadata"]["labels"].clone(),
    }
    Some(write)
}
