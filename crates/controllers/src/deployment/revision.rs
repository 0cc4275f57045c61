//! The ReplicaSet of the newest template: found, updated or created; and its revision.

use std::sync::Arc;

use bayplan_model::meta::ObjectMeta;
use bayplan_model::status::reason as api_reason;
use serde_json::Value;

use super::annotations::{self, REVISION};
use super::arithmetic::{by_age, new_replicas};
use super::conditions::{self, PROGRESSING, condition, progress_deadline, reason};
use super::template::{self, POD_TEMPLATE_HASH};
use super::{Rollout, Sets};
use crate::error::{Error, namespace_terminating};
use crate::pod_template_hash;
use crate::requests::{self, REPLICA_SETS};
use crate::workload::{Deployment, ReplicaSet, ReplicaSetSpec, template_map};

/// The longest name a ReplicaSet may have.
const NAME_MAX: usize = 253;

/// The oldest ReplicaSet with the Deployment's template.
pub fn find_new(d: &Deployment, sets: &[Arc<ReplicaSet>]) -> Option<Arc<ReplicaSet>> {
    let same = sets.iter().filter(|rs| template::same(&rs.spec.template, &d.spec.template));
    same.min_by(|a, b| by_age(a, b)).cloned()
}

/// The highest revision among ReplicaSets.
fn max_revision(sets: &[Arc<ReplicaSet>]) -> i64 {
    sets.iter().filter_map(|rs| annotations::revision(rs)).max().unwrap_or(0).max(0)
}

impl Rollout<'_> {
    /// The new and the old ReplicaSets, with the revision annotations up to date; creates the new one if asked to.
    pub(super) async fn sets(&mut self, create: bool) -> Result<Sets, Error> {
        let new = find_new(&self.d, &self.owned);
        let is_new = |rs: &Arc<ReplicaSet>| new.as_ref().is_some_and(|new| new.metadata.uid == rs.metadata.uid);
        let old: Vec<_> = self.owned.iter().filter(|rs| !is_new(rs)).cloned().collect();
        let revision = max_revision(&old).saturating_add(1);
        let new = match new {
            Some(new) => Some(self.refresh(new, revision).await?),
            None if create => Some(self.create(&old, revision).await?),
            None => None,
        };
        Ok(Sets { new, old })
    }

    /// Brings the new ReplicaSet's annotations up to date, or else the Deployment's revision: never both in one sync.
    async fn refresh(&mut self, rs: Arc<ReplicaSet>, revision: i64) -> Result<Arc<ReplicaSet>, Error> {
        let mut changed = ReplicaSet::clone(&rs);
        let annotated = annotations::set_new_replica_set(&self.d, &mut changed, revision, true);
        if annotated || rs.spec.min_ready_seconds != self.d.spec.min_ready_seconds {
            changed.spec.min_ready_seconds = self.d.spec.min_ready_seconds;
            return Ok(Arc::new(self.update_replica_set(&changed).await?));
        }
        let revision = rs.metadata.annotations.get(REVISION).cloned().unwrap_or_default();
        let mut needs_update = self.set_revision(revision);
        if progress_deadline(&self.d).is_some() && conditions::get(&self.d.status, PROGRESSING).is_none() {
            let message = format!("Found new replica set \"{}\"", rs.metadata.name);
            self.set_progressing("True", reason::FOUND_NEW_REPLICA_SET, message);
            needs_update = true;
        }
        if needs_update {
            self.write_status().await?;
        }
        Ok(rs)
    }

    fn set_revision(&mut self, revision: String) -> bool {
        let current = self.d.metadata.annotations.get(REVISION);
        if current.map_or("", String::as_str) == revision {
            return false;
        }
        self.d.metadata.annotations.insert(REVISION.into(), revision);
        true
    }

    pub(super) fn set_progressing(&mut self, truth: &str, why: &str, message: String) {
        let condition = condition(PROGRESSING, truth, why, message, self.context.second());
        conditions::set(&mut self.d.status, condition);
    }

    async fn create(&mut self, old: &[Arc<ReplicaSet>], revision: i64) -> Result<Arc<ReplicaSet>, Error> {
        let mut rs = self.new_replica_set();
        let all: Vec<_> = old.iter().cloned().chain([Arc::new(rs.clone())]).collect();
        rs.spec.replicas = new_replicas(&self.d, &all, &rs)?;
        annotations::set_new_replica_set(&self.d, &mut rs, revision, false);
        let (namespace, name) = (rs.metadata.namespace.clone(), rs.metadata.name.clone());
        let created: Result<ReplicaSet, _> = requests::create(self.context.api, &REPLICA_SETS, &namespace, &rs).await;
        let (rs, fresh) = match created {
            Ok(rs) => (rs, true),
            Err(status) if status.is(api_reason::ALREADY_EXISTS) => match self.existing(&name) {
                Some(rs) => (rs, false),
                None => return Err(self.collide(status.into()).await),
            },
            Err(status) if namespace_terminating(&status) => return Err(status.into()),
            Err(status) => {
                let message = format!("Failed to create new replica set \"{name}\": {status}");
                return Err(self.creation_failed(message, status.into()).await);
            }
        };
        if fresh && rs.spec.replicas > 0 {
            let note = format!("Scaled up replica set {name} from 0 to {}", rs.spec.replicas);
            self.context.normal(self.regarding(), "ScalingReplicaSet", note);
        }
        let mut needs_update = self.set_revision(revision.to_string());
        if fresh && progress_deadline(&self.d).is_some() {
            let message = format!("Created new replica set \"{name}\"");
            self.set_progressing("True", reason::NEW_REPLICA_SET_CREATED, message);
            needs_update = true;
        }
        if needs_update {
            self.write_status().await?;
        }
        Ok(Arc::new(rs))
    }

    /// The ReplicaSet of the Deployment's template, with its hash, before it is sized.
    fn new_replica_set(&self) -> ReplicaSet {
        let d = &self.d;
        let hash = pod_template_hash::hash(&d.spec.template, d.status.collision_count);
        let mut template = Value::clone(&d.spec.template);
        template["metadata"]["labels"][POD_TEMPLATE_HASH] = Value::String(hash.clone());
        let mut selector = d.spec.selector.source().clone();
        selector.match_labels.insert(POD_TEMPLATE_HASH.into(), hash.clone());
        let metadata = ObjectMeta {
            name: replica_set_name(&d.metadata.name, &hash),
            namespace: d.metadata.namespace.clone(),
            labels: template_map(&template, "/metadata/labels"),
            owner_references: vec![super::claimant(d).owner_reference()],
            ..ObjectMeta::default()
        };
        let min_ready_seconds = d.spec.min_ready_seconds;
        let spec =
            ReplicaSetSpec { replicas: 0, min_ready_seconds, selector: selector.into(), template: Arc::new(template) };
        ReplicaSet { metadata, spec, ..ReplicaSet::default() }
    }

    /// A ReplicaSet of that name exists: it may be ours, not yet in the cache.
    fn existing(&self, name: &str) -> Option<ReplicaSet> {
        let rs = self.cache.replica_sets().get(&self.d.metadata.namespace, name)?;
        let ours = rs.metadata.controller().is_some_and(|owner| owner.uid == self.d.metadata.uid);
        (ours && template::same(&rs.spec.template, &self.d.spec.template)).then(|| ReplicaSet::clone(&rs))
    }

    /// A foreign ReplicaSet has the name: counts the collision, so that the next attempt has another hash.
    async fn collide(&mut self, error: Error) -> Error {
        let name_known = |name: &str| self.cache.replica_sets().get(&self.d.metadata.namespace, name).is_some();
        let hash = pod_template_hash::hash(&self.d.spec.template, self.d.status.collision_count);
        if !name_known(&replica_set_name(&self.d.metadata.name, &hash)) {
            // It is not in the cache yet, so it may be ours.
            return error;
        }
        self.d.status.collision_count = Some(self.d.status.collision_count.unwrap_or(0).wrapping_add(1));
        match self.write_status().await {
            Ok(()) => error,
            Err(write) => write,
        }
    }

    async fn creation_failed(&mut self, message: String, error: Error) -> Error {
        if progress_deadline(&self.d).is_some() {
            self.set_progressing("False", reason::REPLICA_SET_CREATE_ERROR, message.clone());
            // The creation's own error is what matters; this write is retried with it.
            let _ = self.write_status().await;
        }
        self.context.warning(self.regarding(), "ReplicaSetCreateError", message);
        error
    }
}

/// `<deployment>-<hash>`, the Deployment's name cut where that would be too long.
fn replica_set_name(deployment: &str, hash: &str) -> String {
    let room = NAME_MAX - 1 - hash.len();
    let prefix = deployment.get(..room).unwrap_or(deployment);
    format!("{prefix}-{hash}")
}
