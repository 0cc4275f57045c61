//! The revisions of a DaemonSet: one ControllerRevision for each template it had, the current one with the highest
//! number. `kubectl rollout undo` reads them.

use std::sync::Arc;

use bayplan_model::api::{DeleteOptions, PatchKind};
use bayplan_model::keyed::KeyedSet;
use bayplan_model::status::reason;
use serde_json::json;

use super::object::DaemonSet;
use super::{DaemonSetController, KIND, claimant};
use crate::cache::ControllerKey;
use crate::claim::Claimant;
use crate::controller::Context;
use crate::error::Error;
use crate::pod::Pod;
use crate::pod_template_hash;
use crate::requests::{self, CONTROLLER_REVISIONS, DAEMON_SETS, PODS};
use crate::revisions::{self, ControllerRevision, REVISION_LABEL};

/// The revisions as a reconcile found or made them.
pub(super) struct History {
    /// The hash of the current template: the label of its revision and of its pods.
    pub(super) hash: String,
    /// The revisions of other templates.
    old: Vec<Arc<ControllerRevision>>,
}

fn hash_of(revision: &ControllerRevision) -> &str {
    revision.metadata.labels.get(REVISION_LABEL).map_or("", String::as_str)
}

impl DaemonSetController {
    /// Finds the revision of the current template and makes it the newest one, or creates it; upstream's
    /// `constructHistory`.
    pub(super) async fn history(&self, key: &str, ds: &DaemonSet, context: Context<'_>) -> Result<History, Error> {
        let data = revisions::data(&ds.spec.template.value);
        let (mut current, mut old) = (Vec::new(), Vec::new());
        for revision in self.revisions(ds, context).await? {
            let revision = labelled(revision, context).await?;
            if *revision.data == data { current.push(revision) } else { old.push(revision) }
        }
        let number = old.iter().map(|revision| revision.revision).max().unwrap_or(0).max(0) + 1;
        let Some(newest) = current.iter().max_by_key(|revision| revision.revision).cloned() else {
            let created = self.create_revision(ds, number, context).await?;
            return Ok(History { hash: hash_of(&created).into(), old });
        };
        if current.len() > 1 {
            self.drop_duplicates(key, ds, &newest, &current, context).await?;
        }
        if newest.revision < number {
            let renumbered = ControllerRevision { revision: number, ..(*newest).clone() };
            requests::update(context.api, &CONTROLLER_REVISIONS, &newest.metadata, &renumbered).await?;
        }
        Ok(History { hash: hash_of(&newest).into(), old })
    }

    /// The revisions that belong to the DaemonSet, after adoption and release.
    async fn revisions(&self, ds: &DaemonSet, context: Context<'_>) -> Result<Vec<Arc<ControllerRevision>>, Error> {
        let mut candidates: Vec<Arc<ControllerRevision>> = {
            let revisions = self.cache.controller_revisions();
            let orphans = revisions.orphans(&ds.metadata.namespace);
            revisions.controlled_by(&ControllerKey::of(KIND, &ds.metadata)).chain(orphans).cloned().collect()
        };
        candidates.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        let claimant =
            Claimant { object_kind: "ControllerRevision", object_resource: CONTROLLER_REVISIONS, ..claimant(ds) };
        let claims = claimant.claim(context.api, candidates).await;
        Error::collect(claims.errors)?;
        Ok(claims.claimed)
    }

    async fn create_revision(
        &self,
        ds: &DaemonSet,
        number: i64,
        context: Context<'_>,
    ) -> Result<ControllerRevision, Error> {
        let template = &ds.spec.template.value;
        let hash = pod_template_hash::hash(template, ds.status.collision_count);
        let owner = claimant(ds).owner_reference();
        let mut revision = revisions::new(&ds.metadata, owner, template, (REVISION_LABEL, &hash), number);
        // Unlike a StatefulSet's, this name is never cut.
        revision.metadata.name = format!("{}-{hash}", ds.metadata.name);
        let (api, namespace) = (context.api, &ds.metadata.namespace);
        let refused = match requests::create(api, &CONTROLLER_REVISIONS, namespace, &revision).await {
            Err(status) if status.is(reason::ALREADY_EXISTS) => status,
            answer => return answer.map_err(Error::Api),
        };
        let name = &revision.metadata.name;
        let existing: ControllerRevision = requests::get(api, &CONTROLLER_REVISIONS, namespace, name).await?;
        if existing.same_data(&revision) {
            return Ok(existing);
        }
        self.count_collision(ds, context).await?;
        Err(Error::Api(refused))
    }

    /// Another template has the name: the next hash is made with a higher count.
    async fn count_collision(&self, ds: &DaemonSet, context: Context<'_>) -> Result<(), Error> {
        let (namespace, name) = (&ds.metadata.namespace, &ds.metadata.name);
        let mut live: DaemonSet = requests::get(context.api, &DAEMON_SETS, namespace, name).await?;
        let (known, counted) = (ds.status.collision_count, live.status.collision_count);
        if known != counted {
            let text = |count: Option<i32>| count.map_or("none".to_owned(), |count| count.to_string());
            return Err(Error::Invalid(format!(
                "found a stale collision count ({}, expected {}) of DaemonSet {name:?} while processing; will retry \
                 until it is updated",
                text(known),
                text(counted),
            )));
        }
        live.status.collision_count = Some(counted.unwrap_or(0).saturating_add(1));
        requests::update_status(context.api, &DAEMON_SETS, &ds.metadata, &live).await?;
        Ok(())
    }

    /// Keeps one of several revisions of the same template; the pods of the others become its own.
    async fn drop_duplicates(
        &self,
        key: &str,
        ds: &DaemonSet,
        kept: &ControllerRevision,
        all: &[Arc<ControllerRevision>],
        context: Context<'_>,
    ) -> Result<(), Error> {
        let hash = hash_of(kept);
        for pod in self.claim(key, ds, context).await? {
            if pod.metadata.labels.get(REVISION_LABEL).map_or("", String::as_str) != hash {
                let patch = json!({"metadata": {"labels": {REVISION_LABEL: hash}}});
                requests::patch(context.api, &PODS, &pod.metadata, PatchKind::Merge, &patch).await?;
            }
        }
        for other in all.iter().filter(|other| other.metadata.name != kept.metadata.name) {
            requests::delete(context.api, &CONTROLLER_REVISIONS, &other.metadata, DeleteOptions::default()).await?;
        }
        Ok(())
    }
}

/// The revision with the label that pods are compared with; one that has none gets its name.
async fn labelled(revision: Arc<ControllerRevision>, context: Context<'_>) -> Result<Arc<ControllerRevision>, Error> {
    if revision.metadata.labels.contains_key(REVISION_LABEL) {
        return Ok(revision);
    }
    let mut updated = (*revision).clone();
    updated.metadata.labels.insert(REVISION_LABEL.into(), revision.metadata.name.clone());
    Ok(requests::update(context.api, &CONTROLLER_REVISIONS, &revision.metadata, &updated).await.map(Arc::new)?)
}

impl History {
    /// Deletes the oldest revisions that no pod is of, until as many are left as the spec allows.
    pub(super) async fn clean_up(&self, ds: &DaemonSet, pods: &[Arc<Pod>], context: Context<'_>) -> Result<(), Error> {
        let surplus = self.old.len().saturating_sub(ds.revision_history_limit());
        if surplus == 0 {
            return Ok(());
        }
        let targeted = pods.iter().filter(|pod| pod.target_node().is_some());
        let live: KeyedSet<&str> =
            targeted.filter_map(|pod| pod.metadata.labels.get(REVISION_LABEL)).map(String::as_str).collect();
        let mut old = self.old.clone();
        old.sort_by_key(|revision| revision.revision);
        for revision in old.iter().filter(|revision| !live.contains(hash_of(revision))).take(surplus) {
            requests::delete(context.api, &CONTROLLER_REVISIONS, &revision.metadata, DeleteOptions::default()).await?;
        }
        Ok(())
    }
}
