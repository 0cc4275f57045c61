//! Namespaces, and the objects whose selectors the scheduler reads: services, controllers and disruption budgets.

use std::collections::BTreeMap;

use crate::label_selector::LabelSelector;
use crate::meta::{Map, ObjectMeta};
use crate::view::{has_meta, views};

has_meta!(Namespace, Service, ReplicationController, Controller, PodDisruptionBudget);

views! {
    /// A Namespace; only its labels matter to placement.
    struct Namespace {
        /// Name and labels.
        metadata: ObjectMeta,
    }

    /// A Service.
    struct Service {
        /// Name and namespace.
        metadata: ObjectMeta,
        /// What is wanted.
        spec: ServiceSpec,
    }

    /// What a service wants.
    struct ServiceSpec {
        /// The pods behind it; none for a service without a selector.
        selector: Option<Map>,
    }

    /// A ReplicationController.
    struct ReplicationController {
        /// Name and namespace.
        metadata: ObjectMeta,
        /// What is wanted.
        spec: ReplicationControllerSpec,
    }

    /// What a replication controller wants.
    struct ReplicationControllerSpec {
        selector: Map,
    }

    /// A ReplicaSet or StatefulSet: a controller that owns the pods its selector matches.
    struct Controller {
        /// Name and namespace.
        metadata: ObjectMeta,
        /// What is wanted.
        spec: ControllerSpec,
    }

    /// What a controller wants.
    struct ControllerSpec {
        selector: Option<LabelSelector>,
    }

    /// A PodDisruptionBudget.
    struct PodDisruptionBudget {
        /// Name and namespace.
        metadata: ObjectMeta,
        /// What is wanted.
        spec: PodDisruptionBudgetSpec,
        /// The observed state.
        status: PodDisruptionBudgetStatus,
    }

    /// Whom a budget protects.
    struct PodDisruptionBudgetSpec {
        /// The protected pods.
        selector: Option<LabelSelector>,
    }

    /// What a budget still allows.
    struct PodDisruptionBudgetStatus {
        /// Evictions allowed now.
        disruptions_allowed: i32,
        /// Pods whose eviction was already counted, with the time.
        disrupted_pods: BTreeMap<String, Option<String>>,
    }
}
