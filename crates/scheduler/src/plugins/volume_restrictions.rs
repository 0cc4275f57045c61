//! VolumeRestrictions: keeps pods apart that cannot share a disk, and gives a ReadWriteOncePod claim to one pod only.

use std::collections::BTreeSet;

use bayplan_model::pod::{Pod, Volume};

use crate::cluster::{NodeInfo, PodInfo};
use crate::framework::*;

pub(super) struct VolumeRestrictions;

/// What is prepared for one pod.
#[derive(Clone, Default)]
pub(super) struct State {
    /// The names of the pod's ReadWriteOncePod claims.
    exclusive: BTreeSet<String>,
    /// How many of them other pods use.
    in_use: i64,
}

const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";

/// Whether the volume is of a type that conflicts with others on its node.
fn is_restricted(volume: &Volume) -> bool {
    volume.gce_persistent_disk.is_some()
        || volume.aws_elastic_block_store.is_some()
        || volume.iscsi.is_some()
        || volume.rbd.is_some()
}

/// Whether two pods cannot mount these volumes on one node.
fn conflict(a: &Volume, b: &Volume) -> bool {
    if let (Some(a), Some(b)) = (&a.gce_persistent_disk, &b.gce_persistent_disk)
        && a.pd_name == b.pd_name
        && !(a.read_only && b.read_only)
    {
        return true;
    }
    if let (Some(a), Some(b)) = (&a.aws_elastic_block_store, &b.aws_elastic_block_store)
        && a.volume_id == b.volume_id
    {
        return true;
    }
    if let (Some(a), Some(b)) = (&a.iscsi, &b.iscsi)
        && a.iqn == b.iqn
        && !(a.read_only && b.read_only)
    {
        return true;
    }
    if let (Some(a), Some(b)) = (&a.rbd, &b.rbd)
        && a.monitors.iter().any(|monitor| b.monitors.contains(monitor))
        && a.pool == b.pool
        && a.image == b.image
        && !(a.read_only && b.read_only)
    {
        return true;
    }
    false
}

fn disks_conflict(pod: &Pod, other: &Pod) -> bool {
    let restricted = pod.spec.volumes.iter().filter(|volume| is_restricted(volume));
    restricted.into_iter().any(|volume| other.spec.volumes.iter().any(|used| conflict(volume, used)))
}

impl State {
    /// Counts the exclusive claims of a pod. Like upstream, this compares names without namespaces.
    fn count(&mut self, pod: &Pod, sign: i64) {
        let shared = pod.named_claims().filter(|name| self.exclusive.contains(*name)).count();
        self.in_use += sign * shared as i64;
    }
}

impl Plugin for VolumeRestrictions {
    type State = State;

    fn name(&self) -> PluginName {
        "VolumeRestrictions"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER.union(ExtensionPoints::FILTER)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        let concerned =
            cx.pod.spec.volumes.iter().any(|volume| volume.persistent_volume_claim.is_some() || is_restricted(volume));
        Dependencies::filter(if concerned { Reads::Cluster } else { Reads::Pod })
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(EventResource::Pod, action::DELETE),
            EventRegistration::always(EventResource::Node, action::ADD),
            EventRegistration::with_hint(EventResource::PersistentVolumeClaim, action::ADD),
        ]
    }

    fn hint_reads_signature(&self, _event: &ClusterEvent) -> bool {
        true
    }

    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        _event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        let pod = cx.pod;
        let helps = if let (_, Some(claim)) = changed.persistent_volume_claims() {
            claim.metadata.namespace == pod.metadata.namespace
                && pod.named_claims().any(|name| name == claim.metadata.name)
        } else if let (Some(deleted), _) = changed.pods() {
            deleted.metadata.namespace == pod.metadata.namespace
                && (disks_conflict(pod, deleted)
                    || pod.named_claims().any(|name| deleted.named_claims().any(|other| other == name)))
        } else {
            true
        };
        Ok(if helps { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut State) -> PreFilter {
        let namespace = &cx.pod.metadata.namespace;
        for name in cx.pod.named_claims() {
            match cx.cluster.objects.persistent_volume_claims.get(namespace, name) {
                None => return Status::unresolvable(format!("persistentvolumeclaim {name:?} not found")).into(),
                Some(claim) if claim.spec.access_modes.iter().any(|mode| mode == READ_WRITE_ONCE_POD) => {
                    state.exclusive.insert(name.to_owned());
                }
                Some(_) => {}
            }
        }
        let keys = state.exclusive.iter().map(|name| format!("{namespace}/{name}"));
        state.in_use = keys.filter(|key| cx.cluster.nodes().any(|node| node.claims.contains_key(key))).count() as i64;
        if state.in_use == 0 && !cx.pod.spec.volumes.iter().any(is_restricted) {
            return Status::skip().into();
        }
        PreFilter::default()
    }

    fn add_pod(&self, _cx: &Cycle<'_>, state: &mut State, pod: &PodInfo, _node: &NodeInfo) -> Status {
        state.count(pod, 1);
        Status::SUCCESS
    }

    fn remove_pod(&self, _cx: &Cycle<'_>, state: &mut State, pod: &PodInfo, _node: &NodeInfo) -> Status {
        state.count(pod, -1);
        Status::SUCCESS
    }

    fn filter(&self, cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Status {
        if node.pods().iter().any(|other| disks_conflict(cx.pod, other)) {
            return Status::unschedulable("node(s) had no available disk");
        }
        if state.in_use > 0 {
            return Status::unschedulable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                 another pod",
            );
        }
        Status::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const NO_DISK: &str = "a: Unschedulable: node(s) had no available disk";
    const IN_USE: &str = "Unschedulable: node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access \
                          mode already in-use by another pod";

    #[test]
    fn a_disk_has_one_user_on_a_node() {
        let gce = "{volumes: [{name: v, gcePersistentDisk: {pdName: disk}}]}";
        let gce_read = "{volumes: [{name: v, gcePersistentDisk: {pdName: disk, readOnly: true}}]}";
        let ebs = "{volumes: [{name: v, awsElasticBlockStore: {volumeID: vol-1, readOnly: true}}]}";
        let rbd = "{volumes: [{name: v, rbd: {monitors: [m2, m3], pool: p, image: i}}]}";
        plugin("VolumeRestrictions").given("Node a").filters(&[
            ("a pod without volumes is skipped", "{}", "", &["a: Skip"]),
            ("a disk that no pod uses", gce, "", &["a: Success"]),
            (
                "a disk another pod uses",
                gce,
                "Pod x {nodeName: a, volumes: [{name: v, gcePersistentDisk: {pdName: disk, readOnly: true}}]}",
                &[NO_DISK],
            ),
            (
                "two pods may read one of Google's disks",
                gce_read,
                "Pod x {nodeName: a, volumes: [{name: v, gcePersistentDisk: {pdName: disk, readOnly: true}}]}",
                &["a: Success"],
            ),
            (
                "but two pods may not read one of Amazon's",
                ebs,
                "Pod x {nodeName: a, volumes: [{name: v, awsElasticBlockStore: {volumeID: vol-1, readOnly: true}}]}",
                &[NO_DISK],
            ),
            (
                "a Ceph image is known by one common monitor, its pool and its name",
                rbd,
                "Pod x {nodeName: a, volumes: [{name: v, rbd: {monitors: [m1, m2], pool: p, image: i}}]}",
                &[NO_DISK],
            ),
        ]);
    }

    #[test]
    fn a_read_write_once_pod_claim_has_one_pod_in_the_cluster() {
        let pod = "{volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}";
        let exclusive = "PersistentVolumeClaim data {accessModes: [ReadWriteOncePod]}";
        let used = "Pod x {nodeName: a, volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}";
        let elsewhere = "Pod team/x {nodeName: a, volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}";
        let (a, b) = (&*format!("a: {IN_USE}"), &*format!("b: {IN_USE}"));
        plugin("VolumeRestrictions").given("Node a\nNode b").filters(&[
            (
                "a claim must exist",
                pod,
                "",
                &[r#"pod: UnschedulableAndUnresolvable: persistentvolumeclaim "data" not found"#],
            ),
            ("a claim that no pod uses", pod, exclusive, &["a: Skip", "b: Skip"]),
            ("a claim in use rejects every node", pod, &format!("{exclusive}\n{used}"), &[a, b]),
            (
                "a claim of another namespace is another claim",
                pod,
                &format!("{exclusive}\n{elsewhere}"),
                &["a: Skip", "b: Skip"],
            ),
            (
                "other access modes are no concern of this plugin",
                pod,
                &format!("PersistentVolumeClaim data {{accessModes: [ReadWriteOnce]}}\n{used}"),
                &["a: Skip", "b: Skip"],
            ),
        ]);
    }

    #[test]
    fn a_pod_that_gives_its_volume_back_wakes_those_who_want_it() {
        let disk = "{volumes: [{name: v, gcePersistentDisk: {pdName: disk}}]}";
        let claim = "{volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}";
        plugin("VolumeRestrictions").hints(&[
            (
                "the disk is free",
                disk,
                "delete Pod x {nodeName: a, volumes: [{name: v, gcePersistentDisk: {pdName: disk}}]}",
                "Queue",
            ),
            (
                "another disk is free",
                disk,
                "delete Pod x {nodeName: a, volumes: [{name: v, gcePersistentDisk: {pdName: other}}]}",
                "Skip",
            ),
            (
                "the claim is free",
                claim,
                "delete Pod x {nodeName: a, volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}",
                "Queue",
            ),
            (
                "a claim of another namespace is free",
                claim,
                "delete Pod team/x {nodeName: a, volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}",
                "Skip",
            ),
            ("the claim was created", claim, "add PersistentVolumeClaim data", "Queue"),
            ("another claim was created", claim, "add PersistentVolumeClaim other", "Skip"),
        ]);
    }
}
