//! The rules of what was allocated for a claim.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::claim_rules::{CONFIGURATIONS_MAX, Requests, configuration, json_object, toleration};
use super::device_names;
use super::lists::{at_most, each, itself, set};
use crate::field::{ErrorList, GoValue, Path};
use crate::names;
use crate::object::{given, list, text};
use crate::pod_spec;

const CONSUMERS_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const CONDITIONS_MAX: usize = 8;
const ADDRESSES_MAX: usize = 16;
const INTERFACE_MAX: usize = 256;
const HARDWARE_ADDRESS_MAX: usize = 128;

pub(super) fn rules(errors: &mut ErrorList, claim: &Value, old: &Value) {
    let (path, status) = (Path::root("status"), &claim["status"]);
    let consumers = list(status, "reservedFor");
    set(
        errors,
        path.child("reservedFor"),
        consumers,
        CONSUMERS_MAX,
        |consumer| text(consumer, "uid"),
        |errors, path, consumer| {
            for field in ["resource", "name", "uid"] {
                if text(consumer, field).is_empty() {
                    errors.required(path.child(field), "");
                }
            }
        },
    );
    devices(errors, path.child("devices"), status);
    let allocated = given(status, "allocation");
    if !consumers.is_empty() && !allocated {
        errors.forbidden(path.child("reservedFor"), "may not be specified when `allocated` is not set");
    } else if given(&claim["metadata"], "deletionTimestamp") {
        let known = list(&old["status"], "reservedFor");
        if consumers.iter().any(|consumer| !known.contains(consumer)) {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.forbidden(path.child("reservedFor"), detail);
        }
    }
    let (path, allocation) = (path.child("allocation"), &status["allocation"]);
    match &old["status"]["allocation"] {
        _ if !allocated => {}
        Value::Null => allocation_rules(errors, path, allocation, &Requests::of(&claim["spec"])),
        before if before != allocation => {
            errors.invalid(path, GoValue("io.k8s.api.resource.v1.AllocationResult", allocation), "field is immutable");
        }
        _ => {}
    }
}

fn allocation_rules(errors: &mut ErrorList, path: Path<'_>, allocation: &Value, requests: &Requests<'_>) {
    let (of_devices, devices) = (path.child("devices"), &allocation["devices"]);
    each(errors, of_devices.child("results"), list(devices, "results"), RESULTS_MAX, |errors, path, result| {
        requests.reference(errors, path.child("request"), text(result, "request"));
        device(errors, path, result);
        conditions(errors, path, result);
        for (index, one) in list(result, "tolerations").iter().enumerate() {
            toleration(errors, path.child("tolerations").index(index), one);
        }
    });
    let configurations = list(devices, "config");
    each(errors, of_devices.child("config"), configurations, 2 * CONFIGURATIONS_MAX, |errors, path, config| {
        errors.one_of(path.child("source"), text(config, "source"), &["FromClaim", "FromClass"]);
        requests.references(errors, path, config);
        configuration(errors, path, config);
    });
    if given(allocation, "nodeSelector") {
        pod_spec::node_selector(errors, path.child("nodeSelector"), &allocation["nodeSelector"]);
    }
}

/// Checks which device something is about.
fn device(errors: &mut ErrorList, path: Path<'_>, about: &Value) {
    device_names::driver(errors, path.child("driver"), text(about, "driver"));
    device_names::pool(errors, path.child("pool"), text(about, "pool"));
    device_names::label(errors, path.child("device"), text(about, "device"));
}

/// The conditions that a binding waits for, and those that end it.
pub(super) fn conditions(errors: &mut ErrorList, path: Path<'_>, device: &Value) {
    const CONDITIONS_MAX: usize = 4;
    const FIELDS: [&str; 2] = ["bindingConditions", "bindingFailureConditions"];
    for field in FIELDS {
        let mut seen = BTreeSet::new();
        each(errors, path.child(field), list(device, field), CONDITIONS_MAX, |errors, path, value| {
            let name = value.as_str().unwrap_or_default();
            errors.all_invalid(path, name, names::qualified_name(name));
        });
        for (index, name) in list(device, field).iter().filter_map(Value::as_str).enumerate() {
            let path = path.child(field);
            if !seen.insert(name) {
                errors.duplicate(path.index(index), name);
            }
            if field == FIELDS[1] && list(device, FIELDS[0]).iter().any(|other| other == name) {
                let detail = "bindingFailureConditions must not overlap with bindingConditions";
                errors.invalid(path.index(index), name, detail);
            }
        }
    }
    for (field, other) in [(FIELDS[0], FIELDS[1]), (FIELDS[1], FIELDS[0])] {
        if list(device, field).is_empty() && !list(device, other).is_empty() {
            errors.invalid(path.child(field), &device[field], &format!("{field} are required to use {other}"));
        }
    }
}

/// What drivers say of allocated devices.
fn devices(errors: &mut ErrorList, path: Path<'_>, status: &Value) {
    let id = |about: &Value| {
        let parts = ["driver", "pool", "device"].map(|field| text(about, field));
        let share = if given(about, "shareID") { "/" } else { "" };
        format!("{}{share}{}", parts.join("/"), text(about, "shareID"))
    };
    let allocated: BTreeSet<String> = list(&status["allocation"]["devices"], "results").iter().map(id).collect();
    let mut seen = BTreeSet::new();
    for (index, about) in list(status, "devices").iter().enumerate() {
        let path = path.index(index);
        device(errors, path, about);
        let id = id(about);
        if !allocated.contains(&id) {
            errors.invalid(path, id.as_str(), "must be an allocated device in the claim");
        }
        let conditions = list(about, "conditions");
        at_most(errors, path.child("conditions"), conditions.len(), CONDITIONS_MAX);
        if given(about, "data") {
            json_object(errors, path.child("data"), &about["data"]);
        }
        network(errors, path.child("networkData"), &about["networkData"]);
        if seen.contains(&id) {
            errors.duplicate(path, id.as_str());
        }
        seen.insert(id);
    }
}

fn network(errors: &mut ErrorList, path: Path<'_>, data: &Value) {
    for (field, max) in [("interfaceName", INTERFACE_MAX), ("hardwareAddress", HARDWARE_ADDRESS_MAX)] {
        if text(data, field).len() > max {
            errors.too_long(path.child(field), max);
        }
    }
    set(errors, path.child("ips"), list(data, "ips"), ADDRESSES_MAX, itself, |errors, path, value| {
        let address = value.as_str().unwrap_or_default();
        match interface_address(address) {
            None => {
                let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
                errors.invalid(path, address, detail);
            }
            Some(canonical) if canonical != address => {
                errors.invalid(path, address, &format!("must be in canonical form ({canonical:?})"));
            }
            Some(_) => {}
        }
    });
}

/// An address with the length of its network, in its one spelling.
fn interface_address(text: &str) -> Option<String> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let prefix: u32 = prefix.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= bits).then(|| format!("{address}/{prefix}"))
}
