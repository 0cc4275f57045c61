//! The defaults of a configuration, and how the plugin sets of a profile merge with the default plugins.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::load::list;
use super::{API_VERSION, DEFAULT_SCHEDULER_NAME, schema};

/// Upstream's default plugins of v1.36 with their weights, in order.
const DEFAULT_PLUGINS: [(&str, i32); 20] = [
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
];

/// Sets the defaults of a checked configuration. Where upstream has no pointer, zero counts as absent.
pub(super) fn apply(value: &mut Value) {
    let zero = |value: &Value| {
        value.is_null() || value.as_f64() == Some(0.0) || value.as_str().is_some_and(|t| t.is_empty() || t == "0s")
    };
    let absent = |value: &Value| value.is_null();
    default(value, &absent, json!({ "parallelism": 16, "percentageOfNodesToScore": 0 }));
    default(value, &absent, json!({ "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 10 }));
    default(value, &absent, json!({ "leaderElection": {}, "clientConnection": {}, "enableProfiling": true }));
    let profiling = value["enableProfiling"].clone();
    default(value, &absent, json!({ "enableContentionProfiling": profiling }));
    let election = &mut value["leaderElection"];
    default(election, &absent, json!({ "leaderElect": true }));
    default(election, &zero, json!({ "leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s" }));
    default(election, &zero, json!({ "resourceLock": "leases", "resourceName": "kube-scheduler" }));
    default(election, &zero, json!({ "resourceNamespace": "kube-system" }));
    let connection = &mut value["clientConnection"];
    default(
        connection,
        &zero,
        json!({ "contentType": "application/vnd.kubernetes.protobuf", "qps": 50, "burst": 100 }),
    );

    if list(value, "profiles").is_empty() {
        value["profiles"] = json!([{}]);
    }
    let profiles = list(value, "profiles");
    if let [only] = profiles {
        default(only, &absent, json!({ "schedulerName": DEFAULT_SCHEDULER_NAME }));
    }
    profiles.iter_mut().for_each(complete_profile);
}

/// Sets the fields for which `missing` is true.
fn default(value: &mut Value, missing: &dyn Fn(&Value) -> bool, defaults: Value) {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    let (Value::Object(map), Value::Object(defaults)) = (value, defaults) else { return };
    for (name, default) in defaults {
        let field = map.entry(name).or_insert(Value::Null);
        if missing(field) {
            *field = default;
        }
    }
}

fn complete_profile(profile: &mut Value) {
    default(profile, &Value::is_null, json!({ "plugins": {}, "pluginConfig": [] }));
    let multi_point = &mut profile["plugins"]["multiPoint"];
    *multi_point = merge(multi_point);
    let mut enabled = BTreeSet::new();
    for set in profile["plugins"].as_object().into_iter().flat_map(Map::values) {
        let plugins = set["enabled"].as_array().into_iter().flatten();
        enabled.extend(plugins.filter_map(|plugin| plugin["name"].as_str()).map(str::to_owned));
    }
    let configs = list(profile, "pluginConfig");
    // An entry without arguments exists already, and gets no defaults.
    let named: BTreeSet<String> = configs.iter().filter_map(|c| c["name"].as_str()).map(str::to_owned).collect();
    let Some(configs) = profile["pluginConfig"].as_array_mut() else { return };
    for name in enabled.difference(&named) {
        let kind = format!("{name}Args");
        let Some(of) = schema::args(&kind) else { continue };
        let mut args = json!({ "apiVersion": API_VERSION, "kind": kind });
        apply_args(name, &mut args);
        schema::write(&mut args, of);
        configs.push(json!({ "name": name, "args": args }));
    }
}

/// Sets the defaults of a plugin's arguments.
pub(super) fn apply_args(name: &str, args: &mut Value) {
    let absent = &|value: &Value| value.is_null();
    match name {
        "DefaultPreemption" => {
            default(args, absent, json!({ "minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100 }));
        }
        "DynamicResources" => default(args, absent, json!({ "filterTimeout": "10s", "bindingTimeout": "10m0s" })),
        "InterPodAffinity" => default(args, absent, json!({ "hardPodAffinityWeight": 1 })),
        "VolumeBinding" => default(args, absent, json!({ "bindTimeoutSeconds": 600 })),
        "PodTopologySpread" => {
            let empty = |value: &Value| value.as_str().is_none_or(str::is_empty);
            default(args, &empty, json!({ "defaultingType": "System" }));
        }
        "NodeResourcesBalancedAllocation" => default_resources(args),
        "NodeResourcesFit" => {
            default(args, absent, json!({ "scoringStrategy": { "type": "LeastAllocated" } }));
            default_resources(&mut args["scoringStrategy"]);
        }
        _ => {}
    }
}

/// Defaults an empty list to cpu and memory, and weights of 0 to 1.
fn default_resources(owner: &mut Value) {
    let empty = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    default(owner, &empty, json!({ "resources": [{ "name": "cpu" }, { "name": "memory" }] }));
    for resource in list(owner, "resources") {
        default(resource, &|weight| weight.as_i64().is_none_or(|weight| weight == 0), json!({ "weight": 1 }));
    }
}

/// Merges `multiPoint` with the default plugins: drops disabled ones, replaces those of the same name in place, and
/// appends the others. No other set has defaults.
fn merge(custom: &Value) -> Value {
    let entries = |field: &str| custom[field].as_array().cloned().unwrap_or_default();
    let (own, disabled) = (entries("enabled"), entries("disabled"));
    let is_disabled = |name: &str| disabled.iter().any(|plugin| plugin["name"] == name);
    let mut replaced = vec![false; own.len()];
    let mut enabled = Vec::new();
    if !is_disabled("*") {
        for (name, weight) in DEFAULT_PLUGINS.into_iter().filter(|(name, _)| !is_disabled(name)) {
            match own.iter().rposition(|plugin| plugin["name"] == name) {
                Some(at) => {
                    replaced[at] = true;
                    enabled.push(own[at].clone());
                }
                None => enabled.push(json!({ "name": name, "weight": weight })),
            }
        }
    }
    enabled.extend(own.iter().zip(replaced).filter(|(_, used)| !used).map(|(plugin, _)| plugin.clone()));
    json!({ "enabled": enabled, "disabled": disabled })
}
