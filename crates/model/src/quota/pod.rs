//! What a pod counts for.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::{Scope, Usage, number};
use crate::meta::ObjectMeta;
use crate::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, ResourceList, is_extended};

const NAMES: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];

/// Extended resources that stand for a class of devices.
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

pub(super) fn is_counted_by(name: &str) -> bool {
    let huge = name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
    let extended = name.strip_prefix("requests.").is_some_and(|resource| {
        let native = !name.contains('/') || name.contains("kubernetes.io/");
        !native || resource.starts_with(DEVICE_CLASS)
    });
    NAMES.contains(&name) || huge || extended
}

/// A pod as quotas see it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "wire::Pod")]
pub struct PodMeasure {
    /// Which one it is.
    pub metadata: ObjectMeta,
    /// The sum of its requests.
    pub requests: ResourceList,
    /// The sum of its limits.
    pub limits: ResourceList,
    /// Whether it has ended.
    pub is_terminal: bool,
    /// When it should be gone, if it is being deleted; from then on only its object counts.
    pub gone_at: Option<Timestamp>,
    /// Whether it has a deadline.
    pub has_deadline: bool,
    /// Whether its quality of service is `BestEffort`.
    pub best_effort: bool,
    /// Whether its affinity speaks of pods in other namespaces.
    pub crosses_namespaces: bool,
    /// Its priority class; empty for none.
    pub priority_class: String,
}

impl PodMeasure {
    /// Whether it uses resources, and not only has an object.
    pub fn uses_resources(&self, now: Timestamp) -> bool {
        !self.is_terminal && self.gone_at.is_none_or(|at| now <= at)
    }

    /// What it counts for at a time.
    pub fn usage(&self, now: Timestamp) -> Usage {
        let mut used = Usage::from([("count/pods".to_owned(), number(1))]);
        if !self.uses_resources(now) {
            return used;
        }
        used.insert("pods".into(), number(1));
        for (name, amount) in &self.requests {
            let named = matches!(name.as_str(), CPU | MEMORY | EPHEMERAL_STORAGE) || name.starts_with("hugepages-");
            if named {
                used.insert(name.clone(), amount.clone());
            }
            if named || is_extended(name) || name.starts_with(DEVICE_CLASS) {
                used.insert(format!("requests.{name}"), amount.clone());
            }
        }
        for (name, amount) in &self.limits {
            if matches!(name.as_str(), CPU | MEMORY | EPHEMERAL_STORAGE) {
                used.insert(format!("limits.{name}"), amount.clone());
            }
        }
        used
    }

    /// Whether it is in a scope.
    pub fn is_in(&self, scope: &Scope) -> bool {
        match scope.scope_name.as_str() {
            "Terminating" => self.has_deadline,
            "NotTerminating" => !self.has_deadline,
            "BestEffort" => self.best_effort,
            "NotBestEffort" => !self.best_effort,
            "PriorityClass" => scope.accepts(Some(self.priority_class.as_str()).filter(|class| !class.is_empty())),
            "CrossNamespacePodAffinity" => self.crosses_namespaces,
            _ => false,
        }
    }
}

fn gone_at(deleted: Option<Timestamp>, grace_seconds: Option<i64>) -> Option<Timestamp> {
    let (deleted, grace) = (deleted?, grace_seconds?);
    Some(deleted.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX))
}

mod wire {
    use crate::affinity::{Affinity, PodAffinityTerm};
    use crate::meta::ObjectMeta;
    use crate::pod::{self, Container};
    use crate::resources::{self, RequestRules, ResourceList, ResourceRequirements};
    use crate::view::views;

    views! {
        /// The JSON form of what is read.
        struct Pod {
            metadata: ObjectMeta,
            spec: PodSpec,
            status: PodStatus,
        }

        struct PodSpec {
            containers: Vec<Container>,
            init_containers: Vec<Container>,
            overhead: ResourceList,
            resources: Option<ResourceRequirements>,
            active_deadline_seconds: Option<i64>,
            priority_class_name: String,
            affinity: Option<Affinity>,
        }

        struct PodStatus {
            phase: String,
            qos_class: String,
            conditions: Vec<pod::PodCondition>,
            container_statuses: Vec<pod::ContainerStatus>,
            init_container_statuses: Vec<pod::ContainerStatus>,
            resources: Option<ResourceRequirements>,
            allocated_resources: ResourceList,
        }
    }

    /// What kubelets say counts before what can be computed.
    fn is_best_effort(spec: &PodSpec, qos_class: &str) -> bool {
        if !qos_class.is_empty() {
            return qos_class == "BestEffort";
        }
        let asks = |resources: &ResourceRequirements| {
            let lists = [&resources.requests, &resources.limits].into_iter();
            let compute = lists.flat_map(|list| [resources::CPU, resources::MEMORY].map(|name| list.get(name)));
            compute.flatten().any(|amount| amount.sign() > 0)
        };
        let containers = spec.containers.iter().chain(&spec.init_containers).map(|container| &container.resources);
        !containers.chain(&spec.resources).any(asks)
    }

    fn crosses_namespaces(affinity: &Affinity) -> bool {
        let elsewhere = |term: &PodAffinityTerm| !term.namespaces.is_empty() || term.namespace_selector.is_some();
        let both = [
            affinity.pod_affinity.as_ref().map(|to| (&to.required, &to.preferred)),
            affinity.pod_anti_affinity.as_ref().map(|from| (&from.required, &from.preferred)),
        ];
        both.into_iter().flatten().any(|(required, preferred)| {
            required.iter().any(elsewhere) || preferred.iter().any(|term| elsewhere(&term.pod_affinity_term))
        })
    }

    impl From<Pod> for super::PodMeasure {
        fn from(Pod { metadata, spec, status }: Pod) -> Self {
            let best_effort = is_best_effort(&spec, &status.qos_class);
            let crosses_namespaces = spec.affinity.as_ref().is_some_and(crosses_namespaces);
            let is_terminal = matches!(status.phase.as_str(), "Succeeded" | "Failed");
            let whole = pod::Pod {
                spec: pod::PodSpec {
                    containers: spec.containers,
                    init_containers: spec.init_containers,
                    overhead: spec.overhead,
                    resources: spec.resources,
                    ..pod::PodSpec::default()
                },
                status: pod::PodStatus {
                    conditions: status.conditions,
                    container_statuses: status.container_statuses,
                    init_container_statuses: status.init_container_statuses,
                    resources: status.resources,
                    allocated_resources: status.allocated_resources,
                    ..pod::PodStatus::default()
                },
                ..pod::Pod::default()
            };
            let rules = RequestRules { with_status: true, ..RequestRules::default() };
            super::PodMeasure {
                gone_at: super::gone_at(metadata.deletion_timestamp, metadata.deletion_grace_period_seconds),
                metadata: super::super::identity(metadata),
                requests: rules.requests(&whole),
                limits: resources::limits(&whole),
                is_terminal,
                has_deadline: spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0),
                best_effort,
                crosses_namespaces,
                priority_class: spec.priority_class_name,
            }
        }
    }
}
