//! Permit: assumed pods whose binding plugins delay; upstream's `waitingPod`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Scheduler;
use super::failure::with_extension_point;
use crate::bind::Binding;
use crate::config::GoDuration;
use crate::framework::{Code, Cycle, ExtensionPoints, PluginName, Status};
use crate::metrics::TimedPoint;

/// The longest wait for Permit, whatever timeout a plugin asks for.
const PERMIT_TIMEOUT_MAX: Duration = Duration::from_secs(15 * 60);

/// An assumed pod that Permit plugins delay.
pub(super) struct WaitingPod {
    pub(super) binding: Binding,
    /// The plugins that have not approved the pod yet.
    pub(super) pending_plugins: Vec<PendingPlugin>,
    /// When the wait began, in nanoseconds on the metrics' clock.
    pub(super) since: u64,
}

/// A plugin that delays a pod.
pub(super) struct PendingPlugin {
    name: PluginName,
    deadline: Timestamp,
    timeout: Duration,
}

/// The outcome of all Permit plugins.
pub(super) enum PermitOutcome {
    Approved,
    Wait(Vec<PendingPlugin>),
    Rejected(Status),
}

impl WaitingPod {
    /// When the first pending plugin times out.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.pending_plugins.iter().map(|plugin| plugin.deadline).min()
    }
}

impl Scheduler {
    pub(super) fn permit(&self, binding: &mut Binding, now: Timestamp) -> PermitOutcome {
        let mut pending_plugins = Vec::new();
        let profile = Arc::clone(&binding.profile);
        let watch = profile.stopwatch();
        for &plugin in profile.at(ExtensionPoints::PERMIT) {
            let cycle = Cycle { pod: &binding.assumed, cluster: &self.cluster, now };
            let answer = binding.states.get_mut(plugin).permit(&cycle, &binding.node);
            match answer.status.code {
                Code::Success => {}
                Code::Wait => {
                    let timeout = answer.timeout.min(PERMIT_TIMEOUT_MAX);
                    let deadline = now.saturating_add(timeout).unwrap_or(now);
                    pending_plugins.push(PendingPlugin { name: answer.status.plugin, deadline, timeout });
                }
                code => {
                    watch.point(TimedPoint::Permit, code);
                    return PermitOutcome::Rejected(with_extension_point("Permit", answer.status));
                }
            }
        }
        watch.point(TimedPoint::Permit, if pending_plugins.is_empty() { Code::Success } else { Code::Wait });
        if pending_plugins.is_empty() { PermitOutcome::Approved } else { PermitOutcome::Wait(pending_plugins) }
    }

    /// Approves a waiting pod on behalf of a Permit plugin; the last approval starts the binding.
    pub fn allow(&mut self, uid: &str, plugin: PluginName) {
        let Some(waiting) = self.waiting.get_mut(uid) else { return };
        waiting.pending_plugins.retain(|pending| pending.name != plugin);
        if waiting.pending_plugins.is_empty()
            && let Some(waiting) = self.waiting.remove(uid)
        {
            self.report_permit_wait(waiting.since, Code::Success);
            self.start_binding(waiting.binding);
        }
    }

    /// Rejects a waiting pod on behalf of a Permit plugin.
    pub fn reject(&mut self, uid: &str, plugin: PluginName, reason: String, now: Timestamp) {
        self.reject_waiting(uid, Status::unschedulable(reason).by(plugin), now);
    }

    /// Rejects the waiting pods whose time is up.
    pub(super) fn expire_waiting(&mut self, now: Timestamp) {
        let expired: Vec<(String, Status)> = self
            .waiting
            .iter()
            .filter_map(|(uid, waiting)| {
                let late = waiting.pending_plugins.iter().find(|plugin| plugin.deadline <= now)?;
                let (waited, plugin) = (GoDuration::from(late.timeout), late.name);
                let text = format!("rejected due to timeout after waiting {waited} at plugin {plugin}");
                Some((uid.clone(), Status::unschedulable(text).by(plugin)))
            })
            .collect();
        for (uid, status) in expired {
            self.reject_waiting(&uid, status, now);
        }
    }

    pub(super) fn reject_waiting(&mut self, uid: &str, status: Status, now: Timestamp) {
        if let Some(waiting) = self.waiting.remove(uid) {
            self.report_permit_wait(waiting.since, status.code);
            self.fail_binding_cycle(waiting.binding, status, now);
        }
    }

    fn report_permit_wait(&self, since: u64, code: Code) {
        if let Some(metrics) = &self.metrics {
            metrics.all.permit_waited(since, code);
        }
    }
}
