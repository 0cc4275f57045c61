//! Pools: groups of nodes that somebody can make more of.

use bayplan_model::node::Node;

/// The labels with which clouds and provisioners name a node's pool, most specific first.
const POOL_LABELS: &[&str] = &[
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
    "doks.digitalocean.com/node-pool",
    "lke.linode.com/pool-id",
    "ibm-cloud.kubernetes.io/worker-pool-name",
    "oci.oraclecloud.com/node-pool",
    "k8s.scaleway.com/pool-name",
    "kops.k8s.io/instancegroup",
    "node.cluster.x-k8s.io/pool",
    "machine.openshift.io/cluster-api-machineset",
    "nodepool",
    "pool",
    "node.kubernetes.io/instance-type",
];

/// The pool that a node is in: what its most specific label says.
pub fn pool_of(node: &Node) -> Option<&str> {
    POOL_LABELS.iter().find_map(|label| node.metadata.labels.get(label)).map(String::as_str)
}

/// Whether a node is in a pool, by any of the labels that name pools, or by a label given as `key=value`.
pub(crate) fn is_in_pool(node: &Node, pool: &str) -> bool {
    let labels = &node.metadata.labels;
    if let Some((key, value)) = pool.split_once('=') {
        return labels.get(key).is_some_and(|own| own == value);
    }
    POOL_LABELS.iter().any(|label| labels.get(label).is_some_and(|own| own == pool))
}
