//! Validation of a completed configuration and of plugin arguments, in upstream's words.

use std::collections::BTreeSet;

use bayplan_model::affinity::{NodeSelectorTerm, TermMatcher};
use bayplan_model::label::key_errors;
use bayplan_model::quoted::Quoted;
use bayplan_model::resources::is_extended;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{API_VERSION, GoDuration};

/// Plugins that v1 no longer has.
const REMOVED: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];
/// The sets in which upstream looks for removed plugins.
const CLASSIC_POINTS: [&str; 12] = [
    "bind",
    "filter",
    "permit",
    "postBind",
    "postFilter",
    "preBind",
    "preEnqueue",
    "preFilter",
    "preScore",
    "queueSort",
    "reserve",
    "score",
];

/// Prints several errors as upstream's aggregate errors are printed.
pub fn aggregate(errors: &[String]) -> String {
    let mut seen = BTreeSet::new();
    let unique: Vec<&str> = errors.iter().map(String::as_str).filter(|error| seen.insert(*error)).collect();
    match unique[..] {
        [only] => only.to_owned(),
        _ => format!("[{}]", unique.join(", ")),
    }
}

/// Collects errors in the words of upstream's `field.ErrorList`.
#[derive(Default)]
struct Errors(Vec<String>);

impl Errors {
    fn invalid(&mut self, path: &str, value: &Value, detail: &str) {
        self.invalid_shown(path, &shown(value), detail);
    }

    /// Adds an error about a value that is shown already.
    fn invalid_shown(&mut self, path: &str, value: &str, detail: &str) {
        self.0.push(format!("{path}: Invalid value: {value}: {detail}"));
    }

    fn required(&mut self, path: &str, detail: &str) {
        let separator = if detail.is_empty() { "" } else { ": " };
        self.0.push(format!("{path}: Required value{separator}{detail}"));
    }

    fn forbidden(&mut self, path: &str, detail: &str) {
        self.0.push(format!("{path}: Forbidden: {detail}"));
    }

    fn duplicate(&mut self, path: &str, value: &Value) {
        self.0.push(format!("{path}: Duplicate value: {}", shown(value)));
    }

    fn unsupported(&mut self, path: &str, value: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|value| Quoted(value).to_string()).collect();
        let value = Quoted(value);
        self.0.push(format!("{path}: Unsupported value: {value}: supported values: {}", supported.join(", ")));
    }

    /// Adds an error for a number outside a range.
    fn range(&mut self, path: &str, value: &Value, range: std::ops::RangeInclusive<i64>, detail: &str) {
        if !range.contains(&value.as_i64().unwrap_or(0)) {
            self.invalid(path, value, detail);
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => Quoted(text).to_string(),
        other => other.to_string(),
    }
}

fn items(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn duration(value: &Value) -> i64 {
    GoDuration::parse(text(value)).unwrap_or_default().0
}

/// All errors of a completed configuration.
pub fn validate(config: &Value) -> Vec<String> {
    let mut errors = Errors::default();
    if number(&config["clientConnection"]["burst"]) < 0 {
        errors.invalid("clientConnection.burst", &config["clientConnection"]["burst"], "must be non-negative");
    }
    leader_election(&config["leaderElection"], &mut errors);
    if number(&config["parallelism"]) <= 0 {
        errors.invalid("parallelism", &config["parallelism"], "should be an integer value greater than zero");
    }
    profiles(&config["profiles"], &mut errors);
    percentage("percentageOfNodesToScore", &config["percentageOfNodesToScore"], &mut errors);
    let (initial, max) = (&config["podInitialBackoffSeconds"], &config["podMaxBackoffSeconds"]);
    if number(initial) <= 0 {
        errors.invalid("podInitialBackoffSeconds", initial, "must be greater than 0");
    }
    if number(max) < number(initial) {
        let detail = "must be greater than or equal to PodInitialBackoffSeconds";
        errors.invalid("podMaxBackoffSeconds", max, detail);
    }
    extenders(&config["extenders"], &mut errors);
    errors.0
}

fn percentage(path: &str, value: &Value, errors: &mut Errors) {
    if !value.is_null() {
        errors.range(path, value, 0..=100, "not in valid range [0-100]");
    }
}

fn leader_election(election: &Value, errors: &mut Errors) {
    if election["leaderElect"] != true {
        return;
    }
    let path = |field: &str| format!("leaderElection.{field}");
    for field in ["leaseDuration", "renewDeadline", "retryPeriod"] {
        if duration(&election[field]) <= 0 {
            errors.invalid(&path(field), &election[field], "must be greater than zero");
        }
    }
    if duration(&election["leaseDuration"]) <= duration(&election["renewDeadline"]) {
        let detail = "must be greater than `RenewDeadline`";
        errors.invalid(&path("leaseDuration"), &election["renewDeadline"], detail);
    }
    if election["resourceLock"] != "leases" {
        let detail = "resourceLock value must be \"leases\"";
        errors.invalid(&path("resourceLock"), &election["resourceLock"], detail);
    }
}

fn profiles(profiles: &Value, errors: &mut Errors) {
    for (i, profile) in items(profiles) {
        let path = format!("profiles[{i}]");
        let name = &profile["schedulerName"];
        if text(name).is_empty() {
            errors.required(&format!("{path}.schedulerName"), "");
        }
        percentage(&format!("{path}.percentageOfNodesToScore"), &profile["percentageOfNodesToScore"], errors);
        plugin_config(&path, profile, errors);
        if !text(name).is_empty() && items(profiles).take(i).any(|(_, other)| other["schedulerName"] == *name) {
            // Upstream prints the path of the first profile as an object without public fields.
            errors.duplicate(&format!("{path}.schedulerName"), &json!({}));
        }
    }
    queue_sort(profiles, errors);
}

/// All profiles must sort the queue alike, because they share it.
fn queue_sort(profiles: &Value, errors: &mut Errors) {
    let first = &profiles[0]["plugins"]["queueSort"];
    let enabled: Vec<&Value> = items(&first["enabled"]).map(|(_, plugin)| plugin).collect();
    if enabled.len() > 1 {
        let detail = "only one queue sort plugin can be enabled";
        errors.invalid("profiles[0].plugins.queueSort.Enabled", &internal(&first["enabled"]), detail);
    }
    let args = |profile: &Value, name: &str| {
        items(&profile["pluginConfig"]).find(|(_, config)| config["name"] == name).map(|(_, c)| c["args"].clone())
    };
    for (i, profile) in items(profiles).skip(1) {
        let own = &profile["plugins"]["queueSort"];
        if own != first {
            let shown = json_of_set(own);
            let path = format!("profiles[{i}].plugins.queueSort");
            errors.0.push(format!("{path}: Invalid value: {shown}: must be the same for all profiles"));
        }
        if let Some(name) = enabled.first().map(|plugin| text(&plugin["name"]))
            && let (Some(own), Some(first)) = (args(profile, name), args(&profiles[0], name))
            && own != first
        {
            errors.invalid(&format!("profiles[{i}].pluginConfig"), &own, "queueSort must be the same for all profiles");
        }
    }
}

/// A list of plugins with the names of Go's fields.
fn internal(list: &Value) -> Value {
    items(list).map(|(_, plugin)| json!({ "Name": plugin["name"], "Weight": plugin["weight"] })).collect()
}

fn json_of_set(set: &Value) -> String {
    let list = |field: &str| if set[field].is_array() { internal(&set[field]) } else { Value::Null };
    format!("{{\"Enabled\":{},\"Disabled\":{}}}", list("enabled"), list("disabled"))
}

fn plugin_config(path: &str, profile: &Value, errors: &mut Errors) {
    let removed =
        format!("was invalid in version \"{API_VERSION}\" (KubeSchedulerConfiguration is version \"{API_VERSION}\")");
    for point in CLASSIC_POINTS {
        for (i, plugin) in items(&profile["plugins"][point]["enabled"]) {
            if REMOVED.contains(&text(&plugin["name"])) {
                errors.invalid(&format!("{path}.plugins.{point}.enabled[{i}]"), &plugin["name"], &removed);
            }
        }
    }
    let mut seen = BTreeSet::new();
    for (i, config) in items(&profile["pluginConfig"]) {
        let path = format!("{path}.pluginConfig[{i}]");
        let name = text(&config["name"]);
        if !seen.insert(name) {
            errors.duplicate(&path, &config["name"]);
        }
        if REMOVED.contains(&name) {
            errors.invalid(&path, &config["name"], &removed);
        }
        // NodeResourcesFit validates its own arguments: upstream's table lists it under a wrong name.
        if name != "NodeResourcesFit" {
            args(name, &format!("{path}.args."), &config["args"], errors);
        }
    }
}

/// Validates the arguments of a plugin; the paths of errors begin at the arguments.
pub(crate) fn validate_args(name: &str, value: &Value) -> Result<(), String> {
    let mut errors = Errors::default();
    args(name, "", value, &mut errors);
    if errors.0.is_empty() { Ok(()) } else { Err(aggregate(&errors.0)) }
}

fn args(name: &str, path: &str, args: &Value, errors: &mut Errors) {
    let at = |field: &str| format!("{path}{field}");
    match name {
        "DefaultPreemption" => default_preemption(path, args, errors),
        "InterPodAffinity" => {
            let weight = &args["hardPodAffinityWeight"];
            errors.range(&at("hardPodAffinityWeight"), weight, 0..=100, "not in valid range [0, 100]");
        }
        "NodeAffinity" => added_affinity(&at("addedAffinity"), &args["addedAffinity"], errors),
        "NodeResourcesBalancedAllocation" => {
            let mut seen = BTreeSet::new();
            for (i, resource) in items(&args["resources"]) {
                let path = at(&format!("resources[{i}]"));
                if !seen.insert(text(&resource["name"])) {
                    errors.duplicate(&format!("{path}.name"), &resource["name"]);
                }
                if number(&resource["weight"]) != 1 {
                    errors.invalid(&format!("{path}.weight"), &resource["weight"], "must be 1");
                }
            }
        }
        "NodeResourcesFit" => node_resources_fit(path, args, errors),
        "PodTopologySpread" => pod_topology_spread(path, args, errors),
        "VolumeBinding" => {
            let timeout = &args["bindTimeoutSeconds"];
            let detail = "invalid BindTimeoutSeconds, should not be a negative value";
            errors.range(&at("bindTimeoutSeconds"), timeout, 0..=i64::MAX, detail);
            if !args["shape"].is_null() {
                let detail = "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
                errors.invalid_shown(&at("shape"), &internal_shape(&args["shape"]), detail);
            }
        }
        "DynamicResources" => {
            let filter = &args["filterTimeout"];
            if !filter.is_null() && duration(filter) < 0 {
                errors.invalid(&at("filterTimeout"), filter, "must be zero or positive");
            }
            let binding = &args["bindingTimeout"];
            if !binding.is_null() && duration(binding) < GoDuration::from_secs(1).0 {
                errors.invalid(&at("bindingTimeout"), binding, "must be at least 1 second");
            }
        }
        _ => {}
    }
}

/// A shape as upstream shows its internal form: fields in the order of the Go struct, which a JSON value does not keep.
fn internal_shape(shape: &Value) -> String {
    let point =
        |p: &Value| format!(r#"{{"Utilization":{},"Score":{}}}"#, number(&p["utilization"]), number(&p["score"]));
    let points: Vec<String> = items(shape).map(|(_, p)| point(p)).collect();
    format!("[{}]", points.join(","))
}

fn default_preemption(path: &str, args: &Value, errors: &mut Errors) {
    let (percentage, absolute) = (&args["minCandidateNodesPercentage"], &args["minCandidateNodesAbsolute"]);
    let percentage_path = format!("{path}minCandidateNodesPercentage");
    let absolute_path = format!("{path}minCandidateNodesAbsolute");
    errors.range(&percentage_path, percentage, 0..=100, "not in valid range [0, 100]");
    errors.range(&absolute_path, absolute, 0..=i64::MAX, "not in valid range [0, inf)");
    if number(percentage) == 0 && number(absolute) == 0 {
        let with = |other: &str| format!("cannot be zero at the same time as {other}");
        errors.invalid(&percentage_path, percentage, &with("minCandidateNodesAbsolute"));
        errors.invalid(&absolute_path, absolute, &with("minCandidateNodesPercentage"));
    }
}

fn added_affinity(path: &str, affinity: &Value, errors: &mut Errors) {
    let mut term = |value: &Value, path: String| {
        // The type was checked before.
        let term = NodeSelectorTerm::deserialize(value).unwrap_or_default();
        if !term.is_empty() {
            errors.0.extend(TermMatcher::errors(&term, &path));
        }
    };
    let required = format!("{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    for (i, value) in items(&affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]) {
        term(value, format!("{required}[{i}]"));
    }
    let preferred = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution");
    for (i, value) in items(&affinity["preferredDuringSchedulingIgnoredDuringExecution"]) {
        if number(&value["weight"]) != 0 {
            term(&value["preference"], format!("{preferred}[{i}]"));
        }
    }
}

fn node_resources_fit(path: &str, args: &Value, errors: &mut Errors) {
    for (i, name) in items(&args["ignoredResources"]) {
        for wrong in key_errors(text(name)) {
            errors.invalid(&format!("{path}ignoredResources[{i}]"), name, &wrong);
        }
    }
    for (i, group) in items(&args["ignoredResourceGroups"]) {
        let path = format!("{path}ignoredResourceGroups[{i}]");
        if text(group).contains('/') {
            errors.invalid(&path, group, "resource group name can't contain '/'");
        }
        for wrong in key_errors(text(group)) {
            errors.invalid(&path, group, &wrong);
        }
    }
    let strategy = &args["scoringStrategy"];
    let path = format!("{path}scoringStrategy");
    if strategy.is_null() {
        return errors.required(&path, "ScoringStrategy field is required");
    }
    for (i, resource) in items(&strategy["resources"]) {
        let detail = format!("resource weight of {} not in valid range (0, 100]", text(&resource["name"]));
        errors.range(&format!("{path}.resources[{i}].weight"), &resource["weight"], 1..=100, &detail);
    }
    let kind = text(&strategy["type"]);
    let ratio = &strategy["requestedToCapacityRatio"];
    let ratio_path = format!("{path}.requestedToCapacityRatio");
    match (kind, ratio.is_null()) {
        ("LeastAllocated" | "MostAllocated", true) => {}
        ("LeastAllocated" | "MostAllocated", false) => {
            let value = format!(r#"{{"Shape":{}}}"#, internal_shape(&ratio["shape"]));
            errors.invalid_shown(&ratio_path, &value, "must be nil when type is not RequestedToCapacityRatio");
        }
        ("RequestedToCapacityRatio", true) => {
            errors.required(&ratio_path, "must be specified when type is RequestedToCapacityRatio");
        }
        ("RequestedToCapacityRatio", false) => shape(&format!("{ratio_path}.shape"), &ratio["shape"], errors),
        _ => {
            let supported = ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"];
            errors.unsupported(&format!("{path}.type"), kind, &supported);
        }
    }
}

fn shape(path: &str, shape: &Value, errors: &mut Errors) {
    if items(shape).next().is_none() {
        return errors.required(path, "at least one point must be specified");
    }
    let unsorted =
        items(shape).skip(1).find(|(i, p)| number(&shape[i - 1]["utilization"]) >= number(&p["utilization"]));
    if let Some((i, point)) = unsorted {
        let path = format!("{path}[{i}].utilization");
        errors.invalid(&path, &point["utilization"], "values must be sorted in increasing order");
    }
    for (i, point) in items(shape) {
        let at = |field: &str| format!("{path}[{i}].{field}");
        errors.range(&at("utilization"), &point["utilization"], 0..=100, "not in valid range [0, 100]");
        errors.range(&at("score"), &point["score"], 0..=10, "not in valid range [0, 10]");
    }
}

fn pod_topology_spread(path: &str, args: &Value, errors: &mut Errors) {
    let constraints = &args["defaultConstraints"];
    match text(&args["defaultingType"]) {
        "System" if items(constraints).next().is_some() => {
            let path = format!("{path}defaultingType");
            errors.invalid(&path, &args["defaultingType"], "when .defaultConstraints are not empty");
        }
        "System" | "List" => {}
        other => errors.unsupported(&format!("{path}defaultingType"), other, &["System", "List"]),
    }
    let mut seen = BTreeSet::new();
    for (i, constraint) in items(constraints) {
        let path = format!("{path}defaultConstraints[{i}]");
        errors.range(&format!("{path}.maxSkew"), &constraint["maxSkew"], 1..=i64::MAX, "not in valid range (0, inf)");
        let key = text(&constraint["topologyKey"]);
        if key.is_empty() {
            errors.required(&format!("{path}.topologyKey"), "can not be empty");
        } else {
            for wrong in key_errors(key) {
                errors.invalid(&format!("{path}.topologyKey"), &constraint["topologyKey"], &wrong);
            }
        }
        let when = text(&constraint["whenUnsatisfiable"]);
        match when {
            "" => errors.required(&format!("{path}.whenUnsatisfiable"), "can not be empty"),
            "DoNotSchedule" | "ScheduleAnyway" => {}
            other => {
                errors.unsupported(&format!("{path}.whenUnsatisfiable"), other, &["DoNotSchedule", "ScheduleAnyway"])
            }
        }
        if !constraint["labelSelector"].is_null() {
            let detail = "constraint must not define a selector, as they deduced for each pod";
            errors.forbidden(&format!("{path}.labelSelector"), detail);
        }
        if !seen.insert((key, when)) {
            errors.duplicate(&path, &json!(format!("{{{key}, {when}}}")));
        }
    }
}

fn extenders(extenders: &Value, errors: &mut Errors) {
    let mut binders = 0;
    let mut seen = BTreeSet::new();
    for (i, extender) in items(extenders) {
        let path = format!("extenders[{i}]");
        if !text(&extender["prioritizeVerb"]).is_empty() && number(&extender["weight"]) <= 0 {
            let weight = number(&extender["weight"]).into();
            errors.invalid(&format!("{path}.weight"), &weight, "must have a positive weight applied to it");
        }
        binders += usize::from(!text(&extender["bindVerb"]).is_empty());
        for (j, resource) in items(&extender["managedResources"]) {
            let path = format!("{path}.managedResources[{j}].name");
            let name = text(&resource["name"]);
            for wrong in key_errors(name) {
                errors.invalid(&path, &resource["name"], &wrong);
            }
            if !is_extended(name) {
                errors.invalid(&path, &resource["name"], "is an invalid extended resource name");
            }
            if !seen.insert(name) {
                errors.invalid(&path, &resource["name"], "duplicate extender managed resource name");
            }
        }
    }
    if binders > 1 {
        let value = json!(format!("found {binders} extenders implementing bind"));
        errors.invalid("extenders", &value, "only one extender can implement bind");
    }
}
