//! The defaults of a configuration: which plugins run, and how a profile's own sets change that.

use super::{
    API_VERSION, ClientConnection, Configuration, DEFAULT_SCHEDULER_NAME, LeaderElection, PluginRef, PluginSet,
    Plugins, ProfileConfig,
};

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

impl Configuration {
    /// What an empty file says, before defaults that depend on other fields.
    pub(super) fn bare() -> Self {
        Configuration {
            api_version: API_VERSION.to_owned(),
            kind: "KubeSchedulerConfiguration".to_owned(),
            parallelism: 16,
            percentage_of_nodes_to_score: None,
            pod_initial_backoff_seconds: 1,
            pod_max_backoff_seconds: 10,
            profiles: Vec::new(),
            extenders: Vec::new(),
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection::default(),
            enable_profiling: true,
            enable_contention_profiling: true,
            delay_cache_until_active: false,
        }
    }

    /// Applies the defaults that depend on other fields. It is applied exactly once.
    pub(super) fn complete(&mut self) {
        if self.profiles.is_empty() {
            self.profiles.push(ProfileConfig::default());
        }
        if let [only] = self.profiles.as_mut_slice() {
            only.scheduler_name.get_or_insert_with(|| DEFAULT_SCHEDULER_NAME.to_owned());
        }
        for profile in &mut self.profiles {
            profile.plugins = merge_all(std::mem::take(&mut profile.plugins));
        }
    }
}

fn merge_all(custom: Plugins) -> Plugins {
    let enabled = DEFAULT_PLUGINS.map(|(name, weight)| PluginRef { name: name.to_owned(), weight: Some(weight) });
    // Only multiPoint has defaults; merging other sets with nothing leaves them as they are.
    Plugins { multi_point: merge(enabled.into(), custom.multi_point.clone()), ..custom }
}

/// Drops disabled defaults, puts a custom entry in the place of the default of the same name, appends the others.
fn merge(defaults: Vec<PluginRef>, custom: PluginSet) -> PluginSet {
    let disabled = |name: &str| custom.disabled.iter().any(|plugin| plugin.name == name);
    let mut replaced = vec![false; custom.enabled.len()];
    let mut enabled = Vec::new();
    if !disabled("*") {
        for default in defaults.into_iter().filter(|plugin| !disabled(&plugin.name)) {
            match custom.enabled.iter().rposition(|plugin| plugin.name == default.name) {
                Some(at) => {
                    replaced[at] = true;
                    enabled.push(custom.enabled[at].clone());
                }
                None => enabled.push(default),
            }
        }
    }
    enabled.extend(custom.enabled.iter().zip(replaced).filter(|(_, used)| !used).map(|(plugin, _)| plugin.clone()));
    PluginSet { enabled, disabled: custom.disabled }
}
