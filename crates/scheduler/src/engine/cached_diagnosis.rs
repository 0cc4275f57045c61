//! Why no node fits pods of one signature, and which preemptions would help: cached by node for the next such pod.
//!
//! The statuses are those of the plain cycle's filters and the candidates those of its dry runs. Only nodes that
//! changed, or to which other pods are nominated, are filtered again.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::DecisionInput;
use super::change_reader::{ChangeReader, ChangedNodes};
use super::evaluate::NotCacheable;
use super::scoreboard::Scoreboard;
use crate::cluster::NodeId;
use crate::cycle::filter::Filters;
use crate::framework::preemption::CandidateCache;
use crate::framework::{Code, Diagnosis, PluginName, PostFilter, Status};

/// The diagnosis of pods of one signature that no node fits.
#[derive(Default)]
pub(crate) struct CachedDiagnosis {
    reader: ChangeReader,
    /// The version of the PodDisruptionBudgets that the candidates were computed with.
    budgets_version: u64,
    /// What the filters answered.
    pub(crate) diagnosis: Diagnosis,
    /// How many nodes each plugin rejected: as Unschedulable, and as Pending.
    rejections: BTreeMap<PluginName, [usize; 2]>,
    names: FxHashMap<NodeId, Arc<str>>,
    pub(super) candidates: CandidateCache,
    /// PostFilter's answer, when it could not help and nothing has changed since.
    pub(super) preemption_cannot_help: Option<PostFilter>,
}

impl CachedDiagnosis {
    /// Filters the nodes again that changed since the last call.
    pub(super) fn catch_up(&mut self, scoreboard: &Scoreboard, input: &DecisionInput<'_>) -> Result<(), NotCacheable> {
        let cluster = input.cluster;
        let changed = match self.reader.read(cluster, input.nominator) {
            ChangedNodes::Known { nodes, objects_changed } => {
                if objects_changed {
                    self.candidates.forget_potential();
                }
                nodes
            }
            ChangedNodes::Unknown => {
                *self = CachedDiagnosis { reader: self.reader, ..CachedDiagnosis::default() };
                (0..cluster.slot_count()).map(|slot| NodeId(slot as u32)).collect()
            }
        };
        self.candidates.resize(cluster.slot_count());
        let budgets_version = cluster.objects.disruption_budgets.version();
        if budgets_version != self.budgets_version {
            self.budgets_version = budgets_version;
            self.candidates.forget_dry_runs();
            self.preemption_cannot_help = None;
        }
        if !changed.is_empty() {
            self.preemption_cannot_help = None;
            self.filter_again(&changed, scoreboard, input)?;
        }
        self.diagnosis.node_count = cluster.node_count();
        self.diagnosis.post_filter_message.clear();
        Ok(())
    }

    fn filter_again(
        &mut self,
        changed: &[NodeId],
        scoreboard: &Scoreboard,
        input: &DecisionInput<'_>,
    ) -> Result<(), NotCacheable> {
        // First forget all: a slot may have passed from one node to another, and a name from one slot to another.
        let before: Vec<Code> = changed.iter().map(|node| self.candidates.code(*node)).collect();
        changed.iter().for_each(|node| self.forget_node(*node));
        for node in changed {
            self.filter_node(scoreboard, input, *node)?;
        }
        if changed.iter().zip(before).any(|(node, before)| self.candidates.code(*node) != before) {
            self.candidates.forget_potential();
        }
        self.update_plugin_sets();
        Ok(())
    }

    fn update_plugin_sets(&mut self) {
        let plugins = |at: usize| self.rejections.iter().filter(move |(_, n)| n[at] > 0).map(|(plugin, _)| *plugin);
        self.diagnosis.unschedulable_plugins = plugins(0).collect();
        self.diagnosis.pending_plugins = plugins(1).collect();
    }

    fn filter_node(
        &mut self,
        scoreboard: &Scoreboard,
        input: &DecisionInput<'_>,
        id: NodeId,
    ) -> Result<(), NotCacheable> {
        let Some(node) = input.cluster.node_by_id(id) else { return Ok(()) };
        let filters = Filters::new(input.profile, input.cycle().cycle, input.nominator);
        let status = filters.run_with_nominated(&scoreboard.states, node);
        if !status.is_rejected() {
            return Err(NotCacheable);
        }
        self.candidates.set_code(id, status.code);
        self.count(&status, 1);
        self.names.insert(id, node.name.clone());
        self.diagnosis.statuses.nodes.insert(node.name.clone(), status);
        Ok(())
    }

    fn forget_node(&mut self, id: NodeId) {
        self.candidates.forget_node(id);
        let Some(name) = self.names.remove(&id) else { return };
        if let Some(status) = self.diagnosis.statuses.nodes.remove(&name) {
            self.count(&status, -1);
        }
    }

    fn count(&mut self, status: &Status, by: isize) {
        let reasons = self.diagnosis.reasons.get_or_insert_default();
        for reason in &status.reasons {
            let count = reasons.entry(reason.clone()).or_default();
            *count = count.saturating_add_signed(by);
            if *count == 0 {
                reasons.remove(reason);
            }
        }
        if !status.plugin.is_empty() {
            let pending = usize::from(status.code == Code::Pending);
            let nodes = &mut self.rejections.entry(status.plugin).or_default()[pending];
            *nodes = nodes.saturating_add_signed(by);
        }
    }
}
