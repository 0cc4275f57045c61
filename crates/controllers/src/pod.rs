//! A pod as the control loops read it: small enough to keep tens of thousands of them.

use bayplan_model::meta::{HasMeta, ObjectMeta};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The part of a pod that decides something in a control loop.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "wire::Pod")]
pub struct Pod {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The node it is bound to; empty while unassigned.
    pub node_name: String,
    /// Where it stands in its life.
    pub phase: Phase,
    /// Whether condition `Ready` is `True`.
    pub ready: bool,
    /// Since when condition `Ready` has its status.
    pub ready_since: Option<Timestamp>,
    /// The highest restart count of its containers.
    pub restarts: i32,
    /// The highest restart count of its sidecars.
    pub sidecar_restarts: i32,
    /// How long it may take to stop.
    pub termination_grace_period_seconds: i64,
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Accepted, not running yet.
    Pending,
    /// At least one container runs or is restarting.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, at least one badly.
    Failed,
    /// The node does not answer.
    Unknown,
    /// Not set, or a phase this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl Pod {
    /// Neither ended nor being deleted: it counts as a replica.
    pub fn is_active(&self) -> bool {
        !self.is_terminal() && self.metadata.deletion_timestamp.is_none()
    }

    /// Ended, well or badly.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Being deleted and not ended yet.
    pub fn is_terminating(&self) -> bool {
        !self.is_terminal() && self.metadata.deletion_timestamp.is_some()
    }

    /// When the pod has been ready for long enough; nothing while it is not ready or does not say since when.
    pub fn available_at(&self, min_ready_seconds: i32) -> Option<Timestamp> {
        let since = self.ready.then_some(self.ready_since).flatten()?;
        Timestamp::from_second(since.as_second().saturating_add(i64::from(min_ready_seconds))).ok()
    }

    /// Ready for at least `min_ready_seconds`.
    pub fn is_available(&self, min_ready_seconds: i32, now: Timestamp) -> bool {
        self.ready && (min_ready_seconds == 0 || self.available_at(min_ready_seconds).is_some_and(|at| at <= now))
    }
}

impl HasMeta for Pod {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

mod wire {
    //! The JSON form of the fields that are read.

    use bayplan_model::meta::ObjectMeta;
    use jiff::Timestamp;
    use serde::Deserialize;

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Pod {
        metadata: ObjectMeta,
        spec: Spec,
        status: Status,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Spec {
        node_name: String,
        init_containers: Option<Vec<InitContainer>>,
        termination_grace_period_seconds: Option<i64>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct InitContainer {
        name: String,
        restart_policy: Option<String>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Status {
        phase: super::Phase,
        conditions: Option<Vec<Condition>>,
        container_statuses: Option<Vec<ContainerStatus>>,
        init_container_statuses: Option<Vec<ContainerStatus>>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Condition {
        #[serde(rename = "type")]
        condition_type: String,
        status: String,
        last_transition_time: Option<Timestamp>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct ContainerStatus {
        name: String,
        restart_count: i32,
    }

    impl From<Pod> for super::Pod {
        fn from(pod: Pod) -> Self {
            let Status { phase, conditions, container_statuses, init_container_statuses } = pod.status;
            let ready = conditions.unwrap_or_default().into_iter().find(|c| c.condition_type == "Ready");
            let init_containers = pod.spec.init_containers.unwrap_or_default();
            let is_sidecar = |name: &str| {
                init_containers.iter().any(|c| c.name == name && c.restart_policy.as_deref() == Some("Always"))
            };
            super::Pod {
                metadata: pod.metadata,
                node_name: pod.spec.node_name,
                phase,
                ready: ready.as_ref().is_some_and(|c| c.status == "True"),
                ready_since: ready.and_then(|c| c.last_transition_time),
                restarts: container_statuses.into_iter().flatten().map(|c| c.restart_count).max().unwrap_or(0),
                sidecar_restarts: init_container_statuses
                    .into_iter()
                    .flatten()
                    .filter(|c| is_sidecar(&c.name))
                    .map(|c| c.restart_count)
                    .max()
                    .unwrap_or(0),
                termination_grace_period_seconds: pod.spec.termination_grace_period_seconds.unwrap_or(0),
            }
        }
    }
}
