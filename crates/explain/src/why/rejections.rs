//! How many nodes were refused, by plugin and reason, and how far the nearest of them is.

use std::collections::BTreeMap;

use bayplan_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use bayplan_scheduler::inspect::{Diagnosis, Nominator, missing_resources};
use bayplan_scheduler::{Cluster, NodeInfo, PluginName, PodInfo, Status};

use super::explanation::{Nearest, RefusedBy, Rejection};

/// How many nodes are named as examples of a reason: enough to look at, few enough for a line.
const EXAMPLES_MAX: usize = 3;

/// The refusals of a decision.
pub(super) struct Rejections {
    pub(super) refused_by: Vec<RefusedBy>,
    pub(super) rejections: Vec<Rejection>,
}

/// One reason of one plugin, as it is being counted.
#[derive(Default)]
struct Count {
    nodes: usize,
    examples: Vec<String>,
    /// The node that lacks least: whether it has other reasons too, how much it lacks, its name and the resource.
    nearest: Option<(bool, i64, String, String)>,
}

/// Counts the refusals of a diagnosis.
pub(super) fn count(cluster: &Cluster, nominator: &Nominator, pod: &PodInfo, diagnosis: &Diagnosis) -> Rejections {
    let mut by_plugin: BTreeMap<PluginName, usize> = BTreeMap::new();
    let mut by_reason: BTreeMap<(PluginName, &str), Count> = BTreeMap::new();
    let mut nodes: Vec<&NodeInfo> = cluster.nodes().collect();
    nodes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for node in nodes {
        let Some(status) = refusal(diagnosis, &node.name) else { continue };
        *by_plugin.entry(status.plugin).or_default() += 1;
        let missing = missing_on(nominator, pod, node, status);
        for reason in &status.reasons {
            let count = by_reason.entry((status.plugin, reason)).or_default();
            count.nodes += 1;
            if count.examples.len() < EXAMPLES_MAX {
                count.examples.push(node.name.to_string());
            }
            let Some((_, resource, short)) = missing.iter().find(|(of, ..)| of == reason) else { continue };
            let found = (status.reasons.len() > 1, *short, node.name.to_string(), resource.clone());
            if count.nearest.as_ref().is_none_or(|known| found < *known) {
                count.nearest = Some(found);
            }
        }
    }
    let mut refused_by: Vec<RefusedBy> =
        by_plugin.into_iter().map(|(plugin, nodes)| RefusedBy { plugin, nodes }).collect();
    refused_by.sort_by_key(|refused| std::cmp::Reverse(refused.nodes));
    let mut rejections: Vec<Rejection> = by_reason.into_iter().map(rejection).collect();
    rejections.sort_by_key(|rejection| std::cmp::Reverse(rejection.nodes));
    Rejections { refused_by, rejections }
}

/// Why a node was refused; none when it fits or was not asked.
pub(super) fn refusal<'d>(diagnosis: &'d Diagnosis, node: &str) -> Option<&'d Status> {
    let statuses = &diagnosis.statuses;
    statuses.nodes.get(node).or_else(|| {
        let narrowed = diagnosis.pre_filter_nodes.as_ref();
        let left_out = diagnosis.pre_filter.is_some() || narrowed.is_some_and(|names| !names.contains(node));
        left_out.then_some(&statuses.absent)
    })
}

/// What the node lacks, with the pods that are nominated to it: they count when the pod is filtered.
fn missing_on(
    nominator: &Nominator,
    pod: &PodInfo,
    node: &NodeInfo,
    status: &Status,
) -> Vec<(std::borrow::Cow<'static, str>, String, i64)> {
    if status.plugin != "NodeResourcesFit" {
        return Vec::new();
    }
    let ahead = |other: &&std::sync::Arc<PodInfo>| other.priority() >= pod.priority() && other.uid() != pod.uid();
    let mut nominated = nominator.on_node(&node.name).iter().filter(ahead).peekable();
    if nominated.peek().is_none() {
        return missing_resources(pod, node);
    }
    let mut node = node.clone();
    for other in nominated {
        node.add_pod(other.clone());
    }
    missing_resources(pod, &node)
}

fn rejection(((plugin, reason), count): ((PluginName, &str), Count)) -> Rejection {
    let nearest = count.nearest.map(|(_, short, node, resource)| {
        let short = quantity(&resource, short);
        Nearest { node, resource, short }
    });
    Rejection { plugin, reason: reason.to_owned(), nodes: count.nodes, examples: count.examples, nearest }
}

/// An amount of a resource as people write it: exact, in the largest unit that divides it.
pub(crate) fn quantity(resource: &str, amount: i64) -> String {
    if resource == CPU {
        return if amount % 1000 == 0 { format!("{}", amount / 1000) } else { format!("{amount}m") };
    }
    let is_bytes = resource == MEMORY || resource == EPHEMERAL_STORAGE || resource.starts_with("hugepages-");
    let units = ["Ki", "Mi", "Gi", "Ti", "Pi"];
    let mut text = amount.to_string();
    if is_bytes && amount != 0 {
        let mut left = amount;
        for unit in units {
            if left % 1024 != 0 {
                break;
            }
            left /= 1024;
            text = format!("{left}{unit}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_exactly_in_the_largest_unit_that_divides_them() {
        for (resource, amount, text) in [
            ("cpu", 300, "300m"),
            ("cpu", 2000, "2"),
            ("memory", 3 << 30, "3Gi"),
            ("memory", (1 << 30) + 1, "1073741825"),
            ("memory", 1536 << 20, "1536Mi"),
            ("hugepages-2Mi", 2 << 20, "2Mi"),
            ("nvidia.com/gpu", 1024, "1024"),
            ("pods", 1, "1"),
            ("memory", 0, "0"),
        ] {
            assert_eq!(quantity(resource, amount), text);
        }
    }
}
