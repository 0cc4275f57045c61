//! The annotations in which a Deployment and its ReplicaSets keep revisions and sizes.

use bayplan_model::meta::Map;

use super::arithmetic::max_replicas;
use crate::workload::{Deployment, ReplicaSet};

/// Which revision of the Deployment a ReplicaSet is.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Earlier revisions of the same ReplicaSet.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// How many replicas the Deployment wanted when the ReplicaSet was last sized.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// How many replicas the Deployment allowed at that time.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// The revision to roll back to: what is left of the removed `rollbackTo` field.
pub const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
/// What `kubectl apply` remembers.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The longest revision history: a Deployment that is rolled back and forth for ever must stay below etcd's limit.
const REVISION_HISTORY_CHARS_MAX: usize = 2000;

/// Belongs to the Deployment or to the ReplicaSet alone, and is never copied between them.
pub fn is_own(annotation: &str) -> bool {
    [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO].contains(&annotation)
}

/// A number between 0 and the largest 32-bit one.
pub fn non_negative(annotations: &Map, annotation: &str) -> Option<i32> {
    let text = annotations.get(annotation)?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The revision of a ReplicaSet: 0 when it has none, none when it is no number.
pub fn revision(rs: &ReplicaSet) -> Option<i64> {
    rs.metadata.annotations.get(REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// Sets an annotation; returns whether that changed anything.
fn set(annotations: &mut Map, annotation: &str, value: String) -> bool {
    annotations.insert(annotation.into(), value.clone()).as_ref() != Some(&value)
}

/// Sets the annotations with the Deployment's size on a ReplicaSet; returns whether that changed anything.
pub fn set_sizes(d: &Deployment, rs: &mut ReplicaSet) -> bool {
    let annotations = &mut rs.metadata.annotations;
    let desired = set(annotations, DESIRED_REPLICAS, d.spec.replicas.to_string());
    let max = set(annotations, MAX_REPLICAS, max_replicas(d).to_string());
    desired || max
}

/// Brings the annotations of the new ReplicaSet up to date; returns whether they have to be written.
pub fn set_new_replica_set(d: &Deployment, rs: &mut ReplicaSet, new_revision: i64, exists: bool) -> bool {
    let mut changed = false;
    for (annotation, value) in d.metadata.annotations.iter().filter(|(annotation, _)| !is_own(annotation)) {
        changed |= set(&mut rs.metadata.annotations, annotation, value.clone());
    }
    let before = rs.metadata.annotations.get(REVISION).cloned();
    let Ok(old_revision) = before.as_deref().filter(|text| !text.is_empty()).map_or(Ok(0), str::parse::<i64>) else {
        return false;
    };
    if old_revision < new_revision {
        rs.metadata.annotations.insert(REVISION.into(), new_revision.to_string());
        changed = true;
        if let Some(before) = before {
            remember(&mut rs.metadata.annotations, &before);
        }
    }
    if !exists {
        changed |= set_sizes(d, rs);
    }
    changed
}

/// Appends a revision to the history, and drops the oldest ones when it grows too long.
fn remember(annotations: &mut Map, revision: &str) {
    let history = annotations.get(REVISION_HISTORY).cloned().unwrap_or_default();
    let mut rest = history.as_str();
    while !rest.is_empty() && rest.len() + 1 + revision.len() > REVISION_HISTORY_CHARS_MAX {
        rest = rest.split_once(',').map_or("", |(_, later)| later);
    }
    let history = if rest.is_empty() { revision.into() } else { format!("{rest},{revision}") };
    if history.len() <= REVISION_HISTORY_CHARS_MAX {
        annotations.insert(REVISION_HISTORY.into(), history);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_revisions_are_forgotten_first() {
        let mut annotations = Map::new();
        for revision in 1..=1000 {
            remember(&mut annotations, &revision.to_string());
        }
        let history = annotations.get(REVISION_HISTORY).unwrap();
        assert!(history.len() <= REVISION_HISTORY_CHARS_MAX && history.len() > REVISION_HISTORY_CHARS_MAX - 5);
        assert!(history.ends_with(",999,1000") && !history.starts_with("1,"));
    }
}
