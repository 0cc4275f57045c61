//! The fields of a configuration and of plugin arguments, and strict decoding with upstream's messages.

use serde_json::{Map, Value};

use super::GoDuration;

/// The type of a field.
#[derive(Clone, Copy)]
pub(super) enum FieldType {
    Text,
    Bool,
    Int32,
    Int64,
    Float32,
    Duration,
    /// Any value; it is checked elsewhere.
    Any,
    List(&'static FieldType),
    Object(&'static Struct),
}

/// When a field is written out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// Always, with its zero value when it is absent.
    Always,
    /// Unless it is zero or empty.
    NotEmpty,
    /// When it was given or defaulted.
    Given,
}

/// A field: its name, its type, and when it is written out.
pub(super) struct Field(pub(super) &'static str, FieldType, Written);

/// A struct, with its name and package in Go for messages.
pub(super) struct Struct {
    name: &'static str,
    package: &'static str,
    pub(super) fields: &'static [Field],
}

use FieldType::{Any, Bool, Duration, Float32, Int32, Int64, List, Object, Text};
use Written::{Always, Given, NotEmpty};

const TEXTS: FieldType = List(&Text);

pub(super) static CONFIGURATION: Struct = Struct {
    name: "KubeSchedulerConfiguration",
    package: "v1",
    fields: &[
        Field("apiVersion", Text, Always),
        Field("kind", Text, Always),
        Field("parallelism", Int32, Given),
        Field("leaderElection", Object(&LEADER_ELECTION), Always),
        Field("clientConnection", Object(&CLIENT_CONNECTION), Always),
        Field("enableProfiling", Bool, Given),
        Field("enableContentionProfiling", Bool, Given),
        Field("percentageOfNodesToScore", Int32, Given),
        Field("podInitialBackoffSeconds", Int64, Given),
        Field("podMaxBackoffSeconds", Int64, Given),
        Field("profiles", List(&Object(&PROFILE)), NotEmpty),
        Field("extenders", List(&Object(&EXTENDER)), NotEmpty),
        Field("delayCacheUntilActive", Bool, NotEmpty),
    ],
};

static LEADER_ELECTION: Struct = Struct {
    name: "LeaderElectionConfiguration",
    package: "v1alpha1",
    fields: &[
        Field("leaderElect", Bool, Given),
        Field("leaseDuration", Duration, Always),
        Field("renewDeadline", Duration, Always),
        Field("retryPeriod", Duration, Always),
        Field("resourceLock", Text, Always),
        Field("resourceName", Text, Always),
        Field("resourceNamespace", Text, Always),
    ],
};

static CLIENT_CONNECTION: Struct = Struct {
    name: "ClientConnectionConfiguration",
    package: "v1alpha1",
    fields: &[
        Field("kubeconfig", Text, Always),
        Field("acceptContentTypes", Text, Always),
        Field("contentType", Text, Always),
        Field("qps", Float32, Always),
        Field("burst", Int32, Always),
    ],
};

static PROFILE: Struct = Struct {
    name: "KubeSchedulerProfile",
    package: "v1",
    fields: &[
        Field("schedulerName", Text, Always),
        Field("percentageOfNodesToScore", Int32, Given),
        Field("plugins", Object(&PLUGINS), Given),
        Field("pluginConfig", List(&Object(&PLUGIN_CONFIG)), NotEmpty),
    ],
};

const SET: FieldType = Object(&PLUGIN_SET);

static PLUGINS: Struct = Struct {
    name: "Plugins",
    package: "v1",
    fields: &[
        Field("preEnqueue", SET, Always),
        Field("queueSort", SET, Always),
        Field("preFilter", SET, Always),
        Field("filter", SET, Always),
        Field("postFilter", SET, Always),
        Field("preScore", SET, Always),
        Field("score", SET, Always),
        Field("reserve", SET, Always),
        Field("permit", SET, Always),
        Field("preBind", SET, Always),
        Field("bind", SET, Always),
        Field("postBind", SET, Always),
        Field("multiPoint", SET, Always),
        Field("placementGenerate", SET, Always),
        Field("placementScore", SET, Always),
    ],
};

static PLUGIN_SET: Struct = Struct {
    name: "PluginSet",
    package: "v1",
    fields: &[Field("enabled", List(&Object(&PLUGIN)), NotEmpty), Field("disabled", List(&Object(&PLUGIN)), NotEmpty)],
};

static PLUGIN: Struct =
    Struct { name: "Plugin", package: "v1", fields: &[Field("name", Text, Always), Field("weight", Int32, Always)] };

static PLUGIN_CONFIG: Struct =
    Struct { name: "PluginConfig", package: "v1", fields: &[Field("name", Text, Always), Field("args", Any, Given)] };

static EXTENDER: Struct = Struct {
    name: "Extender",
    package: "v1",
    fields: &[
        Field("urlPrefix", Text, Always),
        Field("filterVerb", Text, NotEmpty),
        Field("preemptVerb", Text, NotEmpty),
        Field("prioritizeVerb", Text, NotEmpty),
        Field("weight", Int64, NotEmpty),
        Field("bindVerb", Text, NotEmpty),
        Field("enableHTTPS", Bool, NotEmpty),
        Field("tlsConfig", Object(&EXTENDER_TLS), Given),
        Field("httpTimeout", Duration, Always),
        Field("nodeCacheCapable", Bool, NotEmpty),
        Field("managedResources", List(&Object(&MANAGED_RESOURCE)), NotEmpty),
        Field("ignorable", Bool, NotEmpty),
    ],
};

static EXTENDER_TLS: Struct = Struct {
    name: "ExtenderTLSConfig",
    package: "v1",
    fields: &[
        Field("insecure", Bool, NotEmpty),
        Field("serverName", Text, NotEmpty),
        Field("certFile", Text, NotEmpty),
        Field("keyFile", Text, NotEmpty),
        Field("caFile", Text, NotEmpty),
        Field("certData", Text, NotEmpty),
        Field("keyData", Text, NotEmpty),
        Field("caData", Text, NotEmpty),
    ],
};

static MANAGED_RESOURCE: Struct = Struct {
    name: "ExtenderManagedResource",
    package: "v1",
    fields: &[Field("name", Text, Always), Field("ignoredByScheduler", Bool, NotEmpty)],
};

macro_rules! args {
    ($($static:ident = $name:literal [$($field:expr),* $(,)?];)*) => {
        $(static $static: Struct = Struct {
            name: $name,
            package: "v1",
            fields: &[Field("apiVersion", Text, Always), Field("kind", Text, Always), $($field),*],
        };)*

        /// The arguments of a plugin, when they have a known type.
        pub(super) fn args(kind: &str) -> Option<&'static Struct> {
            $(if kind == $name { return Some(&$static); })*
            None
        }
    };
}

args! {
    DEFAULT_PREEMPTION = "DefaultPreemptionArgs" [
        Field("minCandidateNodesPercentage", Int32, Given),
        Field("minCandidateNodesAbsolute", Int32, Given),
    ];
    DYNAMIC_RESOURCES = "DynamicResourcesArgs" [
        Field("filterTimeout", Duration, Given),
        Field("bindingTimeout", Duration, Given),
    ];
    INTER_POD_AFFINITY = "InterPodAffinityArgs" [
        Field("hardPodAffinityWeight", Int32, Given),
        Field("ignorePreferredTermsOfExistingPods", Bool, Always),
    ];
    NODE_AFFINITY = "NodeAffinityArgs" [Field("addedAffinity", Object(&ADDED_AFFINITY), Given)];
    NODE_RESOURCES_BALANCED = "NodeResourcesBalancedAllocationArgs" [Field("resources", RESOURCES, NotEmpty)];
    NODE_RESOURCES_FIT = "NodeResourcesFitArgs" [
        Field("ignoredResources", TEXTS, NotEmpty),
        Field("ignoredResourceGroups", TEXTS, NotEmpty),
        Field("scoringStrategy", Object(&SCORING_STRATEGY), Given),
    ];
    POD_TOPOLOGY_SPREAD = "PodTopologySpreadArgs" [
        Field("defaultConstraints", List(&Object(&SPREAD_CONSTRAINT)), NotEmpty),
        Field("defaultingType", Text, NotEmpty),
    ];
    VOLUME_BINDING = "VolumeBindingArgs" [
        Field("bindTimeoutSeconds", Int64, Given),
        Field("shape", SHAPE, NotEmpty),
    ];
}

const RESOURCES: FieldType = List(&Object(&RESOURCE_SPEC));
const SHAPE: FieldType = List(&Object(&SHAPE_POINT));

static RESOURCE_SPEC: Struct = Struct {
    name: "ResourceSpec",
    package: "v1",
    fields: &[Field("name", Text, Always), Field("weight", Int64, NotEmpty)],
};

static SCORING_STRATEGY: Struct = Struct {
    name: "ScoringStrategy",
    package: "v1",
    fields: &[
        Field("type", Text, NotEmpty),
        Field("resources", RESOURCES, NotEmpty),
        Field("requestedToCapacityRatio", Object(&CAPACITY_RATIO), Given),
    ],
};

static CAPACITY_RATIO: Struct =
    Struct { name: "RequestedToCapacityRatioParam", package: "v1", fields: &[Field("shape", SHAPE, NotEmpty)] };

static SHAPE_POINT: Struct = Struct {
    name: "UtilizationShapePoint",
    package: "v1",
    fields: &[Field("utilization", Int32, Always), Field("score", Int32, Always)],
};

static SPREAD_CONSTRAINT: Struct = Struct {
    name: "TopologySpreadConstraint",
    package: "v1",
    fields: &[
        Field("maxSkew", Int32, Always),
        Field("topologyKey", Text, Always),
        Field("whenUnsatisfiable", Text, Always),
        Field("labelSelector", Object(&LABEL_SELECTOR), Given),
        Field("minDomains", Int32, Given),
        Field("nodeAffinityPolicy", Text, Given),
        Field("nodeTaintsPolicy", Text, Given),
        Field("matchLabelKeys", TEXTS, NotEmpty),
    ],
};

static LABEL_SELECTOR: Struct = Struct {
    name: "LabelSelector",
    package: "v1",
    fields: &[Field("matchLabels", Any, NotEmpty), Field("matchExpressions", List(&Object(&REQUIREMENT)), NotEmpty)],
};

static REQUIREMENT: Struct = Struct {
    name: "NodeSelectorRequirement",
    package: "v1",
    fields: &[Field("key", Text, Always), Field("operator", Text, Always), Field("values", TEXTS, NotEmpty)],
};

static ADDED_AFFINITY: Struct = Struct {
    name: "NodeAffinity",
    package: "v1",
    fields: &[
        Field("requiredDuringSchedulingIgnoredDuringExecution", Object(&NODE_SELECTOR), Given),
        Field("preferredDuringSchedulingIgnoredDuringExecution", List(&Object(&PREFERRED_TERM)), NotEmpty),
    ],
};

static NODE_SELECTOR: Struct = Struct {
    name: "NodeSelector",
    package: "v1",
    fields: &[Field("nodeSelectorTerms", List(&Object(&NODE_TERM)), Given)],
};

static NODE_TERM: Struct = Struct {
    name: "NodeSelectorTerm",
    package: "v1",
    fields: &[
        Field("matchExpressions", List(&Object(&REQUIREMENT)), NotEmpty),
        Field("matchFields", List(&Object(&REQUIREMENT)), NotEmpty),
    ],
};

static PREFERRED_TERM: Struct = Struct {
    name: "PreferredSchedulingTerm",
    package: "v1",
    fields: &[Field("weight", Int32, Always), Field("preference", Object(&NODE_TERM), Always)],
};

/// Checks a value against a struct. Unknown fields are collected in `unknown`; a value of a wrong type is the error.
pub(super) fn check(value: &Value, of: &'static Struct, unknown: &mut Vec<String>) -> Result<(), String> {
    check_object(value, of, &mut Path { owner: of.name, indexed: String::new(), dotted: String::new() }, unknown)
}

/// The path to a field: the struct that owns it, and the fields that lead to it, with and without indices.
struct Path {
    owner: &'static str,
    indexed: String,
    dotted: String,
}

impl Path {
    fn refuse(&self, value: &Value, go_type: &str) -> String {
        let what = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            // Go names the number when it is out of range for an integer.
            Value::Number(number) if go_type.starts_with("int") => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        if self.dotted.is_empty() {
            return format!("json: cannot unmarshal {what} into Go value of type {go_type}");
        }
        format!("json: cannot unmarshal {what} into Go struct field {}.{} of type {go_type}", self.owner, self.dotted)
    }
}

fn check_object(value: &Value, of: &'static Struct, path: &mut Path, unknown: &mut Vec<String>) -> Result<(), String> {
    let map = match value {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        other => return Err(path.refuse(other, &format!("{}.{}", of.package, of.name))),
    };
    // Keys are sorted, as they are after upstream's conversion from YAML.
    for (key, value) in map {
        let join = |path: &str| if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let mut inner = Path { owner: of.name, indexed: join(&path.indexed), dotted: join(&path.dotted) };
        match of.fields.iter().find(|field| field.0 == key) {
            Some(field) => check_type(value, field.1, &mut inner, unknown)?,
            None => unknown.push(format!("unknown field {:?}", inner.indexed)),
        }
    }
    Ok(())
}

fn check_type(value: &Value, kind: FieldType, path: &mut Path, unknown: &mut Vec<String>) -> Result<(), String> {
    let fits = match (kind, value) {
        (_, Value::Null) | (Any, _) => true,
        (Text, value) => value.is_string(),
        (Bool, value) => value.is_boolean(),
        (Int32, value) => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        (Int64, value) => value.is_i64(),
        (Float32, value) => value.is_number(),
        (Duration, Value::String(text)) => return GoDuration::parse(text).map(drop),
        (Duration, value) => {
            let nowhere = Path { owner: "", indexed: String::new(), dotted: String::new() };
            return Err(nowhere.refuse(value, "string"));
        }
        (List(item), Value::Array(list)) => {
            for (i, value) in list.iter().enumerate() {
                let indexed = format!("{}[{i}]", path.indexed);
                let mut inner = Path { owner: path.owner, indexed, dotted: path.dotted.clone() };
                check_type(value, *item, &mut inner, unknown)?;
            }
            true
        }
        (List(_), _) => false,
        (Object(of), value) => return check_object(value, of, path, unknown),
    };
    if fits { Ok(()) } else { Err(path.refuse(value, &go_type(kind))) }
}

fn go_type(kind: FieldType) -> String {
    match kind {
        Text => "string".into(),
        Bool => "bool".into(),
        Int32 => "int32".into(),
        Int64 => "int64".into(),
        Float32 => "float32".into(),
        Duration => "v1.Duration".into(),
        Any => "runtime.RawExtension".into(),
        List(item) => format!("[]{}", go_type(*item)),
        Object(of) => format!("{}.{}", of.package, of.name),
    }
}

/// Writes a checked value as upstream does: zero values of fields that are always written, none of the others.
pub(super) fn write(value: &mut Value, of: &'static Struct) {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(map) = value else { return };
    for Field(name, kind, written) in of.fields {
        let mut inner = map.remove(*name).unwrap_or_default();
        if inner.is_null() && *written != Always {
            continue;
        }
        write_type(&mut inner, *kind);
        if *written == NotEmpty && inner == zero(*kind) {
            continue;
        }
        map.insert((*name).to_owned(), inner);
    }
}

fn write_type(value: &mut Value, kind: FieldType) {
    match (kind, &mut *value) {
        (Object(of), _) => write(value, of),
        (List(item), Value::Array(list)) => list.iter_mut().for_each(|value| write_type(value, *item)),
        (Duration, Value::String(text)) => {
            *value = GoDuration::parse(text).unwrap_or_default().to_string().into();
        }
        (Float32, Value::Number(number)) => {
            // Go writes 50.0 as 50.
            let whole = number.as_f64().filter(|number| number.fract() == 0.0);
            if let Some(whole) = whole {
                *value = (whole as i64).into();
            }
        }
        (_, Value::Null) => *value = zero(kind),
        _ => {}
    }
}

fn zero(kind: FieldType) -> Value {
    match kind {
        Text => "".into(),
        Bool => false.into(),
        Int32 | Int64 | Float32 => 0.into(),
        Duration => "0s".into(),
        Any => Value::Object(Map::new()),
        List(_) => Value::Array(Vec::new()),
        Object(_) => Value::Object(Map::new()),
    }
}
