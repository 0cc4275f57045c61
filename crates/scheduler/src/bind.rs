//! The binding cycle: PreBind, Bind and PostBind of one pod, run outside the thread that owns the cluster.

use std::sync::Arc;

use bayplan_model::api::EventType;
use futures::future::join_all;

use crate::cluster::PodInfo;
use crate::effect::{Shell, StatusUpdate, event};
use crate::framework::{BindContext, Code, CycleStates, Points, Status};
use crate::profile::Profile;
use crate::queue::QueuedPod;

/// A pod on its way to its node.
pub struct Binding {
    pub(crate) profile: Arc<Profile>,
    pub(crate) pod: QueuedPod,
    /// The pod as assumed on the node.
    pub(crate) assumed: Arc<PodInfo>,
    pub(crate) node: String,
    pub(crate) states: CycleStates,
}

/// How a binding cycle ended; the pod comes back with everything needed to undo it.
pub struct BindOutcome {
    pub(crate) binding: Binding,
    /// Success, or what went wrong.
    pub status: Status,
}

impl BindOutcome {
    /// The pod's UID.
    pub fn uid(&self) -> &str {
        self.binding.pod.info.uid()
    }
}

impl Binding {
    /// The pod, as `namespace/name`.
    pub fn pod_key(&self) -> String {
        self.pod.info.key()
    }

    /// The node it is bound to.
    pub fn node(&self) -> &str {
        &self.node
    }

    pub(crate) async fn run(self, shell: Shell<'_>) -> BindOutcome {
        let status = self.bind(shell).await;
        BindOutcome { binding: self, status }
    }

    async fn bind(&self, shell: Shell<'_>) -> Status {
        let cx = BindContext {
            pod: &self.assumed,
            node: &self.node,
            api: shell.api,
            recorder: shell.recorder,
            timer: shell.timer,
        };
        let groups = match self.pre_flight() {
            Ok(groups) => groups,
            Err(status) => return status,
        };
        if !groups.is_empty() {
            // Tells others (and a successor of this process) where the pod is expected; nothing depends on it.
            StatusUpdate::nominate(&self.pod.info, &self.node).run(shell).await;
        }
        for group in groups {
            let running = group.iter().map(|&plugin| async move {
                let status = self.states.get(plugin).pre_bind(cx).await;
                self.named(plugin, "PreBind", status)
            });
            if let Some(failed) = join_all(running).await.into_iter().find(|status| !status.is_success()) {
                return failed;
            }
        }
        let status = self.run_bind(cx).await;
        if status.is_success() {
            let note = format!("Successfully assigned {} to {}", self.pod.info.key(), self.node);
            shell.recorder.record(event(&self.pod.info, EventType::Normal, "Scheduled", "Binding", note));
            for &plugin in self.profile.at(Points::POST_BIND) {
                self.states.get(plugin).post_bind(cx).await;
            }
        }
        status
    }

    /// PreBind plugins with something to do, grouped: neighbours that allow it run together.
    fn pre_flight(&self) -> Result<Vec<Vec<usize>>, Status> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut open = false;
        for &plugin in self.profile.at(Points::PRE_BIND) {
            let answer = self.states.get(plugin).pre_bind_pre_flight(&self.assumed, &self.node);
            match answer.status.code {
                Code::Skip => continue,
                Code::Success => {}
                _ => {
                    let name = self.profile.plugin(plugin).name();
                    let text = format!("running PreBindPreFlight {name:?}: {}", answer.status);
                    return Err(Status::error(text).by(name));
                }
            }
            match groups.last_mut().filter(|_| open && answer.allow_parallel) {
                Some(group) => group.push(plugin),
                None => groups.push(vec![plugin]),
            }
            open = answer.allow_parallel;
        }
        Ok(groups)
    }

    async fn run_bind(&self, cx: BindContext<'_>) -> Status {
        for &plugin in self.profile.at(Points::BIND) {
            let status = self.states.get(plugin).bind(cx).await;
            if !status.is_skip() {
                return self.named(plugin, "Bind", status);
            }
        }
        Status::error("no Bind plugin took the pod")
    }

    /// Rejections pass through; errors say which plugin failed where.
    fn named(&self, plugin: usize, point: &str, status: Status) -> Status {
        let name = self.profile.plugin(plugin).name();
        if status.is_success() || status.is_rejected() {
            return status.by(name);
        }
        Status::error(format!("running {point} plugin {name:?}: {status}")).by(name)
    }
}
