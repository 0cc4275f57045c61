//! The scheduler's profiles, as the questions use them.

use std::sync::Arc;

use bayplan_scheduler::Registry;
use bayplan_scheduler::config::args::{DefaultPreemptionArgs, read};
use bayplan_scheduler::config::{Configuration, ProfileConfig};
use bayplan_scheduler::inspect::{Profile, ProfileError};
use serde_json::Value;

/// Why profiles cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("the profile {name}: {error}")]
pub struct ProfilesError {
    name: String,
    #[source]
    error: ProfileError,
}

/// How many nodes the DefaultPreemption plugin of a profile tries.
pub(crate) type Preempting = DefaultPreemptionArgs;

/// The profiles of a configuration, by `schedulerName`.
#[derive(Clone)]
pub struct Profiles(Vec<(Arc<Profile>, Preempting)>);

impl Profiles {
    /// Builds all profiles of a configuration. Its extenders are not called.
    pub fn build(configuration: &Configuration, registry: &Registry) -> Result<Self, ProfilesError> {
        let build = |config: &ProfileConfig| {
            let profile = Profile::build(config, registry).map(Arc::new).map_err(|error| {
                let name = config.scheduler_name.clone().unwrap_or_default();
                ProfilesError { name, error }
            })?;
            // Arguments that cannot be read were refused when the plugin was built.
            let preempting = read(config.args("DefaultPreemption").unwrap_or(&Value::Null)).unwrap_or_default();
            Ok((profile, preempting))
        };
        configuration.profiles.iter().map(build).collect::<Result<_, _>>().map(Profiles)
    }

    /// The profile that schedules pods of this `schedulerName`.
    pub fn get(&self, scheduler_name: &str) -> Option<&Arc<Profile>> {
        self.0.iter().map(|(profile, _)| profile).find(|profile| profile.name == scheduler_name)
    }

    /// The first profile.
    pub fn first(&self) -> Option<&Arc<Profile>> {
        self.0.first().map(|(profile, _)| profile)
    }

    /// How many nodes the DefaultPreemption plugin of a profile tries.
    pub(crate) fn preempting(&self, scheduler_name: &str) -> Preempting {
        let found = self.0.iter().find(|(profile, _)| profile.name == scheduler_name);
        found.map(|(_, preempting)| *preempting).unwrap_or_default()
    }
}
