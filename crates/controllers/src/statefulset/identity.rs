//! What a pod's name says: the set it is of, and its number in it.

use std::sync::Arc;

use bayplan_model::meta::ObjectMeta;

use super::object::StatefulSet;
use crate::pod::Pod;

/// The label by which a pod of a StatefulSet is found by its name.
pub(super) const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// The label with the pod's number.
pub(super) const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// Splits `<set>-<number>`; none of a name without a number at its end.
fn split(name: &str) -> Option<(&str, &str)> {
    let (parent, number) = name.rsplit_once('-')?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some((parent, number))
}

/// The set that a pod's name speaks of.
pub(super) fn parent(name: &str) -> Option<&str> {
    split(name).map(|(parent, _)| parent)
}

/// Whether an object's name is that of a pod of this set.
pub(super) fn is_member(set: &ObjectMeta, object: &ObjectMeta) -> bool {
    parent(&object.name) == Some(&set.name)
}

/// The number in a pod's name; none when there is none, or one that no set can have.
pub(super) fn ordinal(name: &str) -> Option<i64> {
    let (_, number) = split(name)?;
    number.parse::<i32>().ok().map(i64::from)
}

/// The name of a set's pod.
pub(super) fn pod_name(set: &StatefulSet, ordinal: i64) -> String {
    format!("{}-{ordinal}", set.metadata.name)
}

/// Whether a pod has the name and the label of its number.
pub(super) fn matches(set: &StatefulSet, pod: &Pod, ordinal: i64) -> bool {
    let meta = &pod.metadata;
    meta.name == pod_name(set, ordinal) && meta.labels.get(POD_NAME_LABEL) == Some(&meta.name)
}

/// The pods of a set by their numbers: those that are asked for, and those that are too many.
pub(super) struct Members {
    /// By distance from the first number.
    pub(super) replicas: std::collections::BTreeMap<i64, Arc<Pod>>,
    /// With their numbers, the highest first.
    pub(super) condemned: Vec<(i64, Arc<Pod>)>,
}

impl Members {
    /// Sorts out a set's pods. Of several with the same number (`web-1`, `web-01`) the one named like it counts.
    pub(super) fn new(set: &StatefulSet, pods: &[Arc<Pod>]) -> Self {
        let mut members = Members { replicas: std::collections::BTreeMap::new(), condemned: Vec::new() };
        for pod in pods {
            let Some(ordinal) = ordinal(&pod.metadata.name) else { continue };
            if !set.has_place_for(ordinal) {
                members.condemned.push((ordinal, pod.clone()));
                continue;
            }
            let index = ordinal - set.start();
            if pod.metadata.name == pod_name(set, ordinal) {
                members.replicas.insert(index, pod.clone());
            } else {
                members.replicas.entry(index).or_insert_with(|| pod.clone());
            }
        }
        members.condemned.sort_by(|(a, _), (b, _)| b.cmp(a));
        members
    }

    /// All of them.
    pub(super) fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.replicas.values().chain(self.condemned.iter().map(|(_, pod)| pod))
    }
}
