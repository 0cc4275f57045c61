//! Nodes that are drained: their pods are evicted as far as disruption budgets allow, and created again.

use std::sync::Arc;

use bayplan_model::label_selector::Selector;
use bayplan_model::pod::Pod;
use bayplan_model::workload::PodDisruptionBudget;
use bayplan_scheduler::Object;

use super::Error;
use super::answer::Stuck;
use super::session::Session;
use super::workloads::counted;

/// The annotation of pods that a kubelet made from a file: nobody can evict them.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether a pod stays when its node is drained: DaemonSets' pods and mirror pods do.
pub(super) fn stays_on_drain(pod: &Pod) -> bool {
    let of_daemon_set = pod.metadata.controller().is_some_and(|owner| owner.kind == "DaemonSet");
    of_daemon_set || pod.metadata.annotations.contains_key(MIRROR)
}

impl Session<'_> {
    /// Cordons nodes, and evicts their pods one after the other: each is created again before the next one leaves, so
    /// that a budget of one allows all of them as long as their successors find nodes.
    pub(super) fn drain(&mut self, names: &[String]) -> Result<String, Error> {
        for name in names {
            self.cordon_one(name)?;
        }
        let mut waiting: Vec<(Arc<Pod>, String)> = Vec::new();
        for name in names {
            let Some(info) = self.state.cluster().node(name) else { continue };
            let mut pods: Vec<Arc<Pod>> =
                info.pods().iter().filter(|pod| !stays_on_drain(pod)).map(|pod| pod.pod.clone()).collect();
            pods.sort_by_key(|pod| pod.metadata.key());
            waiting.extend(pods.into_iter().map(|pod| (pod, name.clone())));
        }
        let count = waiting.len();
        // A pod that was refused may go once the successor of another has found a node.
        loop {
            let before = waiting.len();
            let mut refused: Vec<(Arc<Pod>, String, String)> = Vec::new();
            for (pod, node) in waiting {
                if let Err(why) = self.evict(&pod, &node) {
                    refused.push((pod, node, why));
                }
            }
            if refused.is_empty() || refused.len() == before {
                let stuck = refused.into_iter();
                self.stuck.extend(stuck.map(|(pod, node, why)| Stuck { pod: pod.metadata.key(), node, why }));
                break;
            }
            waiting = refused.into_iter().map(|(pod, node, _)| (pod, node)).collect();
        }
        Ok(format!("drain {}: {} to evict", names.join(", "), counted(count, "pod")))
    }

    /// Evicts a pod as the API's eviction does, and decides its successor; or says what forbids it.
    fn evict(&mut self, pod: &Arc<Pod>, node: &str) -> Result<(), String> {
        let budgets = self.budgets_of(pod);
        let budget = match budgets.as_slice() {
            [] => None,
            // A pod that does not run yet is no loss to a budget.
            _ if pod.status.phase == "Pending" || pod.is_terminating() => None,
            [one] => Some(one.clone()),
            several => {
                let names: Vec<&str> = several.iter().map(|budget| budget.metadata.name.as_str()).collect();
                return Err(format!(
                    "it has more than one PodDisruptionBudget ({}), which an eviction does not support",
                    names.join(", ")
                ));
            }
        };
        if let Some(budget) = &budget {
            if budget.status.disruptions_allowed <= 0 {
                let name = &budget.metadata.name;
                return Err(format!("the PodDisruptionBudget {name} allows no disruption now"));
            }
            self.allow(budget, -1);
        }
        self.remove_pod(&pod.metadata.namespace, &pod.metadata.name);
        // What this question placed here before has to leave again.
        let key = pod.metadata.key();
        self.placed.retain(|placed| placed.pod != key);
        if self.recreate(pod, node.to_owned())
            && let Some(budget) = &budget
        {
            self.allow(budget, 1);
        }
        Ok(())
    }

    /// The budgets that protect a pod.
    fn budgets_of(&self, pod: &Pod) -> Vec<Arc<PodDisruptionBudget>> {
        let budgets = self.state.cluster().objects.disruption_budgets.in_namespace(&pod.metadata.namespace);
        let protects = |budget: &&Arc<PodDisruptionBudget>| {
            Selector::of(budget.spec.selector.as_ref()).is_ok_and(|selector| selector.matches(&pod.metadata.labels))
        };
        budgets.filter(protects).cloned().collect()
    }

    fn allow(&mut self, budget: &PodDisruptionBudget, more: i32) {
        let meta = &budget.metadata;
        let now = self.state.cluster().objects.disruption_budgets.get(&meta.namespace, &meta.name);
        let Some(mut changed) = now.map(|budget| (**budget).clone()) else { return };
        changed.status.disruptions_allowed = changed.status.disruptions_allowed.saturating_add(more);
        self.state.put(Object::PodDisruptionBudget(Arc::new(changed)));
    }
}
