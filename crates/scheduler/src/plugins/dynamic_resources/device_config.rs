//! The driver configuration that goes with an allocation (`allocation.devices.config`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::requests::ClaimRequests;

/// The entries of the classes in use, each class once, then those of the claim that apply to a chosen request.
pub(super) fn device_config(claim: &ClaimRequests, chosen: &BTreeMap<String, usize>) -> Vec<Value> {
    let mut config: Vec<Value> = Vec::new();
    let mut of_class: BTreeMap<&str, std::ops::Range<usize>> = BTreeMap::new();
    for request in &claim.requests {
        let taken = chosen.get(&request.name).copied().unwrap_or(0);
        let Some(alternative) = request.alternatives.get(taken) else { continue };
        let Some(class) = &alternative.class else { continue };
        if let Some(known) = of_class.get(class.metadata.name.as_str()) {
            for entry in &mut config[known.clone()] {
                if let Some(requests) = entry.get_mut("requests").and_then(Value::as_array_mut) {
                    requests.push(alternative.full_name.clone().into());
                }
            }
            continue;
        }
        let start = config.len();
        config.extend(class.spec.config.iter().map(|entry| with_source(entry, "FromClass", &[&alternative.full_name])));
        of_class.insert(&class.metadata.name, start..config.len());
    }
    for entry in &claim.claim.spec.devices.config {
        let names: Vec<&str> = entry["requests"].as_array().into_iter().flatten().filter_map(|n| n.as_str()).collect();
        if names.is_empty() {
            config.push(with_source(entry, "FromClaim", &[]));
            continue;
        }
        for request in &claim.requests {
            let taken = chosen.get(&request.name).copied().unwrap_or(0);
            let full_name = request.alternatives.get(taken).map_or("", |alternative| alternative.full_name.as_str());
            if names.iter().any(|name| *name == request.name || *name == full_name) {
                config.push(with_source(entry, "FromClaim", &names));
            }
        }
    }
    config
}

fn with_source(entry: &Value, source: &str, requests: &[&str]) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.insert("source".into(), source.into());
        fields.remove("requests");
        if !requests.is_empty() {
            fields.insert("requests".into(), requests.into());
        }
    }
    entry
}
