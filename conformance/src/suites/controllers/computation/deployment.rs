//! The deployment and replicaset controllers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bayplan_controllers::deployment::{DeploymentController, arithmetic, status};
use bayplan_controllers::pod::Pod;
use bayplan_controllers::replicaset::ranking::deletion_order;
use bayplan_controllers::replicaset::{BURST_REPLICAS, ReplicaSetController};
use bayplan_controllers::slow_start::slow_start;
use bayplan_controllers::workload::{Deployment, ReplicaSet, Selector};
use bayplan_controllers::{Cache, Claimant, Kind, requests};
use bayplan_model::api::{Event, Request, Resource, Verb};
use bayplan_model::meta::{HasMeta, ObjectMeta, PartialObjectMetadata};
use bayplan_model::status::{Status, reason};
use bayplan_testkit::FakeApi;
use bytes::Bytes;
use futures::executor::block_on;
use futures::future::ready;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Mismatch, Outcome, Types, context, equal, fill, list, parse};

pub(super) const TYPES: Types = &[
    ("arithmetic", |case| equal(&arithmetic_answer(&case["input"], now(case)?)?, &case["expect"])),
    ("claim", |case| claim(&case["input"], &case["expect"])),
    ("deploymentSync", |case| deployment_sync(&case["input"], &case["expect"], now(case)?)),
    ("podDeletionOrder", |case| equal(&deletion_answer(&case["input"], now(case)?)?, &case["expect"])),
    ("replicaSetSync", |case| replica_set_sync(&case["input"], &case["expect"], now(case)?)),
    ("slowStart", |case| equal(&slow_start_answer(&case["input"])?, &case["expect"])),
];

/// The time of a case.
fn now(case: &Value) -> Result<Timestamp, Mismatch> {
    parse(&case["now"])
}

fn arithmetic_answer(input: &Value, now: Timestamp) -> Result<Value, Mismatch> {
    let d: Deployment = parse(&input["deployment"])?;
    let sets: Vec<Arc<ReplicaSet>> = list(&input["replicaSets"])?;
    let to_add: i32 = parse(&input["toAdd"])?;
    let new = sets.first();
    let mut answer = json!({
        "maxSurge": arithmetic::max_surge(&d),
        "maxUnavailable": arithmetic::max_unavailable(&d),
        "minAvailable": arithmetic::min_available(&d),
        "isSaturated": arithmetic::is_saturated(&d, new.map(|rs| &**rs)),
        "activeOrLatest": arithmetic::active_or_latest(new, sets.get(1..).unwrap_or_default())
                .map(|rs| rs.metadata.name.clone()),
        "status": status::calculate(&d, &sets, new.map(|rs| &**rs), now),
    });
    match arithmetic::fenceposts(&d) {
        Ok(f) => answer["fenceposts"] = json!({"surge": f.surge, "unavailable": f.unavailable}),
        Err(error) => answer["fencepostError"] = json!(error.to_string()),
    }
    if let Some(new) = new {
        match arithmetic::new_replicas(&d, &sets, new) {
            Ok(replicas) => answer["newRSNewReplicas"] = json!(replicas),
            Err(error) => answer["newRSError"] = json!(error.to_string()),
        }
    }
    let mut added = 0;
    let proportions: Vec<i32> = sets
        .iter()
        .map(|rs| {
            let share = arithmetic::proportion(rs, &d, to_add, added);
            added += share;
            share
        })
        .collect();
    answer["proportions"] = json!(proportions);
    Ok(answer)
}

fn deletion_answer(input: &Value, now: Timestamp) -> Result<Value, Mismatch> {
    let pods: Vec<Arc<Pod>> = list(&input["pods"])?;
    let related: Vec<Arc<Pod>> = list(&input["related"])?;
    let diff: usize = parse(&input["diff"])?;
    let order = deletion_order(&pods, &related, now);
    let names: Vec<&str> = order.iter().map(|ranked| ranked.pod.metadata.name.as_str()).collect();
    let victims: Vec<&str> = if diff == pods.len() {
        pods.iter().map(|pod| pod.metadata.name.as_str()).collect()
    } else {
        names.iter().take(diff).copied().collect()
    };
    Ok(json!({"order": names, "ranks": order.iter().map(|r| r.rank).collect::<Vec<_>>(), "toDelete": victims}))
}

fn slow_start_answer(input: &Value) -> Result<Value, Mismatch> {
    let (count, initial): (usize, usize) = (parse(&input["count"])?, parse(&input["initial"])?);
    let fail_after: i64 = parse(&input["failAfter"])?;
    let mut calls = 0;
    let (successes, outcome) = block_on(slow_start(count, initial, |_| {
        calls += 1;
        ready(if fail_after >= 0 && calls > fail_after { Err("boom") } else { Ok(()) })
    }));
    let mut answer = json!({"calls": calls, "successes": successes});
    if let Err(error) = outcome {
        answer["error"] = json!(error);
    }
    Ok(answer)
}

/// How the API server of a case answers.
#[derive(Default)]
struct Answers {
    /// What a GET answers.
    object: Value,
    /// What a GET fails with instead.
    get_error: Option<String>,
    /// Pod creations fail after this many.
    create_limit: Option<usize>,
}

/// An API server that accepts everything within these limits.
fn server(answers: Answers) -> FakeApi {
    let pod_creations = AtomicUsize::new(0);
    FakeApi::new(move |request| {
        let failure = |message: &str| Status::failure(500, reason::INTERNAL_ERROR, message);
        match &request.verb {
            Verb::Get => answers.get_error.as_ref().map_or(Ok(answers.object.clone()), |error| Err(failure(error))),
            Verb::Create(_) if request.resource == requests::PODS => {
                let creations = pod_creations.fetch_add(1, Ordering::Relaxed) + 1;
                match answers.create_limit {
                    Some(limit) if creations > limit => Err(failure("create limit reached")),
                    _ => Ok(json!({"metadata": {"name": format!("created-{creations}")}})),
                }
            }
            Verb::Create(body) | Verb::Update(body) => {
                serde_json::from_slice(body).map_err(|e| failure(&e.to_string()))
            }
            _ => Ok(json!({"metadata": {"name": request.name}})),
        }
    })
}

/// The patches of a resource's objects, in the recorded form.
fn patches(api: &FakeApi, resource: &Resource) -> Value {
    let patch = |call: &Request| match &call.verb {
        Verb::Patch(_, body) if call.resource == *resource => Some(json!({"name": call.name, "patch": body_of(body)})),
        _ => None,
    };
    api.calls().iter().filter_map(patch).collect()
}

fn body_of(body: &Bytes) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

/// Patches are recorded as text.
fn parse_patches(value: &Value) -> Value {
    let mut value = value.clone();
    for item in value.as_array_mut().into_iter().flatten() {
        if let Some(patch) = item["patch"].as_str().and_then(|text| serde_json::from_str(text).ok()) {
            item["patch"] = patch;
        }
    }
    value
}

fn claim(input: &Value, expect: &Value) -> Outcome {
    let controller = &input["controller"];
    let is_deployment = controller["kind"] == "Deployment";
    let selector: Selector = parse(&controller["selector"])?;
    let meta = ObjectMeta {
        name: parse(&controller["name"])?,
        namespace: "ns".into(),
        uid: parse(&controller["uid"])?,
        deletion_timestamp: (controller["deleting"] == true).then_some(Timestamp::UNIX_EPOCH),
        ..ObjectMeta::default()
    };
    let api = server(Answers {
        object: json!({"metadata": {"name": meta.name, "uid": meta.uid}}),
        get_error: controller["canAdoptError"].as_str().filter(|error| !error.is_empty()).map(Into::into),
        ..Answers::default()
    });
    let (kind, resource, object_kind, object_resource) = match is_deployment {
        true => ("Deployment", requests::DEPLOYMENTS, "ReplicaSet", requests::REPLICA_SETS),
        false => ("ReplicaSet", requests::REPLICA_SETS, "Pod", requests::PODS),
    };
    let claimant = Claimant {
        kind,
        api_version: "apps/v1",
        resource,
        meta: &meta,
        selector: &selector,
        object_kind,
        object_resource: object_resource.clone(),
    };
    let objects: Vec<Arc<PartialObjectMetadata>> = list(&input["objects"])?;
    let claims = block_on(claimant.claim(&api, objects));
    let names: Vec<&str> = claims.claimed.iter().map(|object| object.meta().name.as_str()).collect();
    let mut answer = json!({"claimed": names, "patches": patches(&api, &object_resource)});
    if let Err(error) = bayplan_controllers::Error::collect(claims.errors) {
        answer["error"] = json!(error.to_string());
    }
    let mut expect = expect.clone();
    expect["patches"] = parse_patches(&expect["patches"]);
    equal(&answer, &expect)
}

fn replica_set_sync(input: &Value, expect: &Value, now: Timestamp) -> Outcome {
    let cache = Arc::new(Cache::default());
    fill(&cache, Kind::ReplicaSet, &input["replicaSet"])?;
    fill(&cache, Kind::ReplicaSet, &input["others"])?;
    fill(&cache, Kind::Pod, &input["pods"])?;
    let burst = input["burst"].as_u64().and_then(|burst| usize::try_from(burst).ok()).unwrap_or(BURST_REPLICAS);
    let create_limit = input["createLimit"].as_u64().and_then(|limit| usize::try_from(limit).ok());
    let api = server(Answers { object: input["replicaSet"].clone(), create_limit, ..Answers::default() });
    let meta: PartialObjectMetadata = parse(&input["replicaSet"])?;
    let controller = ReplicaSetController::with_burst(cache, burst);
    let outcome = block_on(controller.reconcile(&meta.metadata.key(), context(&api, now)));
    let mut deleted: Vec<String> = Vec::new();
    let mut actions: Vec<Value> = Vec::new();
    let mut creations = 0;
    for call in api.calls() {
        match (&call.verb, call.resource == requests::PODS) {
            (Verb::Create(_), true) => creations += 1,
            (Verb::Delete(_), true) => deleted.push(call.name),
            (_, true) => {}
            (_, false) => actions.push(action(&call)),
        }
    }
    deleted.sort();
    let created = create_limit.map_or(creations, |limit| creations.min(limit));
    let mut answer = json!({
        "createCalls": creations,
        "created": created,
        "deleted": deleted,
        "actions": actions,
        "patches": patches(&api, &requests::PODS),
    });
    if let Err(error) = outcome {
        answer["error"] = json!(error.to_string());
    }
    let mut expect = expect.clone();
    expect["patches"] = parse_patches(&expect["patches"]);
    equal(&answer, &expect)
}

fn deployment_sync(input: &Value, expect: &Value, now: Timestamp) -> Outcome {
    let cache = Arc::new(Cache::default());
    fill(&cache, Kind::Deployment, &expect["deploymentIn"])?;
    fill(&cache, Kind::ReplicaSet, &expect["replicaSetsIn"])?;
    fill(&cache, Kind::Pod, &input["pods"])?;
    let api = server(Answers { object: expect["deploymentIn"].clone(), ..Answers::default() });
    let meta: PartialObjectMetadata = parse(&expect["deploymentIn"])?;
    let outcome = block_on(DeploymentController::new(cache).reconcile(&meta.metadata.key(), context(&api, now)));
    let actions: Value = api.calls().iter().map(action).collect();
    let event = |event: &Event| format!("{:?} {} {}", event.event_type, event.reason, event.note);
    let events: Vec<String> = api.events().iter().map(event).collect();
    let answer = opaque_hash(json!({"actions": actions, "events": events}))?;
    let wanted = json!({"actions": parse_patches(&expect["actions"]), "events": expect["events"]});
    let wanted = opaque_hash(wanted)?;
    let failure = outcome.err().map(|error| error.to_string());
    equal(&json!({"answer": answer, "error": failure}), &json!({"answer": wanted, "error": expect["error"]}))
}

/// A call in the form of the recorded actions.
fn action(call: &Request) -> Value {
    let mut action = json!({"resource": call.resource.plural});
    if let Some(subresource) = call.subresource {
        action["subresource"] = json!(subresource);
    }
    let verb = match &call.verb {
        Verb::Get => "get",
        Verb::List(_) => "list",
        Verb::Create(_) => "create",
        Verb::Update(_) => "update",
        Verb::Patch(..) => "patch",
        Verb::Delete(_) => "delete",
        Verb::DeleteCollection(..) => "deletecollection",
    };
    action["verb"] = json!(verb);
    match &call.verb {
        Verb::Create(body) => {
            let mut object = body_of(body);
            // Upstream's typed objects carry no kind until they are encoded.
            if let Some(map) = object.as_object_mut() {
                map.remove("kind");
                map.remove("apiVersion");
            }
            action["object"] = object;
        }
        Verb::Update(body) => action["object"] = body_of(body),
        Verb::Patch(_, body) => {
            action["name"] = json!(call.name);
            action["patch"] = body_of(body);
        }
        _ => action["name"] = json!(call.name),
    }
    action
}

/// The hash of a created ReplicaSet's template is whatever its maker chose.
fn opaque_hash(value: Value) -> Result<Value, Mismatch> {
    let created = value["actions"].as_array().into_iter().flatten().find(|action| action["verb"] == "create");
    let hash = created.and_then(|action| action["object"]["metadata"]["labels"]["pod-template-hash"].as_str());
    match hash {
        Some(hash) => Ok(serde_json::from_str(&value.to_string().replace(hash, "$HASH"))?),
        None => Ok(value),
    }
}
