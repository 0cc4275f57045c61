//! All profiles of the scheduler, each with its decision engine.

use std::sync::Arc;

use super::Error;
use crate::config::Configuration;
use crate::engine::{DecisionSamples, Engine};
use crate::extender::{Extender, Extenders};
use crate::framework::{PluginName, Registry};
use crate::metrics::{self, Clock, IncomingPods, OwnerMetrics};
use crate::profile::Profile;

/// A profile and the engine that caches its decisions.
pub(crate) struct ProfileEntry {
    pub(super) profile: Arc<Profile>,
    pub(super) engine: Engine,
    samples: DecisionSamples,
}

/// The profiles in the order of the configuration.
pub(crate) struct Profiles(Vec<ProfileEntry>);

impl From<Vec<Profile>> for Profiles {
    fn from(profiles: Vec<Profile>) -> Self {
        let entry = |profile| ProfileEntry {
            profile: Arc::new(profile),
            engine: Engine::default(),
            samples: DecisionSamples::default(),
        };
        Profiles(profiles.into_iter().map(entry).collect())
    }
}

impl Profiles {
    /// Builds the profiles of a configuration.
    pub(super) fn build(
        configuration: &Configuration,
        registry: &Registry,
        mut extenders: Vec<Arc<dyn Extender>>,
    ) -> Result<Self, Error> {
        extenders.sort_by_key(|extender| extender.config().ignorable);
        let extenders = Extenders::from(extenders);
        let ignored = configuration.ignored_by_scheduler();
        let mut profiles: Vec<Profile> = Vec::new();
        for config in &configuration.profiles {
            let name = config.scheduler_name.clone().unwrap_or_default();
            let changed = match ignored.as_slice() {
                [] => None,
                ignored => Some(config.ignoring(ignored).ok_or(Error::NoFitArgs)?),
            };
            let profile = Profile::build(changed.as_ref().unwrap_or(config), registry)
                .map_err(|error| Error::Profile { name, error })?
                .with_extenders(Extenders::clone(&extenders));
            if let Some(first) = profiles.first()
                && first.queue_sort().name() != profile.queue_sort().name()
            {
                let (own, first) = (profile.queue_sort().name(), first.queue_sort().name());
                return Err(Error::QueueSort { name: profile.name.clone(), own, first });
            }
            let plugin = profile.queue_sort().name();
            if config.args(plugin) != configuration.profiles[0].args(plugin) {
                return Err(Error::QueueSortArgs(profile.name.clone()));
            }
            profiles.push(profile);
        }
        Ok(Profiles::from(profiles))
    }

    /// Registers the metrics of all profiles, and gives each profile its own.
    pub(super) fn register_metrics(
        &mut self,
        registry: &bayplan_metrics::Registry,
        clock: Clock,
    ) -> (OwnerMetrics, IncomingPods) {
        let plugins = |profile: &Profile| -> Vec<PluginName> { profile.plugins().iter().map(|p| p.name()).collect() };
        let profiles: Vec<_> = self.iter().map(|profile| (profile.name.clone(), plugins(profile))).collect();
        let registered = metrics::register(&profiles, registry, clock);
        for (entry, metrics) in self.0.iter_mut().zip(registered.profiles) {
            let profile = Arc::get_mut(&mut entry.profile).expect("nobody else holds the profiles of a new scheduler");
            profile.metrics = Some(metrics);
        }
        (registered.owner, registered.incoming)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.0.iter().map(|entry| &entry.profile)
    }

    /// The first profile, whose QueueSort plugin orders the queue.
    pub(super) fn first(&self) -> Option<&Arc<Profile>> {
        self.iter().next()
    }

    pub(super) fn get(&self, scheduler_name: &str) -> Option<&ProfileEntry> {
        self.0.iter().find(|entry| entry.profile.name == scheduler_name)
    }

    /// The index of a profile, for [`Profiles::engine`].
    pub(super) fn index_of(&self, scheduler_name: &str) -> Option<usize> {
        self.0.iter().position(|entry| entry.profile.name == scheduler_name)
    }

    pub(super) fn profile(&self, index: usize) -> &Arc<Profile> {
        &self.0[index].profile
    }

    pub(super) fn engine(&mut self, index: usize) -> &mut Engine {
        &mut self.0[index].engine
    }

    /// Which decisions of a profile's engine are timed.
    pub(super) fn samples(&mut self, index: usize) -> &mut DecisionSamples {
        &mut self.0[index].samples
    }

    /// Reports the decisions that were not timed.
    pub(super) fn report_decisions(&mut self) {
        for ProfileEntry { profile, samples, .. } in &mut self.0 {
            if let Some(metrics) = &profile.metrics {
                samples.flush(metrics);
            }
        }
    }
}
