//! The scheduler's profiles, as the questions use them.

use std::sync::Arc;

use bayplan_scheduler::Registry;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::{Profile, ProfileError};

/// Why profiles cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("the profile {name}: {error}")]
pub struct ProfilesError {
    name: String,
    #[source]
    error: ProfileError,
}

/// The profiles of a configuration, by `schedulerName`.
#[derive(Clone)]
pub struct Profiles(Vec<Arc<Profile>>);

impl Profiles {
    /// Builds all profiles of a configuration. Its extenders are not called.
    pub fn build(configuration: &Configuration, registry: &Registry) -> Result<Self, ProfilesError> {
        let build = |config| {
            Profile::build(config, registry).map(Arc::new).map_err(|error| {
                let name = config.scheduler_name.clone().unwrap_or_default();
                ProfilesError { name, error }
            })
        };
        configuration.profiles.iter().map(build).collect::<Result<_, _>>().map(Profiles)
    }

    /// The profile that schedules pods of this `schedulerName`.
    pub fn get(&self, scheduler_name: &str) -> Option<&Arc<Profile>> {
        self.0.iter().find(|profile| profile.name == scheduler_name)
    }

    /// The first profile.
    pub fn first(&self) -> Option<&Arc<Profile>> {
        self.0.first()
    }
}
