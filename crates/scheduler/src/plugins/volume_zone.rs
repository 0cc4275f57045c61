//! VolumeZone: a pod goes to nodes in the zones and regions that the labels of its bound volumes name.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::meta::Map;
use bayplan_model::node::{LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA};
use bayplan_model::pod::Pod;
use bayplan_model::storage::{PersistentVolume, WAIT_FOR_FIRST_CONSUMER};

use crate::cluster::{Cluster, NodeInfo};
use crate::framework::*;

pub(super) struct VolumeZone;

/// A topology label and the values a node's label may have.
type Requirement = (&'static str, BTreeSet<String>);

const LABELS: [&str; 4] = [LABEL_ZONE_BETA, LABEL_REGION_BETA, LABEL_ZONE, LABEL_REGION];

/// Separates several zones in one label value.
const DELIMITER: &str = "__";

/// The GA label that replaced a beta label.
fn ga_label(label: &str) -> &str {
    match label {
        LABEL_ZONE_BETA => LABEL_ZONE,
        LABEL_REGION_BETA => LABEL_REGION,
        _ => label,
    }
}

/// The zones that a label value names; none when one of them is empty.
fn zones(value: &str) -> Option<BTreeSet<String>> {
    let zones: BTreeSet<String> = value.split(DELIMITER).map(|zone| zone.trim().to_owned()).collect();
    (!zones.contains("")).then_some(zones)
}

/// The topology labels of a volume.
fn topology(volume: &PersistentVolume) -> BTreeMap<&'static str, BTreeSet<String>> {
    let labels = &volume.metadata.labels;
    LABELS.into_iter().filter_map(|label| Some((label, zones(labels.get(label)?)?))).collect()
}

fn not_found(kind: &str, name: &str) -> Status {
    Status::unresolvable(format!("{kind} {name:?} not found"))
}

/// What the volume of one claim requires; nothing while the claim waits for its first consumer.
fn requirements_of_claim(cluster: &Cluster, namespace: &str, name: &str) -> Result<Vec<Requirement>, Status> {
    let objects = &cluster.objects;
    if name.is_empty() {
        return Err(Status::unresolvable("PersistentVolumeClaim had no name"));
    }
    let claim = objects
        .persistent_volume_claims
        .get(namespace, name)
        .ok_or_else(|| not_found("persistentvolumeclaim", name))?;
    if claim.spec.volume_name.is_empty() {
        let class = claim.class();
        if class.is_empty() {
            return Err(Status::unresolvable("PersistentVolumeClaim had no pv name and storageClass name"));
        }
        let class =
            objects.storage_classes.get("", class).ok_or_else(|| not_found("storageclass.storage.k8s.io", class))?;
        return match class.volume_binding_mode.as_deref() {
            None => Err(Status::unresolvable(format!(
                "VolumeBindingMode not set for StorageClass {:?}",
                class.metadata.name
            ))),
            Some(WAIT_FOR_FIRST_CONSUMER) => Ok(Vec::new()),
            Some(_) => Err(Status::unresolvable("PersistentVolume had no name")),
        };
    }
    let name = &claim.spec.volume_name;
    let volume = objects.persistent_volumes.get("", name).ok_or_else(|| not_found("persistentvolume", name))?;
    Ok(topology(volume).into_iter().collect())
}

fn requirements_of_pod(cluster: &Cluster, pod: &Pod) -> Result<Vec<Requirement>, Status> {
    let mut all = Vec::new();
    for name in pod.named_claims() {
        all.extend(requirements_of_claim(cluster, &pod.metadata.namespace, name)?);
    }
    Ok(all)
}

fn is_satisfied((label, allowed): &Requirement, labels: &Map) -> bool {
    let value = labels.get(label).or_else(|| labels.get(ga_label(label)));
    value.is_some_and(|value| allowed.contains(value))
}

impl Plugin for VolumeZone {
    type State = Vec<Requirement>;

    fn name(&self) -> PluginName {
        "VolumeZone"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER.union(ExtensionPoints::FILTER)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        // PreFilter reads claims and volumes.
        Dependencies::filter(if cx.pod.named_claims().next().is_none() { Reads::Pod } else { Reads::Cluster })
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(EventResource::StorageClass, action::ADD),
            EventRegistration::always(EventResource::Node, action::ADD | action::UPDATE_NODE_LABEL),
            EventRegistration::with_hint(EventResource::PersistentVolumeClaim, action::ADD | action::UPDATE),
            EventRegistration::with_hint(EventResource::PersistentVolume, action::ADD | action::UPDATE),
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
        let helps = if let (_, Some(class)) = changed.storage_classes() {
            class.volume_binding_mode.as_deref() == Some(WAIT_FOR_FIRST_CONSUMER)
        } else if let (_, Some(claim)) = changed.persistent_volume_claims() {
            claim.metadata.namespace == cx.pod.metadata.namespace
                && cx.pod.named_claims().any(|name| name == claim.metadata.name)
        } else if let (Some(old), Some(new)) = changed.persistent_volumes() {
            topology(old) != topology(new)
        } else {
            true
        };
        Ok(if helps { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut Self::State) -> PreFilter {
        match requirements_of_pod(cx.cluster, cx.pod) {
            Err(status) => status.into(),
            Ok(requirements) if requirements.is_empty() => Status::skip().into(),
            Ok(requirements) => {
                *state = requirements;
                PreFilter::default()
            }
        }
    }

    fn filter(&self, _cx: &Cycle<'_>, state: &Self::State, node: &NodeInfo) -> Status {
        let labels = &node.node().metadata.labels;
        // A node without any of the labels is taken to be in a cluster of one zone.
        if LABELS.iter().any(|label| labels.contains_key(label)) && !state.iter().all(|r| is_satisfied(r, labels)) {
            return Status::unresolvable("node(s) had no available volume zone");
        }
        Status::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const OBJECTS: &str = "
        Node a {labels: {topology.kubernetes.io/zone: a}}
        Node b {labels: {topology.kubernetes.io/zone: b}}
        Node bare
        StorageClass late {provisioner: x, volumeBindingMode: WaitForFirstConsumer}
        StorageClass now {provisioner: x, volumeBindingMode: Immediate}
        StorageClass modeless {provisioner: x}
    ";
    const POD: &str = "{volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}";
    const ELSEWHERE: &str = "UnschedulableAndUnresolvable: node(s) had no available volume zone";

    #[test]
    fn a_pod_goes_where_the_labels_of_its_volumes_say_they_are() {
        let volume = |labels: &str| {
            format!("PersistentVolumeClaim data {{volumeName: pv}}\nPersistentVolume pv {{labels: {{{labels}}}}}")
        };
        let (a, b) = (&*format!("a: {ELSEWHERE}"), &*format!("b: {ELSEWHERE}"));
        plugin("VolumeZone").given(OBJECTS).filters(&[
            ("a pod without claims is skipped", "{}", "", &["a: Skip", "b: Skip", "bare: Skip"]),
            (
                "a volume in zone a; a node without labels is in a cluster of one zone",
                POD,
                &volume("topology.kubernetes.io/zone: a"),
                &["a: Success", b, "bare: Success"],
            ),
            (
                "the former label means the same",
                POD,
                &volume("failure-domain.beta.kubernetes.io/zone: b"),
                &[a, "b: Success", "bare: Success"],
            ),
            (
                "a volume in two zones",
                POD,
                &volume("topology.kubernetes.io/zone: a__b"),
                &["a: Success", "b: Success", "bare: Success"],
            ),
            ("a volume without labels is anywhere", POD, &volume("x: z"), &["a: Skip", "b: Skip", "bare: Skip"]),
            (
                "a claim that waits for its pod is bound later",
                POD,
                "PersistentVolumeClaim data {storageClassName: late}",
                &["a: Skip", "b: Skip", "bare: Skip"],
            ),
        ]);
    }

    #[test]
    fn a_claim_without_a_volume_rejects_the_pod() {
        let rejected = |reason: &str| format!("pod: UnschedulableAndUnresolvable: {reason}");
        for (sentence, claim, reason) in [
            ("no claim", "", r#"persistentvolumeclaim "data" not found"#),
            (
                "no volume and no class",
                "PersistentVolumeClaim data",
                "PersistentVolumeClaim had no pv name and storageClass name",
            ),
            (
                "an unknown class",
                "PersistentVolumeClaim data {storageClassName: gone}",
                r#"storageclass.storage.k8s.io "gone" not found"#,
            ),
            (
                "a class that does not say when it binds",
                "PersistentVolumeClaim data {storageClassName: modeless}",
                r#"VolumeBindingMode not set for StorageClass "modeless""#,
            ),
            (
                "a class that binds at once has not",
                "PersistentVolumeClaim data {storageClassName: now}",
                "PersistentVolume had no name",
            ),
            (
                "a volume that is gone",
                "PersistentVolumeClaim data {volumeName: pv}",
                r#"persistentvolume "pv" not found"#,
            ),
        ] {
            plugin("VolumeZone").given(OBJECTS).filters(&[(sentence, POD, claim, &[&rejected(reason)])]);
        }
    }

    #[test]
    fn a_claim_that_is_bound_or_a_volume_that_moved_wakes_the_pod() {
        plugin("VolumeZone").hints(&[
            ("the claim was bound", POD, "update PersistentVolumeClaim data {} => {volumeName: pv}", "Queue"),
            ("another claim was bound", POD, "update PersistentVolumeClaim other {} => {volumeName: pv}", "Skip"),
            ("a volume came", POD, "add PersistentVolume pv", "Queue"),
            (
                "a volume is in another zone now",
                POD,
                "update PersistentVolume pv {labels: {topology.kubernetes.io/zone: a}} \
                 => {labels: {topology.kubernetes.io/zone: b}}",
                "Queue",
            ),
            ("a volume has another label now", POD, "update PersistentVolume pv {} => {labels: {x: z}}", "Skip"),
            (
                "a class that waits for pods",
                POD,
                "add StorageClass c {volumeBindingMode: WaitForFirstConsumer}",
                "Queue",
            ),
            ("a class that does not", POD, "add StorageClass c {volumeBindingMode: Immediate}", "Skip"),
        ]);
    }
}
