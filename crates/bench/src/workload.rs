//! Workloads as data: the objects that exist before the clock runs, and the pods that are timed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use crate::mixed;

/// Pods per node unless a workload sets its own limit. A default node has room for 40 default pods.
const PODS_PER_NODE_MAX: f64 = 15.0;

/// Why a workload cannot be found or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No workload has this name.
    #[error("there is no workload {0:?}; there are {1}")]
    Unknown(String, String),
    /// A step names a template that does not exist.
    #[error("workload {0} names the template {1:?}, which does not exist")]
    NoTemplate(String, String),
}

/// A workload of `workloads.yaml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// scheduler_perf's name, without `Scheduling` where that adds nothing.
    pub name: String,
    /// Other names under which [`find`] finds it.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Description for `bayplan bench --list`.
    pub about: String,
    /// Default number of nodes.
    pub nodes: usize,
    /// Default number of measured pods.
    pub pods: usize,
    /// Limit of measured pods per node, where more could not fit.
    pub pods_per_node_max: Option<f64>,
    /// Steps before the clock runs.
    pub setup: Vec<Step>,
    /// Pods that are timed.
    pub measure: Pods,
    /// Changes made between the measured pods.
    pub churn: Option<ChurnSpec>,
}

/// One step of the setup.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Creates nodes.
    CreateNodes(Nodes),
    /// Creates namespaces `prefix-0`, `prefix-1` and so on.
    CreateNamespaces(Namespaces),
    /// Creates pods and waits until they are scheduled.
    CreatePods(Pods),
    /// Creates one object.
    Create(SingleObject),
}

/// Nodes to create.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Nodes {
    /// Names of templates, used in turn.
    pub templates: Vec<String>,
    /// Number of nodes; the run's number when absent.
    pub count: Option<usize>,
    /// Name of the node, where there is only one.
    pub name: Option<String>,
    /// Zones, used in turn; three default zones when empty.
    pub zones: Vec<String>,
    /// Volumes that the CSI driver attaches to each node; no driver when absent.
    pub csi_volumes_max: Option<u32>,
    /// Devices on each node.
    pub devices: usize,
}

/// Namespaces to create.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Namespaces {
    /// Prefix of the names.
    pub prefix: String,
    /// Number of namespaces.
    pub count: usize,
    /// Labels of each namespace.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Pods to create.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Pods {
    /// Names of templates, used in turn.
    pub templates: Vec<String>,
    /// Number of pods; the number of measured pods when absent.
    pub count: Option<usize>,
    /// Pods per node, in place of a count.
    pub per_node: Option<usize>,
    /// Limit of pods per node, so that they fit a small cluster as well.
    pub per_node_max: Option<f64>,
    /// Namespace; `default` when empty.
    pub namespace: String,
    /// Number of namespaces `namespace-0`, `namespace-1` and so on to spread the pods over.
    pub namespaces: Option<usize>,
    /// False for pods that are expected to stay pending.
    pub fits: bool,
    /// What each pod has besides its template.
    pub with: Option<PodExtra>,
}

impl Default for Pods {
    fn default() -> Self {
        Pods {
            templates: Vec::new(),
            count: None,
            per_node: None,
            per_node_max: None,
            namespace: String::new(),
            namespaces: None,
            fits: true,
            with: None,
        }
    }
}

/// What a pod has besides its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodExtra {
    /// A bound persistent volume of a CSI driver.
    CsiVolume,
    /// A ResourceClaim made from a template.
    ResourceClaim,
}

/// One object to create.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SingleObject {
    /// Name of the template.
    pub template: String,
    /// Namespace; empty for cluster-scoped kinds.
    #[serde(default)]
    pub namespace: String,
}

/// Changes made while pods are measured, as scheduler_perf's `churn` makes them.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChurnSpec {
    /// Measured pods between two changes.
    pub every_pods: usize,
    /// Templates of objects that are deleted and created again.
    #[serde(default)]
    pub recreate: Vec<String>,
    /// Namespace whose pods are deleted, one for each measured pod.
    pub delete_pods_of: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    templates: BTreeMap<String, Value>,
    workloads: Vec<Workload>,
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    serde_saphyr::from_str(include_str!("../workloads.yaml")).expect("the tests read the same built-in file")
});

/// All workloads, in the order of the file.
pub fn all() -> &'static [Workload] {
    &DOCUMENT.workloads
}

/// Finds a workload by its name, upstream's name or an alias, ignoring case.
pub fn find(name: &str) -> Result<&'static Workload, Error> {
    let wanted = name.to_ascii_lowercase();
    let short = wanted.strip_prefix("scheduling").unwrap_or(&wanted);
    let is_it = |candidate: &String| {
        let candidate = candidate.to_ascii_lowercase();
        candidate == wanted || candidate.strip_prefix("scheduling").unwrap_or(&candidate) == short
    };
    all().iter().find(|w| is_it(&w.name) || w.aliases.iter().any(is_it)).ok_or_else(|| {
        let names: Vec<&str> = all().iter().map(|w| w.name.as_str()).collect();
        Error::Unknown(name.to_owned(), names.join(", "))
    })
}

/// Templates of a name: one of the file, or all of a generated set.
pub(crate) fn templates(name: &str) -> Option<Vec<Value>> {
    match name {
        "mixed-200" => Some(mixed::pods()),
        "mixed-nodes" => Some(mixed::nodes()),
        "unschedulable-10" => Some(mixed::unschedulable()),
        _ => DOCUMENT.templates.get(name).map(|template| vec![template.clone()]),
    }
}

impl Workload {
    /// Default number of measured pods on a cluster of this size.
    pub fn pods_on(&self, nodes: usize) -> usize {
        self.pods.min(at_most(nodes, self.pods_per_node_max))
    }
}

fn at_most(nodes: usize, per_node: Option<f64>) -> usize {
    // One huge node takes whatever is asked of it.
    if nodes == 1 { usize::MAX } else { (nodes as f64 * per_node.unwrap_or(PODS_PER_NODE_MAX)) as usize }
}

impl Pods {
    /// Number of pods that the step creates.
    pub(crate) fn count(&self, nodes: usize, measured: usize) -> usize {
        match (self.per_node, self.count) {
            (Some(each), _) => nodes * each,
            (None, Some(count)) if self.fits => count.min(at_most(nodes, self.per_node_max)),
            (None, Some(count)) => count,
            (None, None) => measured,
        }
    }

    /// The namespace of the pod with this number.
    pub(crate) fn namespace_of(&self, number: usize) -> String {
        match (self.namespaces, self.namespace.as_str()) {
            (Some(count), prefix) => format!("{prefix}-{}", number % count),
            (None, "") => "default".into(),
            (None, namespace) => namespace.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_names_templates_that_exist_and_is_found_by_every_name() {
        for workload in all() {
            assert_eq!(find(&workload.name).unwrap().name, workload.name);
            let upstream = format!("Scheduling{}", workload.name.trim_start_matches("Scheduling"));
            assert_eq!(find(&upstream).unwrap().name, workload.name);
            for alias in &workload.aliases {
                assert_eq!(find(alias).unwrap().name, workload.name);
            }
            crate::objects::Templates::of(workload).unwrap();
        }
        assert!(find("Nonsense").unwrap_err().to_string().contains("SchedulingBasic"));
    }

    #[test]
    fn small_clusters_are_not_asked_for_more_than_they_can_take() {
        let anti = find("PodAntiAffinity").unwrap();
        assert_eq!((anti.pods_on(5000), anti.pods_on(100)), (2000, 80));
        assert_eq!(find("SchedulingBasic").unwrap().pods_on(1_000_000), 10_000);
        assert_eq!(find("SchedulingWhileGated").unwrap().pods_on(1), 20_000);
    }
}
