//! Creates, updates and deletes the pods of a set and their claims, and tells in events; upstream's
//! `StatefulPodControl`.
//!
//! Claims are read from the cache again before each step, as upstream does: a step may see what the one before wrote.

use std::fmt::Display;
use std::sync::Arc;

use bayplan_model::api::{DeleteOptions, Request, Verb, decode, encode};
use bayplan_model::meta::{ObjectMeta, PartialObjectMetadata};
use bayplan_model::status::{Status, reason};
use bayplan_model::storage::PersistentVolumeClaim;
use serde::Deserialize;
use serde_json::{Value, json};

use super::identity::{self, pod_name};
use super::object::{ClaimTemplate, StatefulSet};
use super::pod_template::{claim, claim_name, identify, volumes};
use super::retention::{Holder, Owners};
use super::{StatefulSetController, regarding};
use crate::controller::{Context, lock};
use crate::error::{Error, not_found};
use crate::pod::Pod;
use crate::requests::{self, PERSISTENT_VOLUME_CLAIMS, PODS};

/// How often the write of a pod that meets a newer version is tried: upstream's default back-off.
const CONFLICT_ATTEMPTS: usize = 4;

/// What one reconcile writes with.
pub(super) struct Writes<'a> {
    pub(super) controller: &'a StatefulSetController,
    pub(super) key: &'a str,
    pub(super) set: &'a StatefulSet,
    pub(super) context: Context<'a>,
}

#[derive(Clone, Copy)]
enum Did {
    Create,
    Update,
    Delete,
}

impl Did {
    /// The reasons of success and failure, and the word in the note.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Did::Create => ("SuccessfulCreate", "FailedCreate", "Create"),
            Did::Update => ("SuccessfulUpdate", "FailedUpdate", "Update"),
            Did::Delete => ("SuccessfulDelete", "FailedDelete", "Delete"),
        }
    }
}

/// The volume of each claim template is there.
fn has_storage(set: &StatefulSet, pod: &Pod, ordinal: i64) -> bool {
    set.spec.volume_claim_templates.iter().all(|template| {
        // Of several volumes of one name upstream looks at the last.
        let volume = pod.volume_claims.iter().rfind(|volume| volume.volume == template.name);
        volume.is_some_and(|volume| volume.claim == claim_name(set, template, ordinal))
    })
}

impl<'a> Writes<'a> {
    fn tell_pod(&self, did: Did, pod: &str, error: Option<&dyn Display>) {
        let (success, failure, word) = did.words();
        let set = &self.set.metadata.name;
        let regarding = regarding(self.set);
        match error {
            None => {
                self.context.normal(regarding, success, format!("{word} Pod {pod} in StatefulSet {set} successful"))
            }
            Some(error) => {
                let note = format!("{word} Pod {pod} in StatefulSet {set} failed error: {error}");
                self.context.warning(regarding, failure, note);
            }
        }
    }

    fn tell_claim(&self, claim: &str, pod: &str, error: Option<&Status>) {
        let set = &self.set.metadata.name;
        let regarding = regarding(self.set);
        match error {
            None => {
                let note = format!("Create Claim {claim} Pod {pod} in StatefulSet {set} success");
                self.context.normal(regarding, "SuccessfulCreate", note);
            }
            Some(error) => {
                let note = format!("Create Claim {claim} for Pod {pod} in StatefulSet {set} failed error: {error}");
                self.context.warning(regarding, "FailedCreate", note);
            }
        }
    }

    fn claim(&self, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        self.controller.cache.volume_claims().get(&self.set.metadata.namespace, name)
    }

    fn wrote_pod(&self, meta: &ObjectMeta) {
        let mut consistency = lock(&self.controller.consistency);
        consistency.wrote_pod(self.key, &self.set.metadata.uid, &meta.resource_version);
    }

    fn wrote_claim(&self, meta: &ObjectMeta) {
        let mut consistency = lock(&self.controller.consistency);
        consistency.wrote_claim(self.key, &self.set.metadata.uid, &meta.resource_version);
    }

    fn owners<'b>(&'b self, pod: &'b ObjectMeta, ordinal: i64) -> Owners<'b> {
        Owners { set: self.set, pod: Holder { meta: pod, ordinal } }
    }

    /// The claims of a pod that are there.
    fn claims(&self, ordinal: i64) -> impl Iterator<Item = Arc<PersistentVolumeClaim>> {
        let templates = &self.set.spec.volume_claim_templates;
        templates.iter().filter_map(move |template| self.claim(&claim_name(self.set, template, ordinal)))
    }

    /// Whether a pod that is to be created must wait until the claims of its predecessor are gone.
    pub(super) fn waits_for_old_claims(&self, ordinal: i64) -> bool {
        if !self.set.deletes_claims().0 {
            return false;
        }
        let pod = ObjectMeta { name: pod_name(self.set, ordinal), ..ObjectMeta::default() };
        let owners = self.owners(&pod, ordinal);
        self.claims(ordinal).any(|claim| owners.pod_is_stale(&claim.metadata))
    }

    /// Creates a pod after its claims.
    pub(super) async fn create(&self, pod: &Value, ordinal: i64) -> Result<(), Error> {
        let name = pod_name(self.set, ordinal);
        if let Err(error) = self.create_claims(&name, ordinal).await {
            self.tell_pod(Did::Create, &name, Some(&error));
            return Err(error);
        }
        let request = Request::collection(&PODS, &self.set.metadata.namespace, Verb::Create(encode(pod)));
        let created = self.context.api.call(request).await;
        let created = created.and_then(|body| decode::<PartialObjectMetadata>(&body));
        if let Ok(pod) = &created {
            self.wrote_pod(&pod.metadata);
        }
        if let Err(status) = &created
            && status.is(reason::ALREADY_EXISTS)
        {
            return Err(Error::Api(status.clone()));
        }
        // The server's UID is not known to upstream here, and so a claim of a predecessor is left alone.
        let pod = ObjectMeta { name: name.clone(), ..ObjectMeta::default() };
        if let Err(error) = self.correct_owners(&pod, ordinal).await {
            self.tell_pod(Did::Update, &name, Some(&error));
            return Err(error);
        }
        self.tell_pod(Did::Create, &name, created.as_ref().err().map(|status| status as &dyn Display));
        Ok(created.map(|_| ())?)
    }

    /// Creates the claims of a pod that does not run yet, should they be missing, and corrects their owners.
    pub(super) async fn complete_claims(&self, pod: &Pod, ordinal: i64) -> Result<(), Error> {
        self.create_claims(&pod.metadata.name, ordinal).await?;
        let corrected = self.correct_owners(&pod.metadata, ordinal).await;
        if let Err(error) = &corrected {
            self.tell_pod(Did::Update, &pod.metadata.name, Some(error));
        }
        corrected
    }

    async fn create_claims(&self, pod: &str, ordinal: i64) -> Result<(), Error> {
        let mut errors = Vec::new();
        for template in &self.set.spec.volume_claim_templates {
            let name = claim_name(self.set, template, ordinal);
            match self.claim(&name) {
                Some(claim) if claim.metadata.deletion_timestamp.is_some() => {
                    errors.push(Error::ClaimIsDeleted { name });
                }
                Some(_) => {}
                None => errors.extend(self.create_claim(template, name, pod, ordinal).await.err()),
            }
        }
        Error::collect(errors)
    }

    async fn create_claim(&self, template: &ClaimTemplate, name: String, pod: &str, ordinal: i64) -> Result<(), Error> {
        let claim = claim(self.set, template, ordinal);
        let namespace = &self.set.metadata.namespace;
        let created: Result<PartialObjectMetadata, Status> =
            requests::create(self.context.api, &PERSISTENT_VOLUME_CLAIMS, namespace, &claim).await;
        match created {
            Ok(created) => {
                self.wrote_claim(&created.metadata);
                self.tell_claim(&name, pod, None);
                Ok(())
            }
            Err(status) => {
                if !status.is(reason::ALREADY_EXISTS) {
                    self.tell_claim(&name, pod, Some(&status));
                }
                Err(Error::CreateClaim { name, status })
            }
        }
    }

    /// Whether the owners of a pod's claims are as the policy has them; a missing claim is as good as any.
    pub(super) fn owners_are_right(&self, pod: &ObjectMeta, ordinal: i64) -> bool {
        let owners = self.owners(pod, ordinal);
        self.claims(ordinal).all(|claim| owners.are_right(&claim.metadata))
    }

    /// Corrects the owners of a pod's claims.
    pub(super) async fn correct_owners(&self, pod: &ObjectMeta, ordinal: i64) -> Result<(), Error> {
        let owners = self.owners(pod, ordinal);
        for template in &self.set.spec.volume_claim_templates {
            let Some(claim) = self.claim(&claim_name(self.set, template, ordinal)) else { continue };
            let name = &claim.metadata.name;
            if owners.conflict(&claim.metadata) {
                let note = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, \
                     the retention policy is ignored for this claim"
                );
                self.context.warning(regarding(self.set), "ConflictingController", note);
            }
            if !owners.are_right(&claim.metadata) {
                let written = self.write_owners(&owners, &claim.metadata).await;
                written.map_err(|status| Error::OwnClaim { name: name.clone(), status })?;
            }
        }
        Ok(())
    }

    /// Writes a claim's owners. The cache has no whole claims, so the write begins with the server's.
    async fn write_owners(&self, owners: &Owners<'_>, known: &ObjectMeta) -> Result<(), Status> {
        let (api, namespace, name) = (self.context.api, &known.namespace, &known.name);
        let mut live: Value = requests::get(api, &PERSISTENT_VOLUME_CLAIMS, namespace, name).await?;
        let meta = metadata(&live)?;
        if owners.are_right(&meta) {
            self.wrote_claim(&meta);
            return Ok(());
        }
        live["metadata"]["ownerReferences"] = json!(owners.corrected(&meta));
        let stored = requests::update(api, &PERSISTENT_VOLUME_CLAIMS, known, &live).await?;
        self.wrote_claim(&metadata(&stored)?);
        Ok(())
    }

    /// Gives a pod back its labels and volumes, and its claims their owners.
    pub(super) async fn restore(&self, pod: &Pod, ordinal: i64) -> Result<(), Error> {
        let has_storage = has_storage(self.set, pod, ordinal);
        if !has_storage && let Err(error) = self.create_claims(&pod.metadata.name, ordinal).await {
            self.tell_pod(Did::Update, &pod.metadata.name, Some(&error));
            return Err(error);
        }
        if let Err(error) = self.correct_owners(&pod.metadata, ordinal).await {
            self.tell_pod(Did::Update, &pod.metadata.name, Some(&error));
            return Err(error);
        }
        let written = self.write_pod(pod, ordinal, has_storage).await;
        let error = written.as_ref().err().map(|status| status as &dyn Display);
        self.tell_pod(Did::Update, &pod_name(self.set, ordinal), error);
        Ok(written?)
    }

    /// Writes a pod with its labels and volumes. The cache has no whole pods, so the write begins with the server's.
    async fn write_pod(&self, pod: &Pod, ordinal: i64, has_storage: bool) -> Result<(), Status> {
        let api = self.context.api;
        let wanted = ObjectMeta { name: pod_name(self.set, ordinal), ..pod.metadata.clone() };
        let mut attempt = 1;
        loop {
            let mut live: Value = requests::get(api, &PODS, &wanted.namespace, &pod.metadata.name).await?;
            if live["metadata"]["uid"] != pod.metadata.uid {
                // Somebody else has replaced it: what is known of this pod does not hold for that one.
                let message = format!("the UID of pod {} is not {} any more", pod.metadata.name, pod.metadata.uid);
                return Err(Status::failure(409, reason::CONFLICT, message));
            }
            identify(&mut live["metadata"], &wanted.name, ordinal);
            if !has_storage {
                live["spec"]["volumes"] = volumes(self.set, ordinal, live["spec"]["volumes"].take());
            }
            match requests::update(api, &PODS, &wanted, &live).await {
                Err(status) if status.is(reason::CONFLICT) && attempt < CONFLICT_ATTEMPTS => attempt += 1,
                answer => return answer.and_then(|stored| metadata(&stored)).map(|meta| self.wrote_pod(&meta)),
            }
        }
    }

    /// Whether a pod and its claims are as they were created.
    pub(super) fn is_intact(&self, pod: &Pod, ordinal: i64) -> bool {
        identity::matches(self.set, pod, ordinal)
            && has_storage(self.set, pod, ordinal)
            && self.owners_are_right(&pod.metadata, ordinal)
    }

    /// Deletes a pod; one that is gone already counts as deleted.
    pub(super) async fn delete(&self, pod: &ObjectMeta) -> Result<(), Error> {
        match requests::delete(self.context.api, &PODS, pod, DeleteOptions::default()).await {
            Err(status) if !not_found(&status) => {
                self.tell_pod(Did::Delete, &pod.name, Some(&status));
                Err(Error::Api(status))
            }
            _ => {
                self.tell_pod(Did::Delete, &pod.name, None);
                Ok(())
            }
        }
    }
}

/// The metadata of an object that is known as JSON.
fn metadata(object: &Value) -> Result<ObjectMeta, Status> {
    ObjectMeta::deserialize(&object["metadata"])
        .map_err(|error| Status::failure(0, reason::INTERNAL_ERROR, format!("unreadable answer: {error}")))
}
