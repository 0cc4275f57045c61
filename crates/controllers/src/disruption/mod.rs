//! PodDisruptionBudgets: how many of the pods they protect may be evicted right now.
//!
//! Without this status the API server refuses every eviction of a protected pod, and `kubectl drain` never ends.

mod expected;
mod stale;
mod status;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::int_or_string::IntOrString;
use bayplan_model::label_selector::Selector;
use bayplan_model::meta::{HasMeta, ObjectMeta};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, split_key};
use crate::discovery::Resources;
use crate::error::Error;
use crate::pod::Pod;
use crate::requests::{self, POD_DISRUPTION_BUDGETS};
use crate::workload::{self, event_reference};

const API_VERSION: &str = "policy/v1";
const KIND: &str = "PodDisruptionBudget";

/// A `policy/v1` PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    pub api_version: String,
    pub kind: String,
    pub metadata: ObjectMeta,
    pub spec: BudgetSpec,
    pub status: BudgetStatus,
}

/// `PodDisruptionBudget.spec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<IntOrString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// Selects no pod when absent, all of the namespace when empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<workload::Selector>,
}

/// `PodDisruptionBudget.status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    pub observed_generation: i64,
    /// When the eviction of a pod was granted, by name, until the pod is seen to terminate.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disrupted_pods: BTreeMap<String, Timestamp>,
    pub disruptions_allowed: i32,
    pub current_healthy: i32,
    pub desired_healthy: i32,
    pub expected_pods: i32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// `metav1.Condition`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub condition_type: String,
    pub status: String,
    pub observed_generation: i64,
    pub last_transition_time: Option<Timestamp>,
    pub reason: String,
    pub message: String,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            api_version: API_VERSION.into(),
            kind: KIND.into(),
            metadata: ObjectMeta::default(),
            spec: BudgetSpec::default(),
            status: BudgetStatus::default(),
        }
    }
}

impl HasMeta for Budget {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Budget {
    fn protects(&self, pod: &Pod) -> bool {
        self.spec.selector.as_ref().is_some_and(|selector| selector.matches(&pod.metadata.labels))
    }
}

/// The disruption controller.
pub struct DisruptionController {
    cache: Arc<Cache>,
    resources: Resources,
}

impl DisruptionController {
    /// A controller over this cache; `resources` locate the scale subresource of other kinds of controllers.
    pub fn new(cache: Arc<Cache>, resources: Resources) -> Self {
        DisruptionController { cache, resources }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(budget) = self.cache.budgets().get(namespace, name) else { return Ok(Requeue::OnChange) };
        let pods: Vec<Arc<Pod>> =
            self.cache.pods().namespace(namespace).filter(|pod| budget.protects(pod)).cloned().collect();
        let regarding = || event_reference(API_VERSION, KIND, &budget.metadata);
        if pods.is_empty() {
            context.normal(regarding(), "NoPods", "No matching pods found".into());
        }
        let counted = match self.expected(&budget, &pods, context).await {
            Ok(counted) => counted,
            Err(error) => {
                let note = format!("Failed to calculate the number of expected pods: {error}");
                context.warning(regarding(), "CalculateExpectedPodCountFailed", note);
                // How many may be disrupted is unknown, so none may.
                write(&budget, status::failed(&budget, &error, context.second()), context).await?;
                return Err(error);
            }
        };
        if counted.unmanaged {
            let selector = budget.spec.selector.as_ref().map(|selector| Selector::of(Some(selector.source())));
            let selector = selector.and_then(Result::ok).map_or_else(String::new, |selector| selector.to_string());
            let note = format!(
                "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a \
                 result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. \
                 To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
            );
            context.warning(regarding(), "UnmanagedPods", note);
        }
        let disrupted = status::disrupted(&budget, &pods, context);
        let recheck = disrupted.values().min().map(|at| *at + status::DISRUPTION_TIMEOUT);
        write(&budget, status::calculate(&budget, &pods, counted, disrupted, context), context).await?;
        let wait = |at: Timestamp| Requeue::After(at.duration_since(context.now).try_into().unwrap_or_default());
        Ok(recheck.map_or(Requeue::OnChange, wait))
    }

    /// The budgets that protect a pod.
    fn protecting(&self, pod: &Pod) -> Vec<Wakeup> {
        let budgets = self.cache.budgets();
        let protecting = budgets.namespace(&pod.metadata.namespace).filter(|budget| budget.protects(pod));
        protecting.map(|budget| Wakeup::now(budget.metadata.key())).collect()
    }
}

async fn write(budget: &Budget, status: BudgetStatus, context: Context<'_>) -> Result<(), Error> {
    if status == budget.status {
        return Ok(());
    }
    let changed = Budget { status, ..budget.clone() };
    // On a conflict the watch delivers the newer budget, perhaps with an eviction granted meanwhile.
    requests::update_status(context.api, &POD_DISRUPTION_BUDGETS, &budget.metadata, &changed).await?;
    Ok(())
}

impl Controller for DisruptionController {
    fn name(&self) -> &'static str {
        "disruption-controller"
    }

    /// Events carry upstream's older name of the controller.
    fn component(&self) -> &'static str {
        "controllermanager"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Budget, Kind::Pod, Kind::ReplicaSet, Kind::Deployment]
    }

    fn workers(&self) -> usize {
        1
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Budget(Delta::Added(budget) | Delta::Updated { new: budget, .. }) => {
                vec![Wakeup::now(budget.metadata.key())]
            }
            AnyDelta::Pod(Delta::Added(pod) | Delta::Updated { new: pod, .. }) => {
                self.protecting(pod).into_iter().chain(stale::wakeup(pod)).collect()
            }
            AnyDelta::Pod(Delta::Deleted(pod)) => self.protecting(pod),
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        match stale::pod_key(key) {
            Some(pod) => Box::pin(self.clear_stale(pod, context)),
            None => Box::pin(self.reconcile(key, context)),
        }
    }
}
