//! `KubeSchedulerConfiguration` (`kubescheduler.config.k8s.io/v1`): loading, defaulting and merging plugin sets.

pub mod args;
mod defaults;
mod duration;
mod extender;
mod load;
mod schema;
mod validation;
mod yaml;

use serde::Deserialize;
use serde_json::{Value, json};

pub use duration::GoDuration;
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
    /// Not YAML, of another kind, or with fields nobody knows.
    #[error("{0}")]
    Decode(String),
    /// With values that make no sense.
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
    /// How much of the cluster is scored; 0 and absent mean all of it.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The first backoff of a pod.
    pub pod_initial_backoff_seconds: i64,
    /// The longest backoff of a pod.
    pub pod_max_backoff_seconds: i64,
    /// One per `schedulerName`.
    pub profiles: Vec<ProfileConfig>,
    /// HTTP extenders.
    #[serde(default)]
    pub extenders: Vec<ExtenderConfig>,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// How to reach the API server.
    pub client_connection: ClientConnection,
    /// Serves profiles of the process.
    pub enable_profiling: bool,
    /// And of its locks.
    pub enable_contention_profiling: bool,
    /// Opens informers only once leading.
    #[serde(default)]
    pub delay_cache_until_active: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        let empty = json!({ "apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration" });
        Configuration::from_value(empty).expect("the defaults are valid")
    }
}

/// Who of several schedulers decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderElection {
    /// Whether there is an election at all.
    pub leader_elect: bool,
    /// How long others wait before they take over.
    pub lease_duration: GoDuration,
    /// How long a leader tries to renew before it stops.
    pub renew_deadline: GoDuration,
    /// The time between two tries.
    pub retry_period: GoDuration,
    /// Always `leases`.
    pub resource_lock: String,
    /// The Lease.
    pub resource_name: String,
    /// Its namespace.
    pub resource_namespace: String,
}

/// How to reach the API server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConnection {
    /// The kubeconfig; empty leaves it to the command line.
    pub kubeconfig: String,
    /// Accepted; we ask for JSON.
    pub accept_content_types: String,
    /// Accepted; we send JSON.
    pub content_type: String,
    /// Requests per second of each lane.
    pub qps: f32,
    /// How many requests a lane may send at once.
    pub burst: i32,
    /// Whether somebody chose them: defaults are no choice.
    #[serde(skip)]
    pub chosen: bool,
}

impl ClientConnection {
    /// Requests per second and burst, when somebody asked for a budget. Upstream's defaults of 50 and 100 are known to
    /// hold schedulers up: they count only when they are chosen. A negative rate is none, as in client-go.
    pub fn limit(&self) -> Option<(f64, u32)> {
        let burst = u32::try_from(self.burst).unwrap_or(0);
        (self.qps > 0.0 && self.chosen).then_some((f64::from(self.qps), burst))
    }
}

/// One profile.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileConfig {
    /// The `schedulerName` of its pods.
    pub scheduler_name: Option<String>,
    /// Overrides the global percentage.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Which plugins, in which order.
    pub plugins: Plugins,
    /// Their arguments.
    pub plugin_config: Vec<PluginConfig>,
}

impl ProfileConfig {
    /// The arguments of a plugin.
    pub fn args(&self, plugin: &str) -> Option<&Value> {
        self.plugin_config.iter().find(|config| config.name == plugin).map(|config| &config.args)
    }

    /// The same profile with NodeResourcesFit ignoring these resources and no others; none when it has no arguments.
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
    /// The plugin.
    pub name: String,
    /// Its arguments.
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
    /// Those that run, in order.
    pub enabled: Vec<PluginRef>,
    /// Defaults that do not; `*` for all.
    pub disabled: Vec<PluginRef>,
}

/// A plugin by name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PluginRef {
    /// Its name.
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
    /// The resources that extenders take care of, so that NodeResourcesFit shall not.
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
    fn requests_are_throttled_only_when_somebody_chose_a_budget() {
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
    fn strange_files_are_refused_and_never_fatal() {
        for text in ["", "[]", "null", "- a", "a: b", "{", "\t", "kind: [1]\napiVersion: {}", "? [a]: b"] {
            assert!(Configuration::from_yaml(text).is_err(), "{text:?}");
        }
        for fields in [
            json!({ "profiles": [null] }),
            json!({ "profiles": [{ "plugins": null, "pluginConfig": [null] }] }),
            json!({ "profiles": [{ "plugins": { "score": { "enabled": [null] }, "multiPoint": null } }] }),
            json!({ "leaderElection": null, "clientConnection": null, "extenders": [null] }),
        ] {
            // Whatever the verdict, there is one.
            let _ = configured(fields);
        }
    }

    #[test]
    fn every_error_is_told() {
        let wrong = json!({ "parallelism": 0, "podInitialBackoffSeconds": 0 });
        let error = configured(wrong).unwrap_err().to_string();
        assert!(error.starts_with("[parallelism: ") && error.contains(", podInitialBackoffSeconds: "), "{error}");
    }
}
