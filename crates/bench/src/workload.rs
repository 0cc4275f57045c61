//! Workloads as data: what there is before the clock runs, and which pods are timed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use crate::mixed;

/// More pods than this on a node are never asked for unless a workload says so: default pods fill a default node with 40.
const PODS_PER_NODE_MAX: f64 = 15.0;

/// Why a workload cannot be found or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none of this name.
    #[error("there is no workload {0:?}; there are {1}")]
    Unknown(String, String),
    /// A step names a template nobody wrote.
    #[error("workload {0} names the template {1:?}, which does not exist")]
    NoTemplate(String, String),
}

/// What is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// As scheduler_perf names it, without `Scheduling` where that says nothing.
    pub name: String,
    /// Other names it is found by.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// What it is, for `--list`.
    pub about: String,
    /// How many nodes unless told otherwise.
    pub nodes: usize,
    /// How many pods are measured unless told otherwise.
    pub pods: usize,
    /// The most measured pods a node, where more could not fit.
    pub pods_per_node_max: Option<f64>,
    /// What happens before the clock runs.
    pub setup: Vec<Step>,
    /// The pods that are timed.
    pub measure: Pods,
    /// What happens between them.
    pub meanwhile: Option<Meanwhile>,
}

/// One step of the setup.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Makes nodes.
    CreateNodes(Nodes),
    /// Makes namespaces `prefix-0` and so on.
    CreateNamespaces(Namespaces),
    /// Makes pods and waits until they are scheduled.
    CreatePods(Pods),
    /// Makes one object.
    Create(One),
}

/// Nodes to make.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Nodes {
    /// What they look like, in turn.
    pub templates: Vec<String>,
    /// How many; as many as asked for when absent.
    pub count: Option<usize>,
    /// The name of the only one.
    pub name: Option<String>,
    /// Their zones, in turn; three when none are named.
    pub zones: Vec<String>,
    /// A CSI driver that attaches this many volumes to each.
    pub csi_volumes_max: Option<u32>,
    /// This many devices on each.
    pub devices: usize,
}

/// Namespaces to make.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Namespaces {
    /// Their names begin with this.
    pub prefix: String,
    /// How many.
    pub count: usize,
    /// Their labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Pods to make.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Pods {
    /// What they look like, in turn.
    pub templates: Vec<String>,
    /// How many; those that are measured when absent.
    pub count: Option<usize>,
    /// How many for each node.
    pub per_node: Option<usize>,
    /// At most so many for each node, so that small clusters are not asked for the impossible.
    pub per_node_max: Option<f64>,
    /// Where; `default` when empty.
    pub namespace: String,
    /// Over so many namespaces `namespace-0` and so on.
    pub namespaces: Option<usize>,
    /// False for pods that are expected to stay pending.
    pub fits: bool,
    /// What else each has.
    pub with: Option<With>,
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
pub enum With {
    /// A persistent volume of a CSI driver, bound already.
    CsiVolume,
    /// A device claim made from a template.
    ResourceClaim,
}

/// An object to make.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct One {
    /// What it looks like.
    pub template: String,
    /// Where; empty for cluster-scoped kinds.
    #[serde(default)]
    pub namespace: String,
}

/// What happens while pods are measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Meanwhile {
    /// After so many measured pods, each time.
    pub every_pods: usize,
    /// Objects that are deleted and made again.
    #[serde(default)]
    pub recreate: Vec<String>,
    /// The namespace whose pods are deleted, as many as were measured.
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

/// A workload by its name, upstream's name for it, or an alias; capitals do not matter.
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

/// The templates of a name: one, or all of a set that is made by rule.
pub(crate) fn templates(name: &str) -> Option<Vec<Value>> {
    match name {
        "mixed-200" => Some(mixed::pods()),
        "mixed-nodes" => Some(mixed::nodes()),
        "unschedulable-10" => Some(mixed::unschedulable()),
        _ => DOCUMENT.templates.get(name).map(|template| vec![template.clone()]),
    }
}

impl Workload {
    /// How many pods are measured on so many nodes when nobody says how many.
    pub fn pods_on(&self, nodes: usize) -> usize {
        self.pods.min(at_most(nodes, self.pods_per_node_max))
    }
}

fn at_most(nodes: usize, per_node: Option<f64>) -> usize {
    // One huge node takes whatever is asked of it.
    if nodes == 1 { usize::MAX } else { (nodes as f64 * per_node.unwrap_or(PODS_PER_NODE_MAX)) as usize }
}

impl Pods {
    /// How many pods the step makes.
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
