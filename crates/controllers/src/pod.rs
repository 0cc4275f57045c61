//! A pod as the control loops read it: small enough to keep tens of thousands of them.

use std::sync::{Arc, LazyLock};

use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::pod::{PodResourceClaim, PodResourceClaimStatus};
use bayplan_model::taint::Toleration;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::resource_claim::ClaimTemplate;

/// The fields of a pod that a control loop reads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "wire::Pod")]
pub struct Pod {
    /// The pod's metadata.
    pub metadata: ObjectMeta,
    /// The node it is bound to; empty while unassigned.
    pub node_name: String,
    /// `status.phase`.
    pub phase: Phase,
    /// Whether condition `Ready` is `True`.
    pub ready: bool,
    /// Since when condition `Ready` has its status.
    pub ready_since: Option<Timestamp>,
    /// The highest restart count of its containers.
    pub restarts: i32,
    /// The highest restart count of its sidecars.
    pub sidecar_restarts: i32,
    /// `spec.terminationGracePeriodSeconds`.
    pub termination_grace_period_seconds: i64,
    /// Since when condition `DisruptionTarget` is `True`. Absent when a kubelet set it: a kubelet's disruption never
    /// becomes stale.
    pub disruption_since: Option<Timestamp>,
    /// `spec.tolerations`.
    pub tolerations: Arc<[Toleration]>,
    /// Whether its kubelet evicted it.
    pub evicted: bool,
    /// The volume claims it names.
    pub volume_claims: Vec<String>,
    /// Its ephemeral volumes, for which claims are created with it.
    pub ephemeral_volumes: Vec<EphemeralVolume>,
    /// `spec.resourceClaims`.
    pub resource_claims: Vec<PodResourceClaim>,
    /// `status.resourceClaimStatuses`: the claims created for it from templates.
    pub resource_claim_statuses: Vec<PodResourceClaimStatus>,
    /// The name of the claim that backs its extended resources, if there is one.
    pub extended_resource_claim: Option<String>,
}

/// An ephemeral volume of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct EphemeralVolume {
    /// The volume's name in the pod.
    pub name: String,
    /// The name of the claim.
    pub claim: String,
    /// `volumeClaimTemplate`.
    pub template: Arc<ClaimTemplate>,
}

/// The tolerations that admission gives to nearly every pod, shared by all of them.
static ADMITTED: LazyLock<Arc<[Toleration]>> = LazyLock::new(|| {
    let toleration = |key: &str| Toleration {
        key: key.into(),
        operator: "Exists".into(),
        effect: "NoExecute".into(),
        toleration_seconds: Some(300),
        ..Toleration::default()
    };
    Arc::new(["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(toleration))
});

fn share(tolerations: Vec<Toleration>) -> Arc<[Toleration]> {
    if tolerations[..] == ADMITTED[..] { ADMITTED.clone() } else { tolerations.into() }
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Accepted, not running yet.
    Pending,
    /// At least one container runs or is restarting.
    Running,
    /// All containers ended with success.
    Succeeded,
    /// All containers ended, at least one with a failure.
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

    /// Succeeded or failed.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Being deleted and not ended yet.
    pub fn is_terminating(&self) -> bool {
        !self.is_terminal() && self.metadata.deletion_timestamp.is_some()
    }

    /// The volume claims it uses: those it names, and those created for its ephemeral volumes.
    pub fn claim_names(&self) -> impl Iterator<Item = &str> {
        let made = self.ephemeral_volumes.iter().map(|volume| volume.claim.as_str());
        self.volume_claims.iter().map(String::as_str).chain(made)
    }

    /// None of its containers runs, and none ever will.
    pub fn is_done(&self) -> bool {
        self.is_terminal() || (self.metadata.deletion_timestamp.is_some() && self.node_name.is_empty())
    }

    /// The time from which the pod counts as available; none while it is not ready or its condition has no time.
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
    use bayplan_model::pod::{ExtendedResourceClaimStatus, PodResourceClaim, PodResourceClaimStatus};
    use bayplan_model::taint::Toleration;
    use jiff::Timestamp;
    use serde::Deserialize;

    use crate::resource_claim::ClaimTemplate;

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
        tolerations: Option<Vec<Toleration>>,
        volumes: Option<Vec<Volume>>,
        resource_claims: Option<Vec<PodResourceClaim>>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Volume {
        name: String,
        persistent_volume_claim: Option<VolumeClaim>,
        ephemeral: Option<Ephemeral>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Ephemeral {
        volume_claim_template: Option<ClaimTemplate>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct VolumeClaim {
        claim_name: String,
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
        reason: String,
        resource_claim_statuses: Option<Vec<PodResourceClaimStatus>>,
        extended_resource_claim_status: Option<ExtendedResourceClaimStatus>,
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
        reason: String,
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
            let Status { phase, conditions, container_statuses, init_container_statuses, .. } = pod.status;
            let (mut volume_claims, mut ephemeral_volumes) = (Vec::new(), Vec::new());
            for volume in pod.spec.volumes.unwrap_or_default() {
                volume_claims.extend(volume.persistent_volume_claim.map(|claim| claim.claim_name));
                if let Some(template) = volume.ephemeral.and_then(|ephemeral| ephemeral.volume_claim_template) {
                    let claim = format!("{}-{}", pod.metadata.name, volume.name);
                    ephemeral_volumes.push(super::EphemeralVolume {
                        name: volume.name,
                        claim,
                        template: template.into(),
                    });
                }
            }
            let conditions = conditions.unwrap_or_default();
            let ready = conditions.iter().find(|c| c.condition_type == "Ready");
            let disrupted = |c: &&Condition| {
                c.condition_type == "DisruptionTarget" && c.status == "True" && c.reason != "TerminationByKubelet"
            };
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
                disruption_since: conditions.iter().find(disrupted).and_then(|c| c.last_transition_time),
                restarts: container_statuses.into_iter().flatten().map(|c| c.restart_count).max().unwrap_or(0),
                sidecar_restarts: init_container_statuses
                    .into_iter()
                    .flatten()
                    .filter(|c| is_sidecar(&c.name))
                    .map(|c| c.restart_count)
                    .max()
                    .unwrap_or(0),
                termination_grace_period_seconds: pod.spec.termination_grace_period_seconds.unwrap_or(0),
                tolerations: super::share(pod.spec.tolerations.unwrap_or_default()),
                evicted: phase == super::Phase::Failed && pod.status.reason == "Evicted",
                volume_claims,
                ephemeral_volumes,
                resource_claims: pod.spec.resource_claims.unwrap_or_default(),
                resource_claim_statuses: pod.status.resource_claim_statuses.unwrap_or_default(),
                extended_resource_claim: pod.status.extended_resource_claim_status.map(|c| c.resource_claim_name),
            }
        }
    }
}
