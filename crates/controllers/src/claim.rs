//! Claims objects for a controller: keeps those it owns and selects, releases those it owns and no longer selects, and
//! adopts those without an owner that it selects. Upstream's `ControllerRefManager`.

use std::sync::Arc;

use bayplan_model::api::{Api, PatchKind, Resource};
use bayplan_model::meta::{HasMeta, ObjectMeta, OwnerReference, PartialObjectMetadata};
use bayplan_model::status::{Status, reason};
use serde_json::json;

use crate::error::{Error, not_found};
use crate::requests;
use crate::workload::Selector;

/// A controller that claims objects.
pub struct Claimant<'a> {
    /// Kind of the controller.
    pub kind: &'static str,
    /// Group and version of the controller.
    pub api_version: &'static str,
    /// Resource of the controller, for the live read before the first adoption.
    pub resource: Resource,
    /// Metadata of the controller.
    pub meta: &'a ObjectMeta,
    /// The labels of the objects it claims.
    pub selector: &'a Selector,
    /// Kind of the claimed objects.
    pub object_kind: &'static str,
    /// Resource of the claimed objects.
    pub object_resource: Resource,
}

/// The result of claiming a list of objects.
#[derive(Debug)]
pub struct Claims<T> {
    /// The objects that belong to the controller now, in the order given.
    pub claimed: Vec<Arc<T>>,
    /// The metadata the server answered to each patch: the writes this controller made.
    pub written: Vec<ObjectMeta>,
    /// What failed; the other objects were claimed regardless.
    pub errors: Vec<Error>,
}

/// Whether an object belongs to a controller, and what has to be written to make it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimDecision {
    /// The controller owns it.
    Claimed,
    /// It is left alone.
    Ignored,
    /// The controller owns it, but its selector no longer matches.
    Release,
    /// It has no owner and the selector matches.
    Adopt,
}

impl Claimant<'_> {
    /// What to do with one object.
    pub fn decide(&self, object: &ObjectMeta) -> ClaimDecision {
        self.decide_on(object, self.selector.matches(&object.labels))
    }

    fn decide_on(&self, object: &ObjectMeta, matches: bool) -> ClaimDecision {
        let deleting = self.meta.deletion_timestamp.is_some();
        match object.controller() {
            Some(owner) if !self.is_named_by(object, owner) => ClaimDecision::Ignored,
            Some(_) if matches => ClaimDecision::Claimed,
            Some(_) if deleting => ClaimDecision::Ignored,
            Some(_) => ClaimDecision::Release,
            None if deleting || !matches || object.deletion_timestamp.is_some() => ClaimDecision::Ignored,
            None if !self.meta.namespace.is_empty() && object.namespace != self.meta.namespace => {
                ClaimDecision::Ignored
            }
            None => ClaimDecision::Adopt,
        }
    }

    /// Whether an object's reference names this controller: its UID alone could be written by anybody, anywhere.
    fn is_named_by(&self, object: &ObjectMeta, owner: &OwnerReference) -> bool {
        owner.uid == self.meta.uid
            && owner.name == self.meta.name
            && owner.kind == self.kind
            && object.namespace == self.meta.namespace
    }

    /// Claims, releases and adopts, object by object.
    pub async fn claim<T: HasMeta>(&self, api: &dyn Api, objects: impl IntoIterator<Item = Arc<T>>) -> Claims<T> {
        self.claim_with_finalizer(api, objects, None).await
    }

    /// Claims those that `matches` lets pass, which asks for more than the selector does, and releases the others.
    pub async fn claim_those<T: HasMeta>(
        &self,
        api: &dyn Api,
        objects: impl IntoIterator<Item = Arc<T>>,
        matches: impl Fn(&ObjectMeta) -> bool,
    ) -> Claims<T> {
        self.claim_all(api, objects, matches, None).await
    }

    /// The same, with a finalizer for the objects it adopts.
    pub async fn claim_with_finalizer<T: HasMeta>(
        &self,
        api: &dyn Api,
        objects: impl IntoIterator<Item = Arc<T>>,
        finalizer: Option<&str>,
    ) -> Claims<T> {
        self.claim_all(api, objects, |object| self.selector.matches(&object.labels), finalizer).await
    }

    async fn claim_all<T: HasMeta>(
        &self,
        api: &dyn Api,
        objects: impl IntoIterator<Item = Arc<T>>,
        matches: impl Fn(&ObjectMeta) -> bool,
        finalizer: Option<&str>,
    ) -> Claims<T> {
        let mut claims = Claims { claimed: Vec::new(), written: Vec::new(), errors: Vec::new() };
        // Checked once, before the first adoption: the cache may lag behind the controller's deletion.
        let mut may_adopt: Option<Result<(), String>> = None;
        for object in objects {
            match self.decide_on(object.meta(), matches(object.meta())) {
                ClaimDecision::Claimed => claims.claimed.push(object),
                ClaimDecision::Ignored => {}
                ClaimDecision::Release => match self.release(api, object.meta()).await {
                    Ok(written) => claims.written.extend(written),
                    Err(status) => claims.errors.push(status.into()),
                },
                ClaimDecision::Adopt => {
                    if may_adopt.is_none() {
                        may_adopt = Some(self.may_adopt(api).await);
                    }
                    if let Some(Err(why)) = &may_adopt {
                        claims.errors.push(self.cannot_adopt(object.meta(), why.clone()));
                        continue;
                    }
                    match self.adopt(api, object.meta(), finalizer).await {
                        Ok(Some(written)) => {
                            claims.written.push(written);
                            claims.claimed.push(object);
                        }
                        Ok(None) => {}
                        Err(status) => claims.errors.push(status.into()),
                    }
                }
            }
        }
        claims
    }

    /// Checks by a live read that the controller is still the same object and not being deleted.
    pub(crate) async fn may_adopt(&self, api: &dyn Api) -> Result<(), String> {
        let live: PartialObjectMetadata = requests::get(api, &self.resource, &self.meta.namespace, &self.meta.name)
            .await
            .map_err(|status| status.to_string())?;
        let key = self.meta.key();
        if live.metadata.uid != self.meta.uid {
            let (kind, got, wanted) = (self.kind, &live.metadata.uid, &self.meta.uid);
            return Err(format!("original {kind} {key} is gone: got uid {got}, wanted {wanted}"));
        }
        match live.metadata.deletion_timestamp {
            Some(at) => Err(format!("{key} has just been deleted at {at}")),
            None => Ok(()),
        }
    }

    fn cannot_adopt(&self, object: &ObjectMeta, why: String) -> Error {
        Error::Adopt { kind: self.object_kind, object: object.key(), uid: object.uid.clone(), why }
    }

    /// The UID in the patch is a precondition: a re-created object of the same name is left alone.
    async fn adopt(
        &self,
        api: &dyn Api,
        object: &ObjectMeta,
        finalizer: Option<&str>,
    ) -> Result<Option<ObjectMeta>, Status> {
        let owner = self.owner_reference();
        let mut patch = json!({"metadata": {"ownerReferences": [owner], "uid": object.uid}});
        if let Some(finalizer) = finalizer {
            patch["metadata"]["finalizers"] = json!([finalizer]);
        }
        match requests::patch(api, &self.object_resource, object, PatchKind::Strategic, &patch).await {
            Err(status) if not_found(&status) => Ok(None),
            answer => answer.map(Some),
        }
    }

    async fn release(&self, api: &dyn Api, object: &ObjectMeta) -> Result<Option<ObjectMeta>, Status> {
        let gone = json!({"$patch": "delete", "uid": self.meta.uid});
        let patch = json!({"metadata": {"uid": object.uid, "ownerReferences": [gone]}});
        match requests::patch(api, &self.object_resource, object, PatchKind::Strategic, &patch).await {
            Err(status) if not_found(&status) || status.is(reason::INVALID) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// The reference that names this controller as the owner.
    pub fn owner_reference(&self) -> OwnerReference {
        crate::workload::controller_reference(self.api_version, self.kind, self.meta)
    }
}
