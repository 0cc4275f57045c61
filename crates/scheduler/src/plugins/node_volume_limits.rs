//! NodeVolumeLimits: a node takes only as many volumes of a CSI driver as its CSINode allows.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bayplan_model::csi_migration::{InTreePlugin, inline_handle, persistent_handle};
use bayplan_model::pod::{Pod, Volume};
use bayplan_model::storage::{CsiNode, PersistentVolumeClaim};

use crate::cluster::{Cluster, NodeInfo};
use crate::framework::*;

pub(super) struct NodeVolumeLimits;

/// Volumes by unique name, with the driver of each.
type Attached = BTreeMap<String, String>;

/// The pod's own volumes, computed on first use: on nodes without a CSINode, and on nodes with one, where in-tree
/// volumes count for the CSI driver they are migrated to.
#[derive(Clone, Default)]
pub(super) struct State(Arc<[OnceLock<Result<Attached, Status>>; 2]>);

/// The prefix of stand-in handles, for volumes that are not provisioned yet.
const UNPROVISIONED: &str = "unprovisioned";

/// Whether the volume may be a CSI volume.
fn may_be_csi(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() || InTreePlugin::of_inline(volume).is_some()
}

fn is_migrated(node: Option<&CsiNode>, plugin: &InTreePlugin) -> bool {
    node.is_some() && plugin.counted
}

/// Unique name and driver of a volume.
fn unique_volume(driver: &str, handle: &str) -> (String, String) {
    (format!("{driver}/{handle}"), driver.to_owned())
}

/// Unique name and driver of the volume behind a claim; none when it does not count.
fn volume_of_claim(
    cluster: &Cluster,
    node: Option<&CsiNode>,
    claim: &PersistentVolumeClaim,
) -> Option<(String, String)> {
    let Some(volume) = cluster.objects.persistent_volumes.get("", &claim.spec.volume_name) else {
        let class = cluster.objects.storage_classes.get("", claim.class())?;
        let handle = format!("{UNPROVISIONED}-{}", claim.metadata.key());
        return match InTreePlugin::named(&class.provisioner) {
            Some(plugin) => is_migrated(node, plugin).then(|| unique_volume(plugin.driver, &handle)),
            None if class.provisioner.is_empty() => None,
            None => Some(unique_volume(&class.provisioner, &handle)),
        };
    };
    if let Some(csi) = &volume.spec.csi {
        return (!csi.driver.is_empty() && !csi.volume_handle.is_empty())
            .then(|| unique_volume(&csi.driver, &csi.volume_handle));
    }
    let plugin = InTreePlugin::of_persistent(&volume.spec).filter(|plugin| is_migrated(node, plugin))?;
    persistent_handle(volume).filter(|handle| !handle.is_empty()).map(|handle| unique_volume(plugin.driver, &handle))
}

/// The CSI volumes of a pod. Only a new pod's claims must exist.
fn volumes_of(cluster: &Cluster, node: Option<&CsiNode>, pod: &Pod, is_new: bool) -> Result<Attached, Status> {
    let mut volumes = Attached::new();
    for volume in pod.spec.volumes.iter().filter(|v| v.persistent_volume_claim.is_none() && v.ephemeral.is_none()) {
        let Some(plugin) = InTreePlugin::of_inline(volume).filter(|plugin| is_migrated(node, plugin)) else { continue };
        let handle = inline_handle(volume)
            .ok_or_else(|| Status::error(format!("converting volume({}) from inline to csi", volume.name)))?;
        volumes.extend([unique_volume(plugin.driver, &handle)]);
    }
    for (_, name, is_ephemeral) in pod.claim_names() {
        if name.is_empty() {
            return Err(Status::error("PersistentVolumeClaim had no name"));
        }
        let namespace = &pod.metadata.namespace;
        let Some(claim) = cluster.objects.persistent_volume_claims.get(namespace, &name) else {
            if is_new {
                return Err(Status::unresolvable(format!(
                    "looking up PVC {namespace}/{name}: persistentvolumeclaim {name:?} not found"
                )));
            }
            continue;
        };
        if is_ephemeral && !claim.is_for(pod) {
            return Err(Status::error(not_owner(pod, &name)));
        }
        volumes.extend(volume_of_claim(cluster, node, claim));
    }
    Ok(volumes)
}

/// The error for a claim that has the name of a pod's ephemeral volume but another owner.
pub(super) fn not_owner(pod: &Pod, claim: &str) -> String {
    let namespace = &pod.metadata.namespace;
    format!("PVC {namespace}/{claim} was not created for pod {} (pod is not owner)", pod.metadata.key())
}

fn limits(node: &CsiNode) -> BTreeMap<&str, i64> {
    let drivers = node.spec.drivers.iter();
    drivers.filter_map(|d| Some((d.name.as_str(), d.allocatable.as_ref()?.count?.into()))).collect()
}

/// The volumes that VolumeAttachments say are attached to a node.
fn attachments(cluster: &Cluster, node: &str) -> impl Iterator<Item = (String, String)> {
    let of_node = cluster.objects.storage.attachments(node).into_iter().flat_map(BTreeMap::values);
    of_node.filter(|a| !a.spec.attacher.is_empty()).filter_map(|attachment| {
        let volume = attachment.spec.source.persistent_volume_name.as_ref()?;
        let csi = cluster.objects.persistent_volumes.get("", volume)?.spec.csi.as_ref()?;
        Some(unique_volume(&attachment.spec.attacher, &csi.volume_handle))
    })
}

/// How many volumes are of a driver.
fn count_of(volumes: &Attached, driver: &str) -> i64 {
    volumes.values().filter(|d| *d == driver).count() as i64
}

/// Whether the limits hold even if every claim and attachment on the node were a volume of every driver. Most nodes are
/// far from their limits, and this needs no lookup of volumes.
fn is_far_from_limits(cluster: &Cluster, new: &Attached, limits: &BTreeMap<&str, i64>, node: &NodeInfo) -> bool {
    let attached = cluster.objects.storage.attachments(&node.name).map_or(0, BTreeMap::len);
    let most = (node.claims.len() + attached) as i64;
    let fits = |(driver, limit): (&&str, &i64)| match count_of(new, driver) {
        0 => true,
        coming => most.saturating_add(coming) <= *limit,
    };
    // NodeInfo counts claims by name; other volumes may be missing there, or be an error.
    let is_counted = |volume: &Volume| match &volume.persistent_volume_claim {
        Some(claim) => !claim.claim_name.is_empty(),
        None => !may_be_csi(volume),
    };
    limits.iter().all(fits) && node.pods().iter().all(|pod| pod.spec.volumes.iter().all(is_counted))
}

impl Plugin for NodeVolumeLimits {
    type State = State;

    fn name(&self) -> PluginName {
        "NodeVolumeLimits"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER.union(ExtensionPoints::FILTER)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        Dependencies::filter(if cx.pod.spec.volumes.iter().any(may_be_csi) { Reads::Cluster } else { Reads::Pod })
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(EventResource::CsiNode, action::ADD | action::UPDATE),
            EventRegistration::with_hint(EventResource::Pod, action::DELETE),
            EventRegistration::with_hint(EventResource::PersistentVolumeClaim, action::ADD),
            EventRegistration::with_hint(EventResource::VolumeAttachment, action::DELETE),
        ]
    }

    fn hint_reads_signature(&self, event: &ClusterEvent) -> bool {
        // The claim of an ephemeral volume is named after its pod.
        event.resource != EventResource::PersistentVolumeClaim
    }

    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        _event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        let pod = cx.pod;
        let helps = if let (Some(old), Some(new)) = changed.csi_nodes() {
            let before = limits(old);
            limits(new).iter().any(|(driver, limit)| *limit > before.get(driver).copied().unwrap_or(0))
        } else if let (Some(deleted), _) = changed.pods() {
            (deleted.is_assigned() || deleted.is_nominated()) && deleted.spec.volumes.iter().any(may_be_csi)
        } else if let (_, Some(claim)) = changed.persistent_volume_claims() {
            claim.metadata.namespace == pod.metadata.namespace
                && pod.claim_names().any(|(_, name, _)| name == claim.metadata.name)
        } else if let (Some(attachment), _) = changed.volume_attachments() {
            pod.spec.volumes.iter().any(|volume| {
                volume.persistent_volume_claim.is_some()
                    || InTreePlugin::of_inline(volume).is_some_and(|p| p.driver == attachment.spec.attacher)
            })
        } else {
            true
        };
        Ok(if helps { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut State) -> PreFilter {
        if !cx.pod.spec.volumes.iter().any(may_be_csi) {
            return Status::skip().into();
        }
        *state = State::default();
        PreFilter::default()
    }

    fn filter(&self, cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Status {
        let csi_node = cx.cluster.objects.csi_nodes.get("", &node.name).map(|n| &**n);
        let own = &state.0[usize::from(csi_node.is_some())];
        let new = match own.get_or_init(|| volumes_of(cx.cluster, csi_node, cx.pod, true)) {
            Ok(new) => new,
            Err(status) => return status.clone(),
        };
        let limits = csi_node.map(limits).unwrap_or_default();
        if new.is_empty() || limits.is_empty() || is_far_from_limits(cx.cluster, new, &limits, node) {
            return Status::SUCCESS;
        }
        let mut new = new.clone();
        let mut attached = Attached::new();
        for pod in node.pods() {
            match volumes_of(cx.cluster, csi_node, pod, false) {
                Ok(volumes) => attached.extend(volumes),
                Err(status) => return status,
            }
        }
        new.retain(|name, _| !attached.contains_key(name));
        // Like upstream, this counts a new volume twice when it is attached already but used by no pod.
        attached.extend(attachments(cx.cluster, &node.name));
        let exceeded = limits.iter().any(|(driver, limit)| {
            let coming = count_of(&new, driver);
            coming > 0 && count_of(&attached, driver) + coming > *limit
        });
        if exceeded { Status::unschedulable("node(s) exceed max volume count") } else { Status::SUCCESS }
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const OBJECTS: &str = "
        Node a
        CSINode a {drivers: [{name: csi.example.com, allocatable: {count: 1}}]}
        StorageClass fast {provisioner: csi.example.com}
        PersistentVolumeClaim one {volumeName: one}
        PersistentVolume one {csi: {driver: csi.example.com, volumeHandle: h1}}
        PersistentVolumeClaim two {volumeName: two}
        PersistentVolume two {csi: {driver: csi.example.com, volumeHandle: h2}}
        PersistentVolumeClaim new {storageClassName: fast}
        PersistentVolumeClaim other {volumeName: other}
        PersistentVolume other {csi: {driver: other.example.com, volumeHandle: h1}}
    ";
    const FULL: &str = "a: Unschedulable: node(s) exceed max volume count";

    fn claims(name: &str) -> String {
        format!("{{volumes: [{{name: v, persistentVolumeClaim: {{claimName: {name}}}}}]}}")
    }

    #[test]
    fn a_node_takes_only_so_many_volumes_of_a_driver() {
        let one = "Pod x {nodeName: a, volumes: [{name: v, persistentVolumeClaim: {claimName: one}}]}";
        let attached =
            "VolumeAttachment z {attacher: csi.example.com, nodeName: a, source: {persistentVolumeName: two}}";
        plugin("NodeVolumeLimits").given(OBJECTS).filters(&[
            ("a pod without volumes is skipped", "{}", one, &["a: Skip"]),
            ("one volume of one", &claims("one"), "", &["a: Success"]),
            ("a second one is too many", &claims("two"), one, &[FULL]),
            ("a volume that is there already is not counted again", &claims("one"), one, &["a: Success"]),
            ("a volume that is still to be made counts for its class", &claims("new"), one, &[FULL]),
            ("another driver has its own limit", &claims("other"), one, &["a: Success"]),
            ("a volume attached without a pod counts too", &claims("one"), attached, &[FULL]),
            (
                "the claim of a new pod must exist",
                &claims("gone"),
                "",
                &["a: UnschedulableAndUnresolvable: looking up PVC default/gone: \
                   persistentvolumeclaim \"gone\" not found"],
            ),
            ("a node that names no limit has none", &claims("two"), &format!("{one}\nCSINode a"), &["a: Success"]),
        ]);
    }

    #[test]
    fn a_volume_that_goes_or_a_limit_that_grows_wakes_pods() {
        let pod = &*claims("two");
        plugin("NodeVolumeLimits").hints(&[
            (
                "a pod with volumes leaves",
                pod,
                "delete Pod x {nodeName: a, volumes: [{name: v, persistentVolumeClaim: {claimName: one}}]}",
                "Queue",
            ),
            ("a pod without volumes leaves", pod, "delete Pod x {nodeName: a}", "Skip"),
            (
                "the limit grows",
                pod,
                "update CSINode a {drivers: [{name: d, allocatable: {count: 1}}]} \
                 => {drivers: [{name: d, allocatable: {count: 2}}]}",
                "Queue",
            ),
            (
                "the limit shrinks",
                pod,
                "update CSINode a {drivers: [{name: d, allocatable: {count: 2}}]} \
                 => {drivers: [{name: d, allocatable: {count: 1}}]}",
                "Skip",
            ),
            (
                "a volume is detached",
                pod,
                "delete VolumeAttachment z {attacher: csi.example.com, nodeName: a}",
                "Queue",
            ),
            ("the pod's claim is created", pod, "add PersistentVolumeClaim two", "Queue"),
            ("the claim of another pod is created", pod, "add PersistentVolumeClaim one", "Skip"),
        ]);
    }
}
