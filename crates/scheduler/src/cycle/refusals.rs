//! Every filter that refuses a node, not the first only.

use super::Attempt;
use crate::cluster::NodeInfo;
use crate::framework::{ExtensionPoints, Status};

impl Attempt<'_> {
    /// The answers of all filters that refuse a node as it is, in order. Pods nominated to it are left out. It needs an
    /// [`Attempt::find`] before it whose PreFilter succeeded.
    pub fn refusals(&self, node: &NodeInfo) -> Vec<Status> {
        let filters = &self.filters;
        let asked = filters.profile.at(ExtensionPoints::FILTER).iter().filter(|at| !self.states.skip_filter[**at]);
        let answers = asked.map(|&plugin| self.states.get(plugin).filter(&filters.cycle, node));
        answers.filter(|status| !status.is_success()).collect()
    }
}
