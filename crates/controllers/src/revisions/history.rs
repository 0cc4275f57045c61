//! The revisions of one owner as a history: in order, numbered, created without clashes, and cut at a limit.

use std::sync::Arc;

use bayplan_model::api::{Api, DeleteOptions};
use bayplan_model::status::{Status, reason};

use super::{ControllerRevision, hash, name};
use crate::error::not_found;
use crate::requests::{self, CONTROLLER_REVISIONS};

/// How often a write that meets a newer version is tried: upstream's default retry.
const CONFLICT_ATTEMPTS: usize = 5;

/// Sorts revisions from the oldest to the newest: by number, then by age, then by name.
pub fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|a, b| {
        let age = |r: &ControllerRevision| (r.revision, r.metadata.creation_timestamp);
        age(a).cmp(&age(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
    });
}

/// The number after the newest of sorted revisions.
pub fn next_revision(sorted: &[Arc<ControllerRevision>]) -> i64 {
    sorted.last().map_or(1, |newest| newest.revision.saturating_add(1))
}

/// Creates a StatefulSet's revision. When its name belongs to other data, the collision is counted and the next name
/// is tried; a revision with the same data is taken as it is.
pub async fn create(
    api: &dyn Api,
    owner: &str,
    revision: &ControllerRevision,
    collision_count: &mut i32,
) -> Result<ControllerRevision, Status> {
    let mut attempt = revision.clone();
    let namespace = revision.metadata.namespace.as_str();
    loop {
        attempt.metadata.name = name(owner, &hash(&revision.data, *collision_count));
        match requests::create(api, &CONTROLLER_REVISIONS, namespace, &attempt).await {
            Err(status) if status.is(reason::ALREADY_EXISTS) => {}
            answer => return answer,
        }
        let name = &attempt.metadata.name;
        let existing: ControllerRevision = requests::get(api, &CONTROLLER_REVISIONS, namespace, name).await?;
        if existing.same_data(revision) {
            return Ok(existing);
        }
        *collision_count = collision_count.wrapping_add(1);
    }
}

/// Gives a revision another number. When somebody wrote it meanwhile, the write is made again on the newest version.
pub async fn renumber(api: &dyn Api, revision: &ControllerRevision, number: i64) -> Result<ControllerRevision, Status> {
    let mut changed = revision.clone();
    for _ in 1..CONFLICT_ATTEMPTS {
        if changed.revision == number {
            return Ok(changed);
        }
        changed.revision = number;
        match requests::update(api, &CONTROLLER_REVISIONS, &revision.metadata, &changed).await {
            Err(status) if status.is(reason::CONFLICT) => {
                let meta = &revision.metadata;
                changed = requests::get(api, &CONTROLLER_REVISIONS, &meta.namespace, &meta.name).await?;
            }
            answer => return answer,
        }
    }
    changed.revision = number;
    requests::update(api, &CONTROLLER_REVISIONS, &revision.metadata, &changed).await
}

/// Deletes the oldest of sorted revisions, beyond a number of those that are not live; up to the first failure.
pub async fn truncate(
    api: &dyn Api,
    sorted: &[Arc<ControllerRevision>],
    is_live: impl Fn(&str) -> bool,
    limit: usize,
) -> Result<(), Status> {
    let history: Vec<_> = sorted.iter().filter(|revision| !is_live(&revision.metadata.name)).collect();
    let surplus = history.len().saturating_sub(limit);
    for revision in history.into_iter().take(surplus) {
        match requests::delete(api, &CONTROLLER_REVISIONS, &revision.metadata, DeleteOptions::default()).await {
            Err(status) if !not_found(&status) => return Err(status),
            _ => {}
        }
    }
    Ok(())
}
