//! The EndpointSlice controller.

use std::sync::Arc;

use bayplan_controllers::endpoint_slice::EndpointSlice;
use bayplan_controllers::pod::Pod;
use bayplan_controllers::service::Service;
use bayplan_controllers::{Cache, EndpointSliceConfig, EndpointSliceController, Kind};
use bayplan_model::api::{Request, Verb};
use bayplan_testkit::FakeApi;
use futures::FutureExt;
use serde_json::{Value, json};

use super::{Mismatch, Outcome, Types, context, equal, fill, list, parse};

pub(super) const TYPES: Types = &[("endpointSliceReconcile", reconcile)];

/// The time that the recorder gave as the reason of the change.
const TRIGGER_TIME: &str = "2026-06-01T12:00:00Z";

/// The slices that one reconcile writes.
fn reconcile(case: &Value) -> Outcome {
    let input = &case["input"];
    let (cache, service): (Arc<Cache>, Service) = (Arc::default(), parse(&input["service"])?);
    let pods: Vec<Arc<Pod>> = list(&input["pods"])?;
    let slices: Vec<Arc<EndpointSlice>> = list(&input["existingSlices"])?;
    fill(&cache, Kind::Node, &input["nodes"])?;
    let config =
        EndpointSliceConfig { endpoints_max: parse(&input["maxEndpointsPerSlice"])?, ..EndpointSliceConfig::default() };
    let controller = EndpointSliceController::new(cache, config);
    let api = FakeApi::new(|request| match &request.verb {
        Verb::Create(body) | Verb::Update(body) => Ok(serde_json::from_slice(body).unwrap_or_default()),
        _ => Ok(Value::Null),
    });
    let time = parse(&json!(TRIGGER_TIME))?;
    let written = controller.write(&service, &pods, slices, Some(time), context(&api, time)).now_or_never();
    let error = written.ok_or_else(|| Mismatch::Unreadable("the fake server does not answer".into()))?.err();
    let requests = api.calls();
    let bodies = |pick: fn(&Request) -> Option<&bytes::Bytes>| -> Vec<Value> {
        let bodies = requests.iter().filter_map(pick);
        bodies.map(|body| without_type(serde_json::from_slice(body).unwrap_or_default())).collect()
    };
    let created = bodies(|request| if let Verb::Create(body) = &request.verb { Some(body) } else { None });
    let updated = bodies(|request| if let Verb::Update(body) = &request.verb { Some(body) } else { None });
    let deleted = requests.iter().filter(|request| matches!(request.verb, Verb::Delete(_)));
    let deleted: Vec<&str> = deleted.map(|request| request.name.as_str()).collect();
    let error = error.map(|error| error.to_string());
    let answer = json!({"created": created, "updated": updated, "deleted": deleted, "error": error});
    equal(&comparable(&answer), &comparable(&case["expect"]))
}

fn without_type(mut slice: Value) -> Value {
    if let Some(fields) = slice.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
        // The recorder's slices have no versions.
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.remove("resourceVersion");
        }
    }
    slice
}

fn endpoints(slice: &Value) -> Vec<Value> {
    let mut endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
    endpoints.sort_by_key(|endpoint| endpoint["addresses"].to_string());
    endpoints
}

/// Slices with their endpoints by address.
fn sorted(slices: &[Value]) -> Vec<Value> {
    let sort = |slice: &Value| {
        let mut slice = slice.clone();
        slice["endpoints"] = endpoints(&slice).into();
        slice
    };
    let mut slices: Vec<Value> = slices.iter().map(sort).collect();
    slices.sort_by_key(Value::to_string);
    slices
}

fn sizes(slices: &[Value]) -> Vec<usize> {
    let mut sizes: Vec<usize> = slices.iter().map(|slice| endpoints(slice).len()).collect();
    sizes.sort_unstable();
    sizes
}

/// The form in which two answers are compared: which endpoint goes into which of several slices of one group of ports
/// is arbitrary, and so is which slice keeps its name.
fn comparable(answer: &Value) -> Value {
    let of = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    let (created, updated) = (of("created"), of("updated"));
    let written: Vec<&Value> = created.iter().chain(&updated).collect();
    let group = |slice: &Value| json!([slice["addressType"], slice["ports"]]).to_string();
    let mut groups: Vec<String> = written.iter().map(|slice| group(slice)).collect();
    groups.sort();
    let mut form = json!({
        "createdSizes": sizes(&created), "updatedSizes": sizes(&updated), "error": answer["error"],
    });
    if groups.windows(2).any(|pair| pair[0] == pair[1]) {
        groups.dedup();
        let union = |wanted: &String| {
            let of_group = written.iter().filter(|slice| group(slice) == *wanted);
            let mut all: Vec<Value> = of_group.flat_map(|slice| endpoints(slice)).collect();
            all.sort_by_key(Value::to_string);
            json!({"group": wanted, "endpoints": all})
        };
        form["union"] = groups.iter().map(union).collect();
        form["deletions"] = of("deleted").len().into();
    } else {
        form["created"] = sorted(&created).into();
        form["updated"] = sorted(&updated).into();
        form["deleted"] = of("deleted").into();
    }
    form
}
