//! Retries on request. In virtual time an attempt takes no time: after each event every rejected pod would be tried
//! again, in vain but for one or two. A shell that knows this says itself which pods are tried, and asks first whether
//! they fit.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use jiff::Timestamp;

use super::Scheduler;
use super::queue_plugins::ProfilePlugins;
use crate::cluster::PodInfo;
use crate::cycle::filter::Search;
use crate::engine::DecisionInput;
use crate::queue::QueueStage;

impl Scheduler {
    /// Leaves it to the shell to try rejected pods again ([`Scheduler::schedule_pod`]): no event moves them. Gates open
    /// by themselves, and so do the backoffs of attempts that ended with an error.
    #[must_use]
    pub fn with_retries_on_request(mut self) -> Self {
        self.queue.hold_rejected();
        self
    }

    /// Tries a pod that is in the queue, in whatever stage but gated; false when it is not.
    pub fn schedule_pod(&mut self, uid: &str, now: Timestamp) -> bool {
        if self.queue.stage(uid) == Some(QueueStage::Gated) {
            return false;
        }
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        let Some(pod) = self.queue.pop_pod(uid, &plugins) else { return false };
        self.schedule(pod, now);
        true
    }

    /// A pod with what is computed from it, shared with the pods of its template that came before.
    pub fn pod_info(&mut self, pod: Arc<Pod>) -> Arc<PodInfo> {
        self.pod_infos.info(pod)
    }

    /// Whether some node would take a pod now, without preemption; none when only an attempt can tell.
    pub fn fits(&mut self, pod: &PodInfo, now: Timestamp) -> Option<bool> {
        let at = self.profiles.index_of(&pod.spec.scheduler_name)?;
        let profile = Arc::clone(self.profiles.profile(at));
        let search = Search { start: self.next_start, percentage: profile.percentage.or(self.percentage) };
        if !search.is_exhaustive() {
            return None;
        }
        let nominator = &self.queue.nominator;
        let input = DecisionInput::new(&profile, &self.cluster, nominator, pod, now);
        self.profiles.engine(at).fits(input)
    }
}
