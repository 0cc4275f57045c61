//! Affinity terms of the incoming pod, as they are matched against placed pods.

use bayplan_model::meta::Map;
use bayplan_model::pod::Pod;

use crate::cluster::{AffinityTerm, Cluster};

/// Adds to each term the names of the namespaces that its `namespaceSelector` matches.
///
/// Upstream (`mergeAffinityTermNamespacesIfNotEmpty`) means to drop the selector afterwards but changes a copy: the
/// selector stays, and is later matched against no namespace labels at all. That is mirrored here.
pub(super) fn unroll(terms: &[AffinityTerm], cluster: &Cluster) -> Vec<AffinityTerm> {
    let mut terms = terms.to_vec();
    for term in &mut terms {
        if term.namespace_selector.is_nothing() || term.namespace_selector.is_everything() {
            continue;
        }
        let namespaces = cluster.objects.namespaces.iter();
        let matching = namespaces.filter(|ns| term.namespace_selector.matches(&ns.metadata.labels));
        term.namespaces.extend(matching.map(|ns| ns.metadata.name.clone()).collect::<Vec<_>>());
    }
    terms
}

/// The same for preferred terms.
pub(super) fn unroll_weighted(terms: &[(i32, AffinityTerm)], cluster: &Cluster) -> Vec<(i32, AffinityTerm)> {
    let bare: Vec<AffinityTerm> = terms.iter().map(|(_, term)| term.clone()).collect();
    terms.iter().map(|(weight, _)| *weight).zip(unroll(&bare, cluster)).collect()
}

/// Whether a pod matches all of the incoming pod's terms, of which there is at least one.
pub(super) fn all_match(terms: &[AffinityTerm], pod: &Pod) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(pod, &Map::new()))
}
