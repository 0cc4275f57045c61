//! A pod with what is computed from it once: usage, affinity terms and signature. Upstream's `PodInfo`.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use bayplan_model::affinity::{PodAffinity, PodAffinityTerm};
use bayplan_model::label_selector::{LabelSelector, Selector};
use bayplan_model::meta::Map;
use bayplan_model::pod::Pod;
use bayplan_model::resources::PodUsage;

/// The most parts that a list of affinity terms may have: its terms, and the labels, expressions and values of their
/// selectors. Each is compared with every template of placed pods: beside a thousand templates that takes a tenth of a
/// second, in which nobody else is placed. A body has room for thirty thousand terms.
const AFFINITY_PARTS_MAX: usize = 4_000;

/// A pod with what plugins read of it; shared between the queue, the nodes and the cycles.
#[derive(Clone, Debug)]
pub struct PodInfo {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The resources that the pod uses. Pods share one value only if they are of one template.
    pub usage: Arc<PodUsage>,
    /// Required pod affinity.
    pub required_affinity: Arc<[AffinityTerm]>,
    /// Required pod anti-affinity.
    pub required_anti_affinity: Arc<[AffinityTerm]>,
    /// Preferred pod affinity, with weights.
    pub preferred_affinity: Arc<[(i32, AffinityTerm)]>,
    /// Preferred pod anti-affinity, with weights.
    pub preferred_anti_affinity: Arc<[(i32, AffinityTerm)]>,
    /// The errors in affinity terms; a list of terms with an error is left out.
    pub affinity_errors: Arc<[String]>,
    /// The hash of the pod's signature; see [`PodInfo::same_signature`].
    pub(crate) signature_hash: super::SignatureHash,
    /// The hash of the pod's affinity class.
    pub(super) affinity_hash: u64,
}

impl Deref for PodInfo {
    type Target = Pod;
    fn deref(&self) -> &Pod {
        &self.pod
    }
}

impl PodInfo {
    /// Computes what plugins read of a pod.
    pub fn new(pod: Arc<Pod>) -> Self {
        let mut errors = Vec::new();
        let affinity = pod.spec.affinity.as_ref();
        let attract = affinity.and_then(|a| a.pod_affinity.as_ref());
        let repel = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
        PodInfo {
            usage: Arc::new(PodUsage::of(&pod)),
            required_affinity: required(&pod, attract, "requiredAffinityTerms", &mut errors).into(),
            required_anti_affinity: required(&pod, repel, "requiredAntiAffinityTerms", &mut errors).into(),
            preferred_affinity: preferred(&pod, attract, "preferredAffinityTerms", &mut errors).into(),
            preferred_anti_affinity: preferred(&pod, repel, "preferredAntiAffinityTerms", &mut errors).into(),
            affinity_errors: errors.into(),
            signature_hash: super::SignatureHash::of(&pod),
            affinity_hash: super::affinity_class::affinity_hash(&pod),
            pod,
        }
    }

    /// Shares what was computed for `cached`, if the pod is of the same template.
    pub fn like(pod: Arc<Pod>, cached: &PodInfo) -> Option<Self> {
        super::signature::same_except_node(&pod, &cached.pod).then(|| {
            let signature_hash = super::SignatureHash::of(&pod);
            PodInfo { pod, signature_hash, ..cached.clone() }
        })
    }

    /// The pod object as it will be on a node.
    pub fn pod_on(&self, node: &str) -> Arc<Pod> {
        let mut pod = (*self.pod).clone();
        pod.spec.node_name = node.to_owned();
        Arc::new(pod)
    }

    /// The pod's UID, by which queue and cluster know it.
    pub fn uid(&self) -> &str {
        &self.pod.metadata.uid
    }

    /// `namespace/name`, as events and messages show it.
    pub fn key(&self) -> String {
        self.pod.metadata.key()
    }

    /// True when the pod has pod affinity or anti-affinity of any kind.
    pub fn has_affinity(&self) -> bool {
        self.spec.affinity.as_ref().is_some_and(|a| a.pod_affinity.is_some() || a.pod_anti_affinity.is_some())
    }
}

/// A parsed pod affinity term.
#[derive(Clone, Debug)]
pub struct AffinityTerm {
    /// Selects pods by labels.
    pub selector: Selector,
    /// The node label whose values are the topology domains.
    pub topology_key: String,
    /// The namespaces of the pods.
    pub namespaces: BTreeSet<String>,
    /// Further namespaces, by labels.
    pub namespace_selector: Selector,
}

impl AffinityTerm {
    fn new(pod: &Pod, term: &PodAffinityTerm) -> Result<Self, String> {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(pod.metadata.namespace.clone());
        }
        Ok(AffinityTerm {
            selector: Selector::of(term.label_selector.as_ref()).map_err(|e| e.to_string())?,
            topology_key: term.topology_key.clone(),
            namespaces,
            namespace_selector: Selector::of(term.namespace_selector.as_ref()).map_err(|e| e.to_string())?,
        })
    }

    /// True when the term selects a pod whose namespace has these labels.
    pub fn matches(&self, pod: &Pod, namespace_labels: &Map) -> bool {
        (self.namespaces.contains(&pod.metadata.namespace) || self.namespace_selector.matches(namespace_labels))
            && self.selector.matches(&pod.metadata.labels)
    }
}

fn required(pod: &Pod, affinity: Option<&PodAffinity>, list: &str, errors: &mut Vec<String>) -> Vec<AffinityTerm> {
    let terms = affinity.map_or(&[][..], |a| &a.required);
    parse(pod, terms.iter().map(|term| ((), term)), list, errors).into_iter().map(|(_, term)| term).collect()
}

fn preferred(
    pod: &Pod,
    affinity: Option<&PodAffinity>,
    list: &str,
    errors: &mut Vec<String>,
) -> Vec<(i32, AffinityTerm)> {
    let terms = affinity.map_or(&[][..], |a| &a.preferred);
    parse(pod, terms.iter().map(|term| (term.weight, &term.pod_affinity_term)), list, errors)
}

/// How much of a selector there is to compare with labels.
fn parts_of_selector(selector: Option<&LabelSelector>) -> usize {
    let Some(selector) = selector else { return 0 };
    let values: usize = selector.match_expressions.iter().map(|one| 1 + one.values.len()).sum();
    selector.match_labels.len() + values
}

/// Parses a list of terms; one error makes the whole list empty.
fn parse<'t, W>(
    pod: &Pod,
    terms: impl Iterator<Item = (W, &'t PodAffinityTerm)> + Clone,
    list: &str,
    errors: &mut Vec<String>,
) -> Vec<(W, AffinityTerm)> {
    let parts_of = |term: &PodAffinityTerm| {
        let selectors = [term.label_selector.as_ref(), term.namespace_selector.as_ref()];
        1 + selectors.map(parts_of_selector).iter().sum::<usize>()
    };
    let parts: usize = terms.clone().map(|(_, term)| parts_of(term)).sum();
    if parts > AFFINITY_PARTS_MAX {
        let limit = AFFINITY_PARTS_MAX;
        errors.push(format!("{list}: {parts} terms, labels, expressions and values, at most {limit} are compared"));
        return Vec::new();
    }
    match terms.map(|(weight, term)| Ok((weight, AffinityTerm::new(pod, term)?))).collect() {
        Ok(parsed) => parsed,
        Err(error) => {
            let error: String = error;
            errors.push(format!("{list}: {error}"));
            Vec::new()
        }
    }
}
