//! Why pods of one signature fit nowhere, and who would have to go where: kept node by node, for the next pod of the signature.
//!
//! The verdicts are those of the plain filters, first failing plugin and all, and the candidates those of the plain dry
//! run. Only nodes that changed, or to which other pods are nominated now, are asked again.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::DecisionInput;
use super::change_reader::{ChangeReader, ChangedNodes};
use super::scoreboard::{NotCacheable, Scoreboard};
use crate::cluster::{Cluster, NodeId};
use crate::cycle::filter::Filters;
use crate::cycle::fit_error::Diagnosis;
use crate::cycle::preempt::{Candidate, RankedCandidate};
use crate::framework::{Code, PluginName, PostFilter, Status};

/// What is known of pods of one signature that fit nowhere.
#[derive(Default)]
pub(crate) struct CachedDiagnosis {
    reader: ChangeReader,
    /// The version of the disruption budgets that the candidates are for.
    budgets: u64,
    /// What the filters said.
    pub(crate) diagnosis: Diagnosis,
    /// How many nodes each plugin rejected, and for how many it waits.
    rejections: BTreeMap<PluginName, [usize; 2]>,
    names: FxHashMap<NodeId, Arc<str>>,
    pub(crate) known: CandidateCache,
    /// What PostFilter said when it could do nothing and nothing has changed since.
    pub(crate) preemption_cannot_help: Option<PostFilter>,
}

/// What PostFilter need not find out again.
#[derive(Clone, Default)]
pub(crate) struct CandidateCache {
    codes: Vec<Option<Code>>,
    /// The nodes whose rejection preemption may resolve, in the cluster's order.
    potential: OnceCell<Vec<NodeId>>,
    /// Who would have to leave which node, as far as it was asked for.
    tried: Vec<OnceCell<Result<Box<RankedCandidate>, Box<Status>>>>,
}

impl CandidateCache {
    /// Nothing but where preemption may help, of so many places.
    pub(crate) fn only(slot_count: usize, potential: Vec<NodeId>) -> Self {
        CandidateCache { codes: Vec::new(), potential: potential.into(), tried: vec![OnceCell::new(); slot_count] }
    }

    /// The code of the rejection of a node.
    pub(crate) fn code(&self, node: NodeId) -> Code {
        self.codes.get(node.0 as usize).copied().flatten().unwrap_or(Code::UnschedulableAndUnresolvable)
    }

    /// The nodes whose rejection preemption may resolve.
    pub(crate) fn potential(&self, cluster: &Cluster) -> &[NodeId] {
        let resolvable = |node: &NodeId| self.code(*node) == Code::Unschedulable;
        self.potential.get_or_init(|| cluster.order().iter().copied().filter(resolvable).collect())
    }

    /// What the dry run says of a node, which is made unless it is known.
    pub(crate) fn tried(
        &self,
        node: NodeId,
        dry_run: impl FnOnce() -> Result<Candidate, Status>,
    ) -> &Result<Box<RankedCandidate>, Box<Status>> {
        self.tried[node.0 as usize].get_or_init(|| dry_run().map(|made| Box::new(made.into())).map_err(Box::new))
    }
}

impl CachedDiagnosis {
    /// Takes in what happened since it was last looked at.
    pub(super) fn catch_up(&mut self, scoreboard: &Scoreboard, input: &DecisionInput<'_>) -> Result<(), NotCacheable> {
        let cluster = input.cluster;
        let budgets = cluster.objects.disruption_budgets.version();
        let stale = match self.reader.read(cluster, input.nominator) {
            ChangedNodes::Known { nodes, objects } => {
                if objects {
                    self.known.potential.take();
                }
                nodes
            }
            ChangedNodes::Unknown => {
                *self = CachedDiagnosis { reader: self.reader, ..CachedDiagnosis::default() };
                (0..cluster.slot_count()).map(|slot| NodeId(slot as u32)).collect()
            }
        };
        self.known.codes.resize(cluster.slot_count(), None);
        self.known.tried.resize_with(cluster.slot_count(), OnceCell::new);
        if budgets != self.budgets {
            self.budgets = budgets;
            self.known.tried.fill_with(OnceCell::new);
            self.preemption_cannot_help = None;
        }
        if !stale.is_empty() {
            self.preemption_cannot_help = None;
            // A place may have passed from one node to another, and a name from one place to another.
            let before: Vec<Code> = stale.iter().map(|node| self.known.code(*node)).collect();
            stale.iter().for_each(|node| self.forget(*node));
            for node in &stale {
                self.filter_node(scoreboard, input, *node)?;
            }
            if stale.iter().zip(before).any(|(node, before)| self.known.code(*node) != before) {
                self.known.potential.take();
            }
            self.update_plugin_sets();
        }
        self.diagnosis.node_count = cluster.node_count();
        self.diagnosis.post_filter_message.clear();
        Ok(())
    }

    fn update_plugin_sets(&mut self) {
        let rejections = |at: usize| self.rejections.iter().filter(move |(_, n)| n[at] > 0).map(|(plugin, _)| *plugin);
        self.diagnosis.unschedulable_plugins = rejections(0).collect();
        self.diagnosis.pending_plugins = rejections(1).collect();
    }

    fn filter_node(
        &mut self,
        scoreboard: &Scoreboard,
        input: &DecisionInput<'_>,
        id: NodeId,
    ) -> Result<(), NotCacheable> {
        let Some(node) = input.cluster.node_by_id(id) else { return Ok(()) };
        let filters = Filters::new(input.profile, input.cycle(), input.nominator);
        let status = filters.run_with_nominated(&scoreboard.states, node);
        if !status.is_rejected() {
            return Err(NotCacheable);
        }
        self.known.codes[id.0 as usize] = Some(status.code);
        self.count(&status, 1);
        self.names.insert(id, node.name.clone());
        self.diagnosis.statuses.nodes.insert(node.name.clone(), status);
        Ok(())
    }

    fn forget(&mut self, id: NodeId) {
        let at = id.0 as usize;
        self.known.codes[at] = None;
        self.known.tried[at].take();
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
            let rejections = &mut self.rejections.entry(status.plugin).or_default()[pending];
            *rejections = rejections.saturating_add_signed(by);
        }
    }
}
