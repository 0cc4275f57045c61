//! The revisions of a StatefulSet: the one its pods come from, and the one they go to.

use std::sync::Arc;

use bayplan_kinds::codec::{self, FieldValidation};
use bayplan_model::api::PatchKind;
use bayplan_model::keyed::KeyedSet;
use serde_json::{Value, json};

use super::object::StatefulSet;
use super::status::revision_of;
use super::{KIND, StatefulSetController, claimant};
use crate::cache::ControllerKey;
use crate::controller::{Context, lock};
use crate::error::Error;
use crate::pod::Pod;
use crate::requests::{self, CONTROLLER_REVISIONS};
use crate::revisions::{self, ControllerRevision, HASH_LABEL};

/// The revisions that one reconcile works with.
#[derive(Debug)]
pub(super) struct Revisions {
    /// The one that an update comes from.
    pub(super) current: Arc<ControllerRevision>,
    /// The one that the spec asks for.
    pub(super) update: Arc<ControllerRevision>,
    /// How often the name of a new revision belonged to another one.
    pub(super) collision_count: i32,
}

/// A set at a generation, and a revision that restores it although it is written otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SameMeaning {
    uid: String,
    generation: i64,
    revision: String,
}

/// A set's template as a revision, before it is created.
pub fn proposed(set: &StatefulSet, number: i64, collision_count: i32) -> ControllerRevision {
    let template = &set.spec.template;
    let hash = revisions::hash(&revisions::data(template), collision_count);
    let owner = claimant(set).owner_reference();
    revisions::new(&set.metadata, owner, template, (HASH_LABEL, &hash), number)
}

/// What a template means to this version of the API: as it is read, with its defaults filled in.
fn meaning(template: &Value) -> Option<Value> {
    let kind = bayplan_kinds::find("apps", "v1", "statefulsets")?;
    let set = json!({"spec": {"template": template}});
    let mut set = codec::canonical(kind.group_version_kind(), set, FieldValidation::Ignore).ok()?.object;
    kind.default(&mut set);
    Some(set["spec"]["template"].take())
}

impl StatefulSetController {
    /// The revisions that are the set's or could be, from the oldest to the newest.
    pub(super) fn revisions(&self, set: &StatefulSet) -> Vec<Arc<ControllerRevision>> {
        let mut found: Vec<Arc<ControllerRevision>> = {
            let revisions = self.cache.controller_revisions();
            let orphans = revisions.orphans(&set.metadata.namespace);
            let all = revisions.controlled_by(&ControllerKey::of(KIND, &set.metadata)).chain(orphans);
            all.filter(|revision| set.spec.selector.matches(&revision.metadata.labels)).cloned().collect()
        };
        revisions::sort(&mut found);
        found
    }

    /// Adopts the revisions that nobody owns; upstream's `adoptOrphanRevisions`.
    pub(super) async fn adopt_revisions(&self, set: &StatefulSet, context: Context<'_>) -> Result<(), Error> {
        let mut orphans = self.revisions(set);
        orphans.retain(|revision| revision.metadata.controller().is_none());
        if orphans.is_empty() {
            return Ok(());
        }
        let claimant = claimant(set);
        claimant.may_adopt(context.api).await.map_err(Error::AdoptRevisions)?;
        let owner = claimant.owner_reference();
        for revision in orphans {
            let patch = json!({"metadata": {"ownerReferences": [owner], "uid": revision.metadata.uid}});
            requests::patch(context.api, &CONTROLLER_REVISIONS, &revision.metadata, PatchKind::Strategic, &patch)
                .await?;
        }
        Ok(())
    }

    /// Finds the revision of the current template and makes it the newest one, or creates it; upstream's
    /// `getStatefulSetRevisions`.
    pub(super) async fn current_and_update(
        &self,
        set: &StatefulSet,
        sorted: &[Arc<ControllerRevision>],
        context: Context<'_>,
    ) -> Result<Revisions, Error> {
        let mut collision_count = set.status.collision_count.unwrap_or(0);
        let proposed = proposed(set, revisions::next_revision(sorted), collision_count);
        let newest = sorted.last();
        let equal = sorted.iter().rfind(|revision| revision.same_data(&proposed));
        let update = match (equal, newest) {
            (Some(equal), Some(newest)) if newest.same_data(equal) => newest.clone(),
            (Some(equal), _) => Arc::new(revisions::renumber(context.api, equal, proposed.revision).await?),
            (None, Some(newest)) if self.means_the_same(set, newest) => newest.clone(),
            (None, _) => {
                let created = revisions::create(context.api, &set.metadata.name, &proposed, &mut collision_count);
                Arc::new(created.await?)
            }
        };
        let named = sorted.iter().find(|revision| revision.metadata.name == set.status.current_revision);
        let current = named.unwrap_or(&update).clone();
        Ok(Revisions { current, update, collision_count })
    }

    /// Whether a revision that is written otherwise restores the set as it is: one that an older version wrote, with
    /// other defaults. Without this an upgrade would replace every pod.
    fn means_the_same(&self, set: &StatefulSet, newest: &ControllerRevision) -> bool {
        let key = set.metadata.key();
        let asked = SameMeaning {
            uid: set.metadata.uid.clone(),
            generation: set.metadata.generation,
            revision: newest.metadata.resource_version.clone(),
        };
        if lock(&self.same_meaning).get(&key) == Some(&asked) {
            return true;
        }
        let restored = meaning(&newest.template());
        let same = restored.is_some() && restored == meaning(&set.spec.template);
        if same {
            lock(&self.same_meaning).insert(key, asked);
        }
        same
    }
}

/// Deletes the oldest revisions that nothing is of, until as many are left as the spec allows.
pub(super) async fn truncate(
    set: &StatefulSet,
    sorted: &[Arc<ControllerRevision>],
    known: Option<&Revisions>,
    pods: &[Arc<Pod>],
    context: Context<'_>,
) -> Result<(), Error> {
    let Some(limit) = set.revision_history_limit().filter(|limit| sorted.len() > *limit) else { return Ok(()) };
    let mut live: KeyedSet<&str> = pods.iter().map(|pod| revision_of(pod)).collect();
    for revision in known.into_iter().flat_map(|known| [&known.current, &known.update]) {
        live.insert(&revision.metadata.name);
    }
    Ok(revisions::truncate(context.api, sorted, |name| live.contains(name), limit).await?)
}
