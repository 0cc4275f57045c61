//! The plugins as the queue calls them: PreEnqueue, queueing hints and QueueSort.

use jiff::Timestamp;

use super::profiles::Profiles;
use crate::cluster::{Cluster, PodInfo};
use crate::framework::{
    AnyPlugin, ClusterEvent, Cycle, ExtensionPoints, ObjectChange, PluginName, QueuedPod, QueueingHint, SortKey, Status,
};
use crate::metrics::TimedPoint;
use crate::profile::Profile;
use crate::queue::{ClusterChange, HintScope, QueuePlugins, QueueingStrategy};

/// The plugins of all profiles; a pod's `schedulerName` selects its profile.
pub(crate) struct ProfilePlugins<'a> {
    pub(crate) profiles: &'a Profiles,
    pub(crate) cluster: &'a Cluster,
    pub(crate) now: Timestamp,
}

impl ProfilePlugins<'_> {
    fn of(&self, pod: &PodInfo) -> Option<&Profile> {
        self.profiles.get(&pod.spec.scheduler_name).map(|entry| &*entry.profile)
    }

    fn queueing_hint(
        &self,
        profile: &Profile,
        plugin: &AnyPlugin,
        pod: &QueuedPod,
        change: &ClusterChange,
    ) -> QueueingHint {
        let since = profile.metrics.as_ref().and_then(|metrics| Some((&metrics.all, metrics.all.sample_hint()?)));
        let changed = ObjectChange::of(change.object.as_ref());
        let answer = plugin.queueing_hint(&self.cycle(&pod.info), &change.event, &changed);
        if let Some((metrics, since)) = since {
            let label = match answer {
                Ok(QueueingHint::Queue) => "Queue",
                Ok(QueueingHint::Skip) => "QueueSkip",
                Err(_) => "Error",
            };
            metrics.hint_evaluated(since, plugin.name(), &change.event, label);
        }
        // An error counts as Queue, as upstream has it.
        answer.unwrap_or(QueueingHint::Queue)
    }

    fn cycle<'a>(&'a self, pod: &'a PodInfo) -> Cycle<'a> {
        Cycle { pod, cluster: self.cluster, now: self.now }
    }
}

impl QueuePlugins for ProfilePlugins<'_> {
    fn pre_enqueue(&self, pod: &PodInfo, first: Option<PluginName>) -> Status {
        let Some(profile) = self.of(pod) else { return Status::SUCCESS };
        let plugins = || profile.at(ExtensionPoints::PRE_ENQUEUE).iter().map(|&at| profile.plugin(at));
        let is_first = |plugin: &&AnyPlugin| Some(plugin.name()) == first;
        let in_order = plugins().filter(is_first).chain(plugins().filter(|plugin| !is_first(plugin)));
        let watch = profile.stopwatch();
        let mut answers = in_order.map(|plugin| plugin.pre_enqueue(&self.cycle(pod)));
        let status = answers.find(|status| !status.is_success()).unwrap_or(Status::SUCCESS);
        watch.point(TimedPoint::PreEnqueue, status.code);
        status
    }

    fn queueing_strategy(&self, pod: &QueuedPod, change: &ClusterChange) -> QueueingStrategy {
        let Some(profile) = self.of(&pod.info) else { return QueueingStrategy::Skip };
        let mut best = QueueingStrategy::Skip;
        for name in pod.unschedulable_plugins.iter().chain(&pod.pending_plugins) {
            let Some((plugin, registrations)) = profile.registrations(name) else { continue };
            for registration in registrations.iter().filter(|r| r.event.covers(&change.event)) {
                if !registration.has_hint || self.queueing_hint(profile, plugin, pod, change) == QueueingHint::Queue {
                    let pending = pod.pending_plugins.contains(name);
                    best =
                        best.max(if pending { QueueingStrategy::Immediately } else { QueueingStrategy::AfterBackoff });
                }
            }
        }
        best
    }

    fn any_registered(&self, event: &ClusterEvent) -> bool {
        self.profiles.iter().any(|profile| profile.is_registered(event))
    }

    fn is_registered(&self, pod: &PodInfo, plugin: PluginName, event: &ClusterEvent) -> bool {
        let registrations = self.of(pod).and_then(|profile| profile.registrations(plugin));
        registrations.is_some_and(|(_, list)| list.iter().any(|r| r.event.covers(event)))
    }

    fn waits_for_activation(&self, pod: &PodInfo, plugin: PluginName) -> bool {
        let registrations = self.of(pod).and_then(|profile| profile.registrations(plugin));
        registrations.is_some_and(|(plugin, _)| plugin.gate_waits_for_activation())
    }

    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        self.profiles.first().is_some_and(|profile| profile.queue_sort().less(a, b))
    }

    fn sort_key(&self, pod: &QueuedPod) -> Option<SortKey> {
        self.profiles.first()?.queue_sort().sort_key(pod)
    }

    fn hint_scope(&self, pod: &QueuedPod, event: &ClusterEvent) -> HintScope {
        let Some(profile) = self.of(&pod.info) else { return HintScope::Nobody };
        let rejecting = pod.unschedulable_plugins.iter().chain(&pod.pending_plugins);
        let asked = rejecting.filter_map(|name| profile.registrations(name)).flat_map(|(plugin, registrations)| {
            let registered = registrations.iter().filter(|r| r.event.covers(event));
            registered.map(|r| {
                if r.has_hint && !plugin.hint_reads_signature(event) { HintScope::Pod } else { HintScope::Signature }
            })
        });
        asked.max().unwrap_or(HintScope::Nobody)
    }
}
