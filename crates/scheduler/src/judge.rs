//! The plugins as the queue asks them: PreEnqueue, queueing hints and the order of pods.

use std::sync::Arc;

use jiff::Timestamp;

use crate::cluster::{Cluster, PodInfo};
use crate::framework::{AnyPlugin, Changed, ClusterEvent, Cycle, Hint, PluginName, Points, Status};
use crate::measure::Point;
use crate::profile::Profile;
use crate::queue::{Asks, Happening, Judge, QueuedPod, Requeue, SortKey};

/// Asks the profiles' plugins about pods in the queue.
pub(crate) struct Profiles<'a> {
    pub(crate) profiles: &'a [Arc<Profile>],
    pub(crate) cluster: &'a Cluster,
    pub(crate) now: Timestamp,
}

impl Profiles<'_> {
    fn of(&self, pod: &PodInfo) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == pod.spec.scheduler_name).map(|profile| &**profile)
    }

    fn hint(&self, profile: &Profile, plugin: &AnyPlugin, pod: &QueuedPod, happening: &Happening) -> Hint {
        let since = profile.measures.as_ref().and_then(|measures| Some((&measures.all, measures.all.sample_hint()?)));
        let changed = Changed { old: happening.old.as_ref(), new: happening.new.as_ref() };
        let answer = plugin.hint(&self.cycle(&pod.info), &happening.event, &changed);
        if let Some((measures, since)) = since {
            let label = match answer {
                Ok(Hint::Queue) => "Queue",
                Ok(Hint::Skip) => "QueueSkip",
                Err(_) => "Error",
            };
            measures.hinted(since, plugin.name(), &happening.event, label);
        }
        // A plugin that cannot tell does not keep the pod waiting.
        answer.unwrap_or(Hint::Queue)
    }

    fn cycle<'a>(&'a self, pod: &'a PodInfo) -> Cycle<'a> {
        Cycle { pod, cluster: self.cluster, now: self.now }
    }
}

impl Judge for Profiles<'_> {
    fn pre_enqueue(&self, pod: &PodInfo, first: Option<PluginName>) -> Status {
        let Some(profile) = self.of(pod) else { return Status::SUCCESS };
        let plugins = || profile.at(Points::PRE_ENQUEUE).iter().map(|&at| profile.plugin(at));
        let is_first = |plugin: &&AnyPlugin| Some(plugin.name()) == first;
        let in_order = plugins().filter(is_first).chain(plugins().filter(|plugin| !is_first(plugin)));
        let watch = profile.stopwatch();
        let mut answers = in_order.map(|plugin| plugin.pre_enqueue(&self.cycle(pod)));
        let status = answers.find(|status| !status.is_success()).unwrap_or(Status::SUCCESS);
        watch.point(Point::PreEnqueue, status.code);
        status
    }

    fn requeue(&self, pod: &QueuedPod, happening: &Happening) -> Requeue {
        let Some(profile) = self.of(&pod.info) else { return Requeue::Skip };
        let mut best = Requeue::Skip;
        for name in pod.unschedulable_plugins.iter().chain(&pod.pending_plugins) {
            let Some((plugin, registrations)) = profile.registrations(name) else { continue };
            for registration in registrations.iter().filter(|r| r.event.covers(&happening.event)) {
                if !registration.asks || self.hint(profile, plugin, pod, happening) == Hint::Queue {
                    let pending = pod.pending_plugins.contains(name);
                    best = best.max(if pending { Requeue::Now } else { Requeue::AfterBackoff });
                }
            }
        }
        best
    }

    fn anyone_listens(&self, event: &ClusterEvent) -> bool {
        self.profiles.iter().any(|profile| profile.hears_of(event))
    }

    fn listens(&self, pod: &PodInfo, plugin: PluginName, event: &ClusterEvent) -> bool {
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

    fn asks(&self, pod: &QueuedPod, event: &ClusterEvent) -> Asks {
        let Some(profile) = self.of(&pod.info) else { return Asks::Nobody };
        let rejecting = pod.unschedulable_plugins.iter().chain(&pod.pending_plugins);
        let asked = rejecting.filter_map(|name| profile.registrations(name)).flat_map(|(plugin, registrations)| {
            let heard = registrations.iter().filter(|r| r.event.covers(event));
            heard.map(|r| if r.asks && !plugin.hint_reads_shape(event) { Asks::Pod } else { Asks::Shape })
        });
        asked.max().unwrap_or(Asks::Nobody)
    }
}
