//! A pod as the control loops read it: small enough to keep tens of thousands of them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::pod::{PodResourceClaim, PodResourceClaimStatus};
use bayplan_model::taint::Toleration;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use crate::pod_network::{NamedPort, Network};
use crate::resource_claim::ClaimTemplate;

/// The fields of a pod that a control loop reads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "wire::Pod")]
pub struct Pod {
    /// The pod's metadata.
    pub metadata: ObjectMeta,
    /// The node it is bound to; empty while unassigned.
    pub node_name: String,
    /// The node that required node affinity names while it is unassigned; empty when it names none or several.
    pub intended_node: String,
    /// `status.phase`.
    pub phase: Phase,
    /// Whether condition `Ready` is `True`.
    pub ready: bool,
    /// Since when condition `Ready` has its status.
    pub ready_since: Option<Timestamp>,
    /// What condition `Ready` says.
    pub readiness: Readiness,
    /// `status.startTime`.
    pub started_at: Option<Timestamp>,
    /// What it requests.
    pub requests: Requests,
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
    /// Whether it has ended, or is deleted and none of its containers runs.
    pub is_stopped: bool,
    /// Whether its kubelet evicted it.
    pub evicted: bool,
    /// The volume claims it names.
    pub volume_claims: Vec<VolumeClaim>,
    /// Its ephemeral volumes, for which claims are created with it.
    pub ephemeral_volumes: Vec<EphemeralVolume>,
    /// `spec.resourceClaims`.
    pub resource_claims: Vec<PodResourceClaim>,
    /// `status.resourceClaimStatuses`: the claims created for it from templates.
    pub resource_claim_statuses: Vec<PodResourceClaimStatus>,
    /// The name of the claim that backs its extended resources, if there is one.
    pub extended_resource_claim: Option<String>,
    /// The restarts of all its containers and init containers together.
    pub restarts_total: i32,
    /// How it ended or is ending; none of a pod that is well.
    pub termination: Option<Box<Termination>>,
    /// How it is reached; none of a pod without an address or a name for one.
    pub network: Option<Box<Network>>,
}

/// What condition `Ready` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// There is no such condition.
    #[default]
    Absent,
    /// `True`, or not known.
    NotFalse,
    /// `False`.
    False,
}

/// What a pod requests, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// By container: the containers, then the sidecars.
    pub containers: Vec<ContainerRequests>,
    /// Of the pod as a whole, if it says so.
    pub of_pod: Option<BTreeMap<String, i64>>,
}

/// What a container requests, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequests {
    /// The container.
    pub name: String,
    /// By resource.
    pub requests: BTreeMap<String, i64>,
}

/// How a pod ended, or why it is not ready.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Termination {
    /// The containers that ended, init containers last.
    pub containers: Vec<TerminatedContainer>,
    /// When the last container and sidecar ended; none while one of them runs.
    pub finished_at: Option<Timestamp>,
    /// Since when condition `Ready` is `False`.
    pub not_ready_since: Option<Timestamp>,
    /// Type and status of its conditions.
    pub conditions: Vec<(String, String)>,
}

/// A container that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminatedContainer {
    /// Its name.
    pub name: String,
    /// Its exit code.
    pub exit_code: i32,
}

/// A volume of a pod that is a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeClaim {
    /// The volume's name in the pod.
    pub volume: String,
    /// The name of the claim.
    pub claim: String,
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

    /// The node it runs on, or will once the scheduler has bound it to the only node that its affinity names.
    pub fn target_node(&self) -> Option<&str> {
        let name = if self.node_name.is_empty() { &self.intended_node } else { &self.node_name };
        (!name.is_empty()).then_some(name)
    }

    /// The volume claims it uses: those it names, and those created for its ephemeral volumes.
    pub fn claim_names(&self) -> impl Iterator<Item = &str> {
        let made = self.ephemeral_volumes.iter().map(|volume| volume.claim.as_str());
        self.volume_claims.iter().map(|volume| volume.claim.as_str()).chain(made)
    }

    /// Its addresses.
    pub fn ips(&self) -> &[IpAddr] {
        self.network.as_ref().map_or(&[], |network| &network.ips)
    }

    /// Its own host name, if it has one, and the subdomain in which that counts.
    pub fn hostname(&self) -> (&str, &str) {
        self.network.as_ref().map_or(("", ""), |network| (&network.hostname, &network.subdomain))
    }

    /// The number of the port of this name and protocol.
    pub fn named_port(&self, name: &str, protocol: &str) -> Option<i32> {
        let mut ports = self.network.as_ref()?.ports.iter();
        ports.find(|port| port.name == name && port.protocol == protocol).map(|port| port.number)
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

    use std::collections::BTreeMap;

    use bayplan_model::affinity::NodeAffinity;
    use bayplan_model::meta::ObjectMeta;
    use bayplan_model::pod::{ExtendedResourceClaimStatus, PodResourceClaim, PodResourceClaimStatus};
    use bayplan_model::quantity::Quantity;
    use bayplan_model::taint::Toleration;
    use jiff::Timestamp;
    use serde::Deserialize;
    use serde::de::IgnoredAny;
    use serde_json::Value;

    use crate::resource_claim::ClaimTemplate;
    use crate::service::parse_ip;

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
        hostname: String,
        subdomain: String,
        affinity: Option<Affinity>,
        containers: Option<Vec<Container>>,
        init_containers: Option<Vec<Container>>,
        resources: Option<Resources>,
        termination_grace_period_seconds: Option<i64>,
        tolerations: Option<Vec<Toleration>>,
        volumes: Option<Vec<Volume>>,
        resource_claims: Option<Vec<PodResourceClaim>>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Affinity {
        node_affinity: Option<NodeAffinity>,
    }

    impl Spec {
        /// The value of the first requirement on the node's name, if it is a single one.
        fn intended_node(&self) -> Option<&String> {
            if !self.node_name.is_empty() {
                return None;
            }
            let required = self.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
            let mut fields = required.node_selector_terms.iter().flat_map(|term| &term.match_fields);
            let name = fields.find(|field| field.key == "metadata.name" && field.operator == "In")?;
            if let [name] = name.values.as_slice() { Some(name) } else { None }
        }
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
    struct Container {
        name: String,
        restart_policy: Option<String>,
        ports: Option<Vec<ContainerPort>>,
        resources: Option<Resources>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct ContainerPort {
        name: String,
        protocol: String,
        container_port: i32,
    }

    impl Container {
        fn is_sidecar(&self) -> bool {
            self.restart_policy.as_deref() == Some("Always")
        }
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Resources {
        requests: Option<BTreeMap<String, Value>>,
    }

    /// What can be read of a list of requests; what cannot must not hide the pod.
    fn milli(resources: Option<&Resources>) -> BTreeMap<String, i64> {
        let requests = resources.and_then(|resources| resources.requests.as_ref()).into_iter().flatten();
        let read = |(name, amount): (&String, &Value)| {
            let amount = Quantity::deserialize(amount).ok()?;
            Some((name.clone(), amount.milli_value()))
        };
        requests.filter_map(read).collect()
    }

    /// What the containers, the sidecars and the pod as a whole request.
    fn requests(
        containers: &[Container],
        init_containers: &[Container],
        of_pod: Option<&Resources>,
    ) -> super::Requests {
        let sidecars = init_containers.iter().filter(|it| it.is_sidecar());
        let all = containers.iter().map(|it| (&it.name, it.resources.as_ref()));
        let all = all.chain(sidecars.map(|it| (&it.name, it.resources.as_ref())));
        let of_pod = milli(of_pod);
        // Only these make a pod's own requests take the place of its containers'.
        let counts = |name: &String| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-");
        super::Requests {
            containers: all
                .map(|(name, resources)| super::ContainerRequests { name: name.clone(), requests: milli(resources) })
                .collect(),
            of_pod: of_pod.keys().any(counts).then_some(of_pod),
        }
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Status {
        phase: super::Phase,
        reason: String,
        #[serde(rename = "podIP")]
        pod_ip: String,
        #[serde(rename = "podIPs")]
        pod_ips: Option<Vec<PodIp>>,
        resource_claim_statuses: Option<Vec<PodResourceClaimStatus>>,
        extended_resource_claim_status: Option<ExtendedResourceClaimStatus>,
        start_time: Option<Timestamp>,
        conditions: Option<Vec<Condition>>,
        container_statuses: Option<Vec<ContainerStatus>>,
        init_container_statuses: Option<Vec<ContainerStatus>>,
        #[serde(rename = "ephemeralContainerStatuses")]
        ephemeral: Option<Vec<ContainerStatus>>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct PodIp {
        ip: String,
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
        state: Option<ContainerState>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct ContainerState {
        terminated: Option<ContainerTerminated>,
        waiting: Option<IgnoredAny>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct ContainerTerminated {
        exit_code: i32,
        finished_at: Option<Timestamp>,
    }

    impl ContainerStatus {
        fn terminated(&self) -> Option<&ContainerTerminated> {
            self.state.as_ref()?.terminated.as_ref()
        }

        /// Not known to wait or to have ended.
        fn may_run(&self) -> bool {
            let waits = self.state.as_ref().is_some_and(|state| state.waiting.is_some());
            !waits && self.terminated().is_none()
        }
    }

    /// Whether a pod has ended, or is deleted and none of its containers may run.
    fn is_stopped(phase: super::Phase, deleted: bool, statuses: [&Vec<ContainerStatus>; 3]) -> bool {
        let ended = matches!(phase, super::Phase::Succeeded | super::Phase::Failed);
        ended || (deleted && !statuses.into_iter().flatten().any(ContainerStatus::may_run))
    }

    /// When the last of these ended, if all of them did; `before` is when others did.
    fn last_end<'a>(
        before: Option<Timestamp>,
        mut containers: impl Iterator<Item = &'a ContainerStatus>,
    ) -> Option<Timestamp> {
        containers.try_fold(before, |last, one| {
            let end = one.terminated().and_then(|terminated| terminated.finished_at)?;
            Some(last.max(Some(end)))
        })?
    }

    /// What is kept of a pod's end; nothing of a pod that is well.
    fn termination<'a>(
        phase: super::Phase,
        deleted: bool,
        conditions: &[Condition],
        containers: &'a [ContainerStatus],
        init_containers: &'a [ContainerStatus],
        is_sidecar: impl Fn(&str) -> bool,
    ) -> Option<Box<super::Termination>> {
        let both = || containers.iter().chain(init_containers);
        let not_ready = conditions.iter().find(|c| c.condition_type == "Ready").filter(|c| c.status == "False");
        let ended = matches!(phase, super::Phase::Succeeded | super::Phase::Failed) || deleted;
        if !ended && not_ready.is_none() && both().all(|container| container.terminated().is_none()) {
            return None;
        }
        let kept = |container: &ContainerStatus| {
            let exit_code = container.terminated()?.exit_code;
            Some(super::TerminatedContainer { name: container.name.clone(), exit_code })
        };
        let sidecars = init_containers.iter().filter(|container| is_sidecar(&container.name));
        Some(Box::new(super::Termination {
            containers: both().filter_map(kept).collect(),
            // Upstream goes on to the sidecars although a container runs, and takes their end for the pod's.
            finished_at: last_end(last_end(None, containers.iter()), sidecars),
            not_ready_since: not_ready.and_then(|c| c.last_transition_time),
            conditions: conditions.iter().map(|c| (c.condition_type.clone(), c.status.clone())).collect(),
        }))
    }

    /// How the pod is reached, if at all.
    fn network(spec: &mut Spec, pod_ip: &str, pod_ips: Option<Vec<PodIp>>) -> Option<Box<super::Network>> {
        let listed = pod_ips.unwrap_or_default();
        let mut ips: Vec<_> = listed.iter().filter_map(|one| parse_ip(&one.ip)).collect();
        if listed.is_empty() {
            ips.extend(parse_ip(pod_ip));
        }
        let sidecars = spec.init_containers.iter_mut().flatten().filter(|container| container.is_sidecar());
        let containers = spec.containers.iter_mut().flatten().chain(sidecars);
        let ports = containers.flat_map(|container| container.ports.take().unwrap_or_default());
        let ports = ports.filter(|port| !port.name.is_empty()).map(|port| super::NamedPort {
            name: port.name,
            protocol: port.protocol,
            number: port.container_port,
        });
        let network = super::Network {
            ips,
            hostname: std::mem::take(&mut spec.hostname),
            subdomain: std::mem::take(&mut spec.subdomain),
            ports: ports.collect(),
        };
        (network != super::Network::default()).then(|| Box::new(network))
    }

    impl From<Pod> for super::Pod {
        fn from(mut pod: Pod) -> Self {
            let intended_node = pod.spec.intended_node().cloned().unwrap_or_default();
            let network = network(&mut pod.spec, &pod.status.pod_ip, pod.status.pod_ips.take());
            let Status { phase, conditions, container_statuses, init_container_statuses, ephemeral, .. } = pod.status;
            let (mut volume_claims, mut ephemeral_volumes) = (Vec::new(), Vec::new());
            for volume in pod.spec.volumes.unwrap_or_default() {
                if let Some(claim) = volume.persistent_volume_claim {
                    let (volume, claim) = (volume.name.clone(), claim.claim_name);
                    volume_claims.push(super::VolumeClaim { volume, claim });
                }
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
            let is_sidecar = |name: &str| init_containers.iter().any(|c| c.name == name && c.is_sidecar());
            let containers = container_statuses.unwrap_or_default();
            let init_statuses = init_container_statuses.unwrap_or_default();
            let deleted = pod.metadata.deletion_timestamp.is_some();
            let spec_containers = pod.spec.containers.unwrap_or_default();
            let readiness = match ready {
                None => super::Readiness::Absent,
                Some(condition) if condition.status == "False" => super::Readiness::False,
                Some(_) => super::Readiness::NotFalse,
            };
            super::Pod {
                is_stopped: is_stopped(phase, deleted, [&containers, &init_statuses, &ephemeral.unwrap_or_default()]),
                requests: requests(&spec_containers, &init_containers, pod.spec.resources.as_ref()),
                readiness,
                started_at: pod.status.start_time,
                termination: termination(phase, deleted, &conditions, &containers, &init_statuses, is_sidecar),
                restarts_total: containers
                    .iter()
                    .chain(&init_statuses)
                    .fold(0, |sum: i32, c| sum.saturating_add(c.restart_count)),
                metadata: pod.metadata,
                node_name: pod.spec.node_name,
                intended_node,
                phase,
                ready: ready.as_ref().is_some_and(|c| c.status == "True"),
                ready_since: ready.and_then(|c| c.last_transition_time),
                disruption_since: conditions.iter().find(disrupted).and_then(|c| c.last_transition_time),
                restarts: containers.iter().map(|c| c.restart_count).max().unwrap_or(0),
                sidecar_restarts: init_statuses
                    .iter()
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
                network,
            }
        }
    }
}
