//! ImageLocality: prefers nodes that have the pod's images; large images that many nodes have count most.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};

use bayplan_model::pod::Pod;
use rustc_hash::FxHasher;

use crate::cluster::{Cluster, NodeInfo};
use crate::framework::*;

pub(super) struct ImageLocality;

const MIB: i64 = 1024 * 1024;
/// Images that add up to less make no difference.
const MIN_BYTES: i64 = 23 * MIB;
/// The most that counts, for each container.
const MAX_BYTES_PER_CONTAINER: i64 = 1000 * MIB;

/// The name under which kubelets report an image: with `:latest` when no tag is given.
fn normalized(image: &str) -> Cow<'_, str> {
    let (colon, slash) = (image.rfind(':'), image.rfind('/'));
    let tagged = match (colon, slash) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(colon), Some(slash)) => colon > slash,
    };
    if tagged { image.into() } else { format!("{image}:latest").into() }
}

/// The images of a pod: of containers, and those mounted as volumes.
fn images(pod: &Pod) -> impl Iterator<Item = &str> {
    let spec = &pod.spec;
    let containers = spec.init_containers.iter().chain(&spec.containers).map(|c| c.image.as_str());
    containers.chain(spec.volumes.iter().filter_map(|v| v.image.as_ref()).map(|i| i.reference.as_str()))
}

impl Plugin for ImageLocality {
    type State = ();

    fn name(&self) -> PluginName {
        "ImageLocality"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::SCORE
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        // An image mounted as a volume is not part of the signature.
        if cx.pod.spec.volumes.iter().any(|volume| volume.image.is_some()) {
            return Dependencies::score(Reads::Cluster, Normalization::None);
        }
        // The score also depends on how many nodes have the image, and on how many there are.
        let mut version = FxHasher::default();
        let mut is_known = false;
        for image in images(cx.pod) {
            if let Some(known) = cx.cluster.image(&normalized(image)) {
                is_known = true;
                (known.size_bytes, known.nodes, cx.cluster.node_count()).hash(&mut version);
            }
        }
        if !is_known {
            return Dependencies::NOTHING;
        }
        Dependencies::score(Reads::Node, Normalization::None).at(version.finish())
    }

    fn score(&self, cx: &Cycle<'_>, _state: &(), node: &NodeInfo) -> Result<i64, Status> {
        Ok(image_locality_score(cx.pod, node, cx.cluster, &|_| None))
    }
}

/// The score of a node, where `nodes_with` may know another number of nodes with an image than the cluster's.
pub fn image_locality_score(
    pod: &Pod,
    node: &NodeInfo,
    cluster: &Cluster,
    nodes_with: &dyn Fn(&str) -> Option<usize>,
) -> i64 {
    let total = cluster.node_count() as f64;
    let mut sum: i64 = 0;
    for image in images(pod) {
        let name = normalized(image);
        let here = node.node().status.images.iter().any(|i| i.names.iter().any(|n| *n == name));
        if let Some(known) = cluster.image(&name).filter(|_| here) {
            let nodes = nodes_with(&name).unwrap_or(known.nodes);
            sum = sum.saturating_add((known.size_bytes as f64 * (nodes as f64 / total)) as i64);
        }
    }
    let count = (pod.spec.init_containers.len() + pod.spec.containers.len()) as i64;
    let max = (MAX_BYTES_PER_CONTAINER * count).max(MIN_BYTES + 1);
    MAX_NODE_SCORE * (sum.clamp(MIN_BYTES, max) - MIN_BYTES) / (max - MIN_BYTES)
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    #[test]
    fn large_and_widespread_images_count_most() {
        // 500 MiB on one of two nodes counts as 250 MiB: (250 - 23) / (1000 - 23), in percent and cut off.
        let one = "
            Node a {images: [{names: ['web:latest'], sizeBytes: 524288000}]}
            Node b
        ";
        let both = "
            Node a {images: [{names: ['web:latest'], sizeBytes: 524288000}]}
            Node b {images: [{names: ['web:latest'], sizeBytes: 524288000}]}
        ";
        plugin("ImageLocality").scores(&[
            (
                "an image on one of two nodes",
                "{containers: [{image: 'web:latest'}]}",
                one,
                &["a: 23 -> 23", "b: 0 -> 0"],
            ),
            ("an image on all nodes", "{containers: [{image: 'web:latest'}]}", both, &["a: 48 -> 48", "b: 48 -> 48"]),
            (
                "an image without a tag is the latest",
                "{containers: [{image: web}]}",
                one,
                &["a: 23 -> 23", "b: 0 -> 0"],
            ),
            ("another tag is another image", "{containers: [{image: 'web:v2'}]}", one, &["a: 0 -> 0", "b: 0 -> 0"]),
            (
                "the port of a registry is not a tag",
                "{containers: [{image: 'host:5000/web'}]}",
                "Node a {images: [{names: ['host:5000/web:latest'], sizeBytes: 524288000}]}",
                &["a: 48 -> 48"],
            ),
            (
                "less than 23 MiB is not worth a preference",
                "{containers: [{image: tiny}]}",
                "Node a {images: [{names: ['tiny:latest'], sizeBytes: 24000000}]}",
                &["a: 0 -> 0"],
            ),
            (
                "more than 1000 MiB per container is no better",
                "{containers: [{image: huge}]}",
                "Node a {images: [{names: ['huge:latest'], sizeBytes: 9000000000}]}",
                &["a: 100 -> 100"],
            ),
            (
                "init containers count, and raise the limit",
                "{initContainers: [{image: web}], containers: [{image: web}]}",
                "Node a {images: [{names: ['web:latest'], sizeBytes: 524288000}]}",
                &["a: 49 -> 49"],
            ),
            (
                "an image mounted as a volume counts without raising the limit",
                "{containers: [{image: other}], volumes: [{name: v, image: {reference: web}}]}",
                "Node a {images: [{names: ['web:latest'], sizeBytes: 524288000}]}",
                &["a: 48 -> 48"],
            ),
        ]);
    }
}
