//! `KubeSchedulerConfiguration` (`kubescheduler.config.k8s.io/v1`): loading, defaulting and merging plugin sets.

pub mod args;
mod defaults;
mod duration;

use serde::Deserialize;
use serde_json::Value;

pub use duration::GoDuration;

use crate::framework::Points;

/// Group and version of the configuration.
pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// The profile of pods that name no scheduler.
pub const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not YAML, or not of the right shape.
    #[error("{0}")]
    Decode(String),
    /// Another kind or version.
    #[error("couldn't decode as KubeSchedulerConfiguration, got {0}: ")]
    Kind(String),
    /// A value out of its range.
    #[error("{field}: Invalid value: {value}: {detail}")]
    Invalid {
        /// Which field.
        field: String,
        /// What was given.
        value: String,
        /// What is allowed.
        detail: &'static str,
    },
    /// A missing value.
    #[error("{0}: Required value")]
    Required(String),
    /// A value given twice.
    #[error("{field}: Duplicate value: {value:?}")]
    Duplicate {
        /// Which field.
        field: String,
        /// What was given.
        value: String,
    },
}

/// The configuration with all defaults applied.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
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
    pub extenders: Vec<Value>,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// How to reach the API server.
    pub client_connection: ClientConnection,
    /// Serves profiles of the process.
    pub enable_profiling: bool,
    /// And of its locks.
    pub enable_contention_profiling: bool,
    /// Opens informers only once leading.
    pub delay_cache_until_active: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        let mut configuration = Configuration::bare();
        configuration.complete();
        configuration
    }
}

/// Who of several schedulers decides.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
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

impl Default for LeaderElection {
    fn default() -> Self {
        LeaderElection {
            leader_elect: true,
            lease_duration: GoDuration::from_secs(15),
            renew_deadline: GoDuration::from_secs(10),
            retry_period: GoDuration::from_secs(2),
            resource_lock: "leases".to_owned(),
            resource_name: "kube-scheduler".to_owned(),
            resource_namespace: "kube-system".to_owned(),
        }
    }
}

/// How to reach the API server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ClientConnection {
    /// The kubeconfig; empty leaves it to the command line.
    pub kubeconfig: String,
    /// Accepted; we ask for JSON.
    pub accept_content_types: String,
    /// Accepted; we send JSON.
    pub content_type: String,
    /// Requests per second of each lane; 0 when not given.
    pub qps: f32,
    /// How many requests a lane may send at once; 0 when not given.
    pub burst: i32,
}

impl ClientConnection {
    /// Requests per second and burst, when a budget was asked for; a negative rate is none, as in client-go.
    pub fn limit(&self) -> Option<(f64, u32)> {
        if self.qps < 0.0 || (self.qps == 0.0 && self.burst == 0) {
            return None;
        }
        let qps = if self.qps == 0.0 { 50.0 } else { self.qps };
        let burst = u32::try_from(self.burst).ok().filter(|burst| *burst > 0).unwrap_or(100);
        Some((f64::from(qps), burst))
    }
}

/// One profile.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
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

/// The arguments of one plugin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PluginConfig {
    /// The plugin.
    pub name: String,
    /// Its arguments.
    pub args: Value,
}

/// The plugins of a profile by extension point.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
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
#[serde(default, deny_unknown_fields)]
pub struct PluginSet {
    /// Those that run, in order.
    pub enabled: Vec<PluginRef>,
    /// Defaults that do not; `*` for all.
    pub disabled: Vec<PluginRef>,
}

/// A plugin by name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PluginRef {
    /// Its name.
    pub name: String,
    /// Its weight in scoring; 0 means 1.
    pub weight: Option<i32>,
}

impl Plugins {
    /// The set of one extension point.
    pub fn set(&self, point: Points) -> &PluginSet {
        match point {
            Points::PRE_ENQUEUE => &self.pre_enqueue,
            Points::QUEUE_SORT => &self.queue_sort,
            Points::PRE_FILTER => &self.pre_filter,
            Points::FILTER => &self.filter,
            Points::POST_FILTER => &self.post_filter,
            Points::PRE_SCORE => &self.pre_score,
            Points::SCORE => &self.score,
            Points::RESERVE => &self.reserve,
            Points::PERMIT => &self.permit,
            Points::PRE_BIND => &self.pre_bind,
            Points::BIND => &self.bind,
            Points::POST_BIND => &self.post_bind,
            _ => &self.multi_point,
        }
    }
}

impl Configuration {
    /// Reads a configuration file (YAML or JSON) and applies all defaults.
    pub fn from_yaml(text: &str) -> Result<Self, Error> {
        let value: Value = serde_saphyr::from_str(text).map_err(|error| Error::Decode(error.to_string()))?;
        Configuration::from_value(value)
    }

    /// Reads a decoded configuration and applies all defaults.
    pub fn from_value(value: Value) -> Result<Self, Error> {
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if version != API_VERSION || kind != "KubeSchedulerConfiguration" {
            return Err(Error::Kind(format!("{version}, Kind={kind}")));
        }
        let mut configuration: Configuration =
            serde_json::from_value(value).map_err(|error| Error::Decode(error.to_string()))?;
        configuration.complete();
        configuration.validate()?;
        Ok(configuration)
    }

    fn validate(&self) -> Result<(), Error> {
        let invalid = |field: &str, value: &dyn ToString, detail| {
            Err(Error::Invalid { field: field.to_owned(), value: value.to_string(), detail })
        };
        if self.parallelism <= 0 {
            return invalid("parallelism", &self.parallelism, "should be an integer value greater than zero");
        }
        if let Some(percentage) = self.percentage_of_nodes_to_score
            && !(0..=100).contains(&percentage)
        {
            return invalid("percentageOfNodesToScore", &percentage, "not in valid range [0-100]");
        }
        if self.pod_initial_backoff_seconds <= 0 {
            let value = self.pod_initial_backoff_seconds;
            return invalid("podInitialBackoffSeconds", &value, "must be greater than 0");
        }
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds {
            return invalid(
                "podMaxBackoffSeconds",
                &self.pod_max_backoff_seconds,
                "must be greater than or equal to PodInitialBackoffSeconds",
            );
        }
        for (i, profile) in self.profiles.iter().enumerate() {
            let field = format!("profiles[{i}].schedulerName");
            let Some(name) = profile.scheduler_name.as_ref().filter(|name| !name.is_empty()) else {
                return Err(Error::Required(field));
            };
            if let Some(first) = self.profiles[..i].iter().position(|p| p.scheduler_name.as_ref() == Some(name)) {
                return Err(Error::Duplicate { field, value: format!("profiles[{first}].schedulerName") });
            }
        }
        Ok(())
    }
}
