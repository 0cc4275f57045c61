//! Device claims and slices.

use serde_json::Value;

use super::{Object, child, children, default, default_nonzero, text};

pub(super) fn claim_spec(spec: Option<&mut Value>) {
    let Some(spec) = spec.and_then(Value::as_object_mut) else { return };
    let Some(devices) = child(spec, "devices") else { return };
    for request in children(devices, "requests") {
        if let Some(exactly) = child(request, "exactly") {
            device_request(exactly);
        }
        children(request, "firstAvailable").for_each(device_request);
    }
}

fn device_request(request: &mut Object) {
    default(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        default_nonzero(request, "count", 1);
    }
    children(request, "tolerations").for_each(|toleration| default(toleration, "operator", "Equal"));
}

pub(super) fn slice(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    for device in children(spec, "devices") {
        let Some(mappings) = child(device, "nodeAllocatableResourceMappings") else { continue };
        for mapping in mappings.values_mut().filter_map(Value::as_object_mut) {
            default(mapping, "allocationMultiplier", "1");
        }
    }
}
