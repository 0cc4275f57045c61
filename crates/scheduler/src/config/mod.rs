//! `KubeSchedulerConfiguration` (`kubescheduler.config.k8s.io/v1`): loading, defaulting and merging plugin sets.

pub mod args;
mod defaults;
mod extender;
mod load;
mod schema;
mod validation;
mod yaml;

use serde::Deserialize;
use serde_json::{Value, json};

pub use bayplan_model::go_duration::GoDuration;
pub use extender::{ExtenderConfig, ExtenderTls, ManagedResource};
pub use load::{chooses_budget, load};
pub(crate) use validation::validate_args;
pub use validation::{aggregate, validate};

use crate::framework::ExtensionPoints;

/// Group and version of the configuration.
pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// The profile of pods that name no scheduler.
pub const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not YAML, is of another kind, or has unknown fields.
    #[error("{0}")]
    Decode(String),
    /// Some of its values are invalid.
    #[error("{}", aggregate(.0))]
    Invalid(Vec<String>),
}

/// The configuration with all defaults applied.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always `KubeSchedulerConfiguration`.
    pub kind: String,
    /// Upstream's number of filtering goroutines; accepted and not needed.
    pub parallelism: i32,
    /// The percentage of nodes that a search has to find feasible; 0 and absent mean all of them.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The backoff after the first failed attempt of a pod.
    pub pod_initial_backoff_seconds: i64,
    /// The longest backoff of a pod.
    pub pod_max_backoff_seconds: i64,
    /// The profiles, one for each `schedulerName`.
    pub profiles: Vec<ProfileConfig>,
    /// HTTP extenders, in the order in which they are called.
    #[serde(default)]
    pub extenders: Vec<ExtenderConfig>,
    /// How one of several schedulers becomes the leader.
    pub leader_election: LeaderElection,
    /// How to reach the API server.
    pub client_connection: ClientConnection,
    /// Accepted and ignored: nothing is served at `/debug/pprof`.
    pub enable_profiling: bool,
    /// Accepted and ignored, likewise.
    pub enable_contention_profiling: bool,
    /// Starts the informers only once this scheduler leads.
    #[serde(default)]
    pub delay_cache_until_active: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        let empty = json!({ "apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration" });
        Configuration::from_value(empty).expect("the defaults are valid")
    }
}

/// How one of several schedulers becomes the leader.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderElection {
    /// False runs without a Lease.
    pub leader_elect: bool,
    /// How long others wait after the last renewal before they take over.
    pub lease_duration: GoDuration,
    /// How long a leader tries to renew its Lease before it stops.
    pub renew_deadline: GoDuration,
    /// The time between two tries.
    pub retry_period: GoDuration,
    /// Always `leases`.
    pub resource_lock: String,
    /// The name of the Lease.
    pub resource_name: String,
    /// The namespace of the Lease.
    pub resource_namespace: String,
}

/// How to reach the API server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConnection {
    /// The path of the kubeconfig; when empty, the command line decides.
    pub kubeconfig: String,
    /// Accepted and ignored: requests ask for JSON.
    pub accept_content_types: String,
    /// Accepted and ignored: requests send JSON.
    pub content_type: String,
    /// Requests per second of each lane.
    pub qps: f32,
    /// How many requests a lane may send at once.
    pub burst: i32,
    /// True when the file sets `qps` or `burst`, rather than defaulting.
    #[serde(skip)]
    pub chosen: bool,
}

impl ClientConnection {
    /// Requests per second and burst, when the file sets them. Upstream's defaults of 50 and 100 slow schedulers down,
    /// so they do not apply unless chosen. A negative rate means no limit, as in client-go.
    pub fn limit(&self) -> Option<(f64, u32)> {
        let burst = u32::try_from(self.burst).unwrap_or(0);
        (self.qps > 0.0 && self.chosen).then_some((f64::from(self.qps), burst))
    }
}

/// A profile as configured.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileConfig {
    /// The `schedulerName` of its pods.
    pub scheduler_name: Option<String>,
    /// Overrides the global percentage.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The plugin sets.
    pub plugins: Plugins,
    /// The arguments of plugins.
    pub plugin_config: Vec<PluginConfig>,
}

impl ProfileConfig {
    /// A copy without PostFilter plugins: nobody makes way for its pods.
    #[must_use]
    pub fn without_preemption(&self) -> Self {
        let mut profile = self.clone();
        let all = PluginRef { name: "*".into(), ..PluginRef::default() };
        profile.plugins.post_filter = PluginSet { enabled: Vec::new(), disabled: vec![all] };
        profile
    }

    /// The arguments of a plugin.
    pub fn args(&self, plugin: &str) -> Option<&Value> {
        self.plugin_config.iter().find(|config| config.name == plugin).map(|config| &config.args)
    }

    /// A copy in which NodeResourcesFit ignores exactly these resources; none when it has no arguments.
    pub(crate) fn ignoring(&self, resources: &[&str]) -> Option<Self> {
        let mut profile = self.clone();
        let fit = profile.plugin_config.iter_mut().find(|config| config.name == "NodeResourcesFit")?;
        fit.args.as_object_mut()?.insert("ignoredResources".into(), json!(resources));
        Some(profile)
    }
}

/// The arguments of one plugin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PluginConfig {
    /// The name of the plugin.
    pub name: String,
    /// The arguments, with defaults where the plugin is known.
    pub args: Value,
}

/// The plugins of a profile by extension point.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Plugins {
    pub pre_enqueue: PluginSet,
    pub queue_sort: PluginSet,
    pub pre_filter: PluginSet,
    pub filter: PluginSet,
    pub post_filter: PluginSet,
    pub pre_score: PluginSet,
    pub score: PluginSet,
    pub reserve: PluginSet,
    pub permit: PluginSet,
    pub pre_bind: PluginSet,
    pub bind: PluginSet,
    pub post_bind: PluginSet,
    pub multi_point: PluginSet,
    pub placement_generate: PluginSet,
    pub placement_score: PluginSet,
}

/// The plugins of one extension point.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PluginSet {
    /// The plugins that run, in order.
    pub enabled: Vec<PluginRef>,
    /// Default plugins that do not run; `*` means all of them.
    pub disabled: Vec<PluginRef>,
}

/// An entry of a plugin set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PluginRef {
    /// The name of the plugin.
    pub name: String,
    /// Its weight in scoring; 0 means 1.
    pub weight: Option<i32>,
}

impl Plugins {
    /// The set of one extension point.
    pub fn set(&self, point: ExtensionPoints) -> &PluginSet {
        match point {
            ExtensionPoints::PRE_ENQUEUE => &self.pre_enqueue,
            ExtensionPoints::QUEUE_SORT => &self.queue_sort,
            ExtensionPoints::PRE_FILTER => &self.pre_filter,
            ExtensionPoints::FILTER => &self.filter,
            ExtensionPoints::POST_FILTER => &self.post_filter,
            ExtensionPoints::PRE_SCORE => &self.pre_score,
            ExtensionPoints::SCORE => &self.score,
            ExtensionPoints::RESERVE => &self.reserve,
            ExtensionPoints::PERMIT => &self.permit,
            ExtensionPoints::PRE_BIND => &self.pre_bind,
            ExtensionPoints::BIND => &self.bind,
            ExtensionPoints::POST_BIND => &self.post_bind,
            ExtensionPoints::PLACEMENT_GENERATE => &self.placement_generate,
            ExtensionPoints::PLACEMENT_SCORE => &self.placement_score,
            _ => &self.multi_point,
        }
    }
}

impl Configuration {
    /// The resources that NodeResourcesFit ignores because an extender manages them.
    pub(crate) fn ignored_by_scheduler(&self) -> Vec<&str> {
        let managed = self.extenders.iter().flat_map(|extender| &extender.managed_resources);
        managed.filter(|resource| resource.ignored_by_scheduler).map(|resource| resource.name.as_str()).collect()
    }

    /// Reads a configuration file (YAML or JSON) and applies all defaults.
    pub fn from_yaml(text: &str) -> Result<Self, Error> {
        let mut configuration = Configuration::from_completed(load(text)?)?;
        configuration.client_connection.chosen = chooses_budget(text);
        Ok(configuration)
    }

    /// Reads a decoded configuration and applies all defaults.
    pub fn from_value(value: Value) -> Result<Self, Error> {
        Configuration::from_yaml(&value.to_string())
    }

    /// Validates and reads a configuration that [`load`] has completed.
    pub fn from_completed(value: Value) -> Result<Self, Error> {
        let errors = validate(&value);
        if !errors.is_empty() {
            return Err(Error::Invalid(errors));
        }
        serde_json::from_value(value).map_err(|error| Error::Decode(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(fields: Value) -> Result<Configuration, Error> {
        let mut config = json!({ "apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration" });
        for (name, value) in fields.as_object().unwrap() {
            config[name] = value.clone();
        }
        Configuration::from_yaml(&config.to_string())
    }

    #[test]
    fn requests_are_limited_only_when_the_file_sets_a_limit() {
        for (connection, expected) in [
            (json!({}), None),
            (json!({ "qps": 0, "burst": 0 }), None),
            (json!({ "qps": 50, "burst": 100 }), Some((50.0, 100))),
            (json!({ "qps": 20 }), Some((20.0, 100))),
            (json!({ "burst": 7 }), Some((50.0, 7))),
            (json!({ "qps": -1 }), None),
        ] {
            let configuration = configured(json!({ "clientConnection": connection })).unwrap();
            assert_eq!(configuration.client_connection.limit(), expected, "{connection}");
        }
    }

    #[test]
    fn malformed_files_are_refused_without_a_panic() {
        for text in ["", "[]", "null", "- a", "a: b", "{", "\t", "kind: [1]\napiVersion: {}", "? [a]: b"] {
            assert!(Configuration::from_yaml(text).is_err(), "{text:?}");
        }
        for fields in [
            json!({ "profiles": [null] }),
            json!({ "profiles": [{ "plugins": null, "pluginConfig": [null] }] }),
            json!({ "profiles": [{ "plugins": { "score": { "enabled": [null] }, "multiPoint": null } }] }),
            json!({ "leaderElection": null, "clientConnection": null, "extenders": [null] }),
        ] {
            // Refused or not, there is no panic.
            let _ = configured(fields);
        }
    }

    #[test]
    fn all_errors_are_reported() {
        let wrong = json!({ "parallelism": 0, "podInitialBackoffSeconds": 0 });
        let error = configured(wrong).unwrap_err().to_string();
        assert!(error.starts_with("[parallelism: ") && error.contains(", podInitialBackoffSeconds: "), "{error}");
    }

    #[test]
    fn a_shape_is_quoted_in_the_order_of_upstreams_fields() {
        let ratio = json!({ "shape": [{ "utilization": 0, "score": 7 }, { "utilization": 100 }] });
        let args = json!({ "scoringStrategy": { "type": "MostAllocated", "requestedToCapacityRatio": ratio } });
        let error = validation::validate_args("NodeResourcesFit", &args).unwrap_err();
        let shown =
            r#"Invalid value: {"Shape":[{"Utilization":0,"Score":7},{"Utilization":100,"Score":0}]}: must be nil"#;
        assert!(error.contains(shown), "{error}");
    }
}
