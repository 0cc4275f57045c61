//! The arithmetic of a rollout: how many pods each ReplicaSet may have.

use std::sync::Arc;

use bayplan_model::int_or_string::IntOrString;

use super::annotations::{DESIRED_REPLICAS, MAX_REPLICAS, non_negative};
use crate::error::Error;
use crate::workload::{Deployment, ReplicaSet};

/// The bounds of a rolling update in pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenceposts {
    /// Pods in excess of the desired number.
    pub surge: i32,
    /// Pods missing from the desired number.
    pub unavailable: i32,
}

/// Whether the Deployment replaces pods step by step.
pub fn is_rolling_update(d: &Deployment) -> bool {
    d.spec.strategy.strategy_type == "RollingUpdate"
}

/// A number of pods, or a percentage of the desired ones. Upstream keeps the low 32 bits of what is larger.
fn pods(value: &IntOrString, d: &Deployment, round_up: bool) -> Result<i32, Error> {
    Ok(value.scaled(i64::from(d.spec.replicas), round_up)? as i32)
}

/// `maxSurge`, rounded up; 0 when the Deployment has none.
fn surge(d: &Deployment) -> Result<i32, Error> {
    let value = d.spec.strategy.rolling_update.as_ref().and_then(|r| r.max_surge.as_ref());
    value.map_or(Ok(0), |value| pods(value, d, true))
}

/// Both bounds; they cannot both be zero, or the rollout could never start. Upstream's `ResolveFenceposts`.
pub fn fenceposts(d: &Deployment) -> Result<Fenceposts, Error> {
    let surge = surge(d)?;
    let value = d.spec.strategy.rolling_update.as_ref().and_then(|r| r.max_unavailable.as_ref());
    let unavailable = value.map_or(Ok(0), |value| pods(value, d, false))?;
    let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
    Ok(Fenceposts { surge, unavailable })
}

/// How many pods may be there in excess.
pub fn max_surge(d: &Deployment) -> i32 {
    if is_rolling_update(d) { fenceposts(d).map_or(0, |f| f.surge) } else { 0 }
}

/// How many pods may be missing.
pub fn max_unavailable(d: &Deployment) -> i32 {
    if !is_rolling_update(d) || d.spec.replicas == 0 {
        return 0;
    }
    fenceposts(d).map_or(0, |f| f.unavailable).min(d.spec.replicas)
}

/// How many pods must be available all the time.
pub fn min_available(d: &Deployment) -> i32 {
    if is_rolling_update(d) { d.spec.replicas.saturating_sub(max_unavailable(d)) } else { 0 }
}

/// The most pods the Deployment may have.
pub fn max_replicas(d: &Deployment) -> i32 {
    d.spec.replicas.saturating_add(max_surge(d))
}

/// The sum of `spec.replicas`.
pub fn spec_replicas<'a>(sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> i32 {
    sets.into_iter().fold(0, |sum, rs| sum.saturating_add(rs.spec.replicas))
}

/// The sum of `status.availableReplicas`.
pub fn available_replicas<'a>(sets: impl IntoIterator<Item = &'a Arc<ReplicaSet>>) -> i32 {
    sets.into_iter().fold(0, |sum, rs| sum.saturating_add(rs.status.available_replicas))
}

/// How many pods the new ReplicaSet should have next, given all ReplicaSets (the new one included).
pub fn new_replicas<'a>(
    d: &Deployment,
    all: impl IntoIterator<Item = &'a Arc<ReplicaSet>>,
    new: &ReplicaSet,
) -> Result<i32, Error> {
    match d.spec.strategy.strategy_type.as_str() {
        "RollingUpdate" => {
            let room = d.spec.replicas.saturating_add(surge(d)?).saturating_sub(spec_replicas(all));
            if room <= 0 {
                return Ok(new.spec.replicas);
            }
            Ok(new.spec.replicas.saturating_add(room.min(d.spec.replicas.saturating_sub(new.spec.replicas))))
        }
        "Recreate" => Ok(d.spec.replicas),
        other => Err(Error::Invalid(format!("deployment type {other} isn't supported"))),
    }
}

/// The share of a ReplicaSet in `to_add` pods (negative: to take away), when others already got `added` of them.
pub fn proportion(rs: &ReplicaSet, d: &Deployment, to_add: i32, added: i32) -> i32 {
    if rs.spec.replicas == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let (share, left) = (fraction(rs, d), to_add.saturating_sub(added));
    if to_add > 0 { share.min(left) } else { share.max(left) }
}

/// By how much a ReplicaSet must grow to keep its share in a Deployment that was scaled.
fn fraction(rs: &ReplicaSet, d: &Deployment) -> i32 {
    if d.spec.replicas == 0 {
        return rs.spec.replicas.saturating_neg();
    }
    let annotated = non_negative(&rs.metadata.annotations, MAX_REPLICAS).filter(|max| *max != 0);
    let before = annotated.unwrap_or(d.status.replicas);
    if before == 0 {
        return 0;
    }
    // Upstream multiplies 32-bit numbers before it divides floating ones; the wrap is part of the answer.
    let size = f64::from(rs.spec.replicas.wrapping_mul(max_replicas(d))) / f64::from(before);
    (size.round() as i32).saturating_sub(rs.spec.replicas)
}

/// Whether the new ReplicaSet has all the pods it can get, all of them available.
pub fn is_saturated(d: &Deployment, new: Option<&ReplicaSet>) -> bool {
    new.is_some_and(|rs| {
        let desired = rs.metadata.annotations.get(DESIRED_REPLICAS).and_then(|text| text.parse::<i64>().ok());
        rs.spec.replicas == d.spec.replicas
            && desired == Some(i64::from(d.spec.replicas))
            && rs.status.available_replicas == d.spec.replicas
    })
}

/// The one ReplicaSet a scaling concerns: the only active one, or the newest when none is active.
pub fn active_or_latest(new: Option<&Arc<ReplicaSet>>, old: &[Arc<ReplicaSet>]) -> Option<Arc<ReplicaSet>> {
    let mut active = old.iter().chain(new).filter(|rs| rs.spec.replicas > 0);
    match (active.next(), active.next()) {
        (None, _) => new.or_else(|| old.iter().max_by(|a, b| by_age(a, b))).cloned(),
        (Some(one), None) => Some(one.clone()),
        _ => None,
    }
}

/// Older first; the name decides between equals.
pub fn by_age(a: &Arc<ReplicaSet>, b: &Arc<ReplicaSet>) -> std::cmp::Ordering {
    let age = |rs: &Arc<ReplicaSet>| rs.metadata.creation_timestamp;
    age(a).cmp(&age(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}
