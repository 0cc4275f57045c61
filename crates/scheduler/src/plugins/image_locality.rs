//! ImageLocality: prefers nodes that have the pod's images, large and widespread ones above all.

use crate::cluster::NodeInfo;
use crate::framework::*;

/// Scores images present.
pub(super) struct ImageLocality;

const MIB: i64 = 1024 * 1024;
/// Less than this is not worth a preference.
const MIN_BYTES: i64 = 23 * MIB;
/// More than this per container counts as this.
const MAX_BYTES_PER_CONTAINER: i64 = 1000 * MIB;

/// The name under which kubelets report an image: with `:latest` when no tag is given.
fn normalized(image: &str) -> String {
    let (colon, slash) = (image.rfind(':'), image.rfind('/'));
    let tagged = match (colon, slash) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(colon), Some(slash)) => colon > slash,
    };
    if tagged { image.to_owned() } else { format!("{image}:latest") }
}

impl Plugin for ImageLocality {
    type State = ();

    fn name(&self) -> PluginName {
        "ImageLocality"
    }

    fn points(&self) -> Points {
        Points::SCORE
    }

    fn dependencies(&self) -> Dependencies {
        // How widespread an image is depends on all nodes.
        Dependencies { filter: Reads::Pod, score: Reads::Cluster }
    }

    fn score(&self, cx: &Cycle<'_>, _state: &(), node: &NodeInfo) -> Result<i64, Status> {
        let spec = &cx.pod.spec;
        let containers = spec.init_containers.iter().chain(&spec.containers).map(|c| c.image.as_str());
        let volumes = spec.volumes.iter().filter_map(|v| v.image.as_ref()).map(|i| i.reference.as_str());
        let total = cx.cluster.node_count() as f64;
        let mut sum: i64 = 0;
        for image in containers.chain(volumes) {
            let name = normalized(image);
            let here = node.node().status.images.iter().any(|i| i.names.contains(&name));
            if let Some(known) = cx.cluster.image(&name).filter(|_| here) {
                sum = sum.saturating_add((known.size_bytes as f64 * (known.nodes as f64 / total)) as i64);
            }
        }
        let count = (spec.init_containers.len() + spec.containers.len()) as i64;
        let max = (MAX_BYTES_PER_CONTAINER * count).max(MIN_BYTES + 1);
        Ok(MAX_NODE_SCORE * (sum.clamp(MIN_BYTES, max) - MIN_BYTES) / (max - MIN_BYTES))
    }
}
