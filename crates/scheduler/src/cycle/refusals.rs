//! Every filter that refuses a node, not the first only.

use super::Attempt;
use crate::cluster::NodeInfo;
use crate::framework::{CycleStates, ExtensionPoints, Status};

impl Attempt<'_> {
    /// The answers of all filters that refuse a node, in order: with the pods nominated to it, or, where those change
    /// nothing, without them. It needs an [`Attempt::find`] before it whose PreFilter succeeded.
    pub fn refusals(&self, node: &NodeInfo) -> Vec<Status> {
        let filters = &self.filters;
        let mut nominated = filters.nominator.ahead_of(filters.cycle.pod, &node.name).peekable();
        if nominated.peek().is_some() {
            let (mut node, mut states) = (node.clone(), self.states.clone());
            let failed = nominated
                .map(|other| filters.add_pod(&mut states, &mut node, other))
                .find(|status| !status.is_success());
            let refusals = failed.map_or_else(|| self.asked(&states, &node), |status| vec![status]);
            if !refusals.is_empty() {
                return refusals;
            }
        }
        self.asked(&self.states, node)
    }

    fn asked(&self, states: &CycleStates, node: &NodeInfo) -> Vec<Status> {
        let filters = self.filters.profile.at(ExtensionPoints::FILTER).iter();
        let asked = filters.filter(|plugin| !states.skip_filter[**plugin]);
        let answers = asked.map(|&plugin| states.get(plugin).filter(&self.filters.cycle, node));
        answers.filter(|status| !status.is_success()).collect()
    }
}
