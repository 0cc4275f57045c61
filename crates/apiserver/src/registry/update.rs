//! Update: every change of a stored object, in a compare-and-swap loop.

use bayplan_kinds::Circumstances;
use bayplan_kinds::codec::Empties;
use bayplan_model::status::Status;
use bayplan_store::{Entry, Revision, WriteError};
use serde_json::Value;

use super::create::{CreatedBy, check_namespace};
use super::decode::Sent;
use super::ownership::{Writer, keep_times, without_entries};
use super::{Answer, Call, Registry, SystemWrite, check_preconditions, metadata};
use crate::admission::Operation;
use crate::big_work::apart;
use crate::request::Preconditions;
use crate::status_errors::{self, FieldError};

/// The new object of an update; upstream's `rest.UpdatedObjectInfo`.
pub(crate) enum UpdatedObject<'a> {
    /// The body of a PUT, decoded and defaulted.
    Replace(Sent),
    /// Computed from the stored object, as a patch is; called again whenever another writer was faster.
    Compute(&'a mut Compute<'a>),
    /// Computed with its managed fields, as the result of a scale is.
    Owned(&'a mut Compute<'a>),
    /// The same, from the empty object if there is none.
    Applied(&'a mut Compute<'a>),
}

/// Makes a new object of the stored one.
pub(crate) type Compute<'a> = dyn FnMut(&Value) -> Result<Sent, Status> + Send + 'a;

/// The entry that an update starts from.
struct Base {
    entry: Entry,
    /// False if it is what is known here, which may be a moment old.
    is_newest: bool,
}

/// A new state that took the place of an old one.
pub(super) struct Swapped {
    pub(super) answer: Answer,
    /// False if there was nothing to write.
    is_written: bool,
}

impl Registry {
    /// Replaces or patches an object, or one of its subresources.
    pub(crate) async fn update(
        &self,
        call: Call<'_>,
        mut updated: UpdatedObject<'_>,
        mut preconditions: Preconditions,
    ) -> Result<Answer, Status> {
        let key = Self::key(call.resource, call.namespace, call.name);
        let replaces = matches!(updated, UpdatedObject::Replace(_));
        let is_tracked = matches!(updated, UpdatedObject::Replace(_) | UpdatedObject::Compute(_));
        if let UpdatedObject::Replace(sent) = &mut updated {
            check_identity(&call, &mut sent.object)?;
            let uid = metadata::text(&sent.object, "uid");
            if !uid.is_empty() {
                preconditions.uid = Some(uid.to_owned());
            }
        }
        for attempts in 0.. {
            let Some(base) = self.base(&key, attempts).await? else {
                match self.update_missing(call, &mut updated, &preconditions).await {
                    // Somebody else was faster: what is applied goes to their object.
                    Err(status) if status.is("AlreadyExists") && matches!(updated, UpdatedObject::Applied(_)) => {
                        continue;
                    }
                    answer => return answer,
                }
            };
            let entry = &base.entry;
            let attempt = async {
                let old = self.decoded(call.resource, entry)?;
                check_preconditions(&call, &key, &preconditions, &old)?;
                let mut new = match &mut updated {
                    UpdatedObject::Replace(sent) => sent.clone(),
                    UpdatedObject::Compute(compute)
                    | UpdatedObject::Owned(compute)
                    | UpdatedObject::Applied(compute) => compute(&old)?,
                };
                if !replaces {
                    check_identity(&call, &mut new.object)?;
                }
                if is_tracked {
                    Writer::from(call).track_update(&old, &mut new.object, &new.empties, self.now());
                }
                self.try_update(call, &key, entry, &old, &mut new, replaces).await
            };
            // A short patch of a large object is as much work as a large body.
            let attempt = apart(entry.value.len(), attempt).await;
            if let Some(answer) = self.settled(&key, &base, attempt).await? {
                return Ok(answer);
            }
        }
        unreachable!("the loop above only ends by returning")
    }

    /// What an update starts from: at first the entry that is known here, then the one in the store.
    async fn base(&self, key: &str, attempts: usize) -> Result<Option<Base>, Status> {
        if attempts == 0
            && let Some(entry) = self.store.get_recent(key).await.map_err(status_errors::read)?
        {
            return Ok(Some(Base { entry, is_newest: false }));
        }
        Ok(self.entry(key).await?.map(|entry| Base { entry, is_newest: true }))
    }

    /// The outcome of an attempt, if it holds. A write holds by its precondition; a refusal, or that nothing is to be
    /// written, only if the entry was the newest. A write in doubt holds, too: a change that is found afterwards may be
    /// this very write, which must not be made a second time, nor be called a conflict with itself.
    async fn settled(
        &self,
        key: &str,
        base: &Base,
        attempt: Result<Option<Swapped>, Status>,
    ) -> Result<Option<Answer>, Status> {
        let holds = match &attempt {
            Ok(None) => return Ok(None),
            Ok(Some(swapped)) => swapped.is_written || base.is_newest,
            Err(status) => base.is_newest || status.is(bayplan_model::status::reason::TIMEOUT),
        };
        if !holds && self.entry(key).await?.map(|entry| entry.mod_revision) != Some(base.entry.mod_revision) {
            return Ok(None);
        }
        attempt.map(|swapped| swapped.map(|swapped| swapped.answer))
    }

    /// An update of an object that does not exist: some kinds are created by it.
    async fn update_missing(
        &self,
        call: Call<'_>,
        updated: &mut UpdatedObject<'_>,
        preconditions: &Preconditions,
    ) -> Result<Answer, Status> {
        let sent = match updated {
            UpdatedObject::Replace(sent) => sent,
            UpdatedObject::Applied(compute) => {
                let sent = compute(&call.resource.empty())?;
                return self.apply_new(call, sent).await;
            }
            _ => return Err(status_errors::not_found(call.resource, call.name)),
        };
        if !call.subresource.is_empty() || !call.resource.strategy.allow_create_on_update {
            return Err(status_errors::not_found(call.resource, call.name));
        }
        if preconditions.uid.is_some() || metadata::resource_version(&sent.object).is_some() {
            return Err(status_errors::not_found(call.resource, call.name));
        }
        let mut sent = sent.clone();
        metadata::wipe_system_fields(&mut sent.object);
        Writer::from(call).track_create(&mut sent.object, &sent.empties, self.now());
        self.plugins.admit(&self.admission(call, Operation::Create, call.name), &mut sent.object, None).await?;
        self.create_admitted(call, sent, CreatedBy::Update).await
    }

    /// Stores an applied object that did not exist.
    async fn apply_new(&self, call: Call<'_>, mut sent: Sent) -> Result<Answer, Status> {
        let object = &mut sent.object;
        let uid = metadata::text(object, "uid");
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(status_errors::conflict(call.resource, call.name, why));
        }
        check_identity(&call, object)?;
        if !call.subresource.is_empty() {
            return Err(status_errors::not_found(call.resource, call.name));
        }
        call.warnings.extend(metadata::deduplicate_owners(object));
        metadata::wipe_system_fields(object);
        self.plugins.admit(&self.admission(call, Operation::Create, call.name), object, None).await?;
        self.create_admitted(call, sent, CreatedBy::Update).await
    }

    /// One attempt; `None` if another writer was faster.
    async fn try_update(
        &self,
        call: Call<'_>,
        key: &str,
        entry: &Entry,
        old: &Value,
        sent: &mut Sent,
        replaces: bool,
    ) -> Result<Option<Swapped>, Status> {
        let strategy = &call.resource.strategy;
        let Sent { object: new, empties } = sent;
        match metadata::resource_version(new) {
            None if replaces && !strategy.allow_unconditional_update => {
                // The only 422 that names the resource instead of the kind.
                return Err(status_errors::invalid(
                    call.resource.group,
                    call.resource.plural,
                    call.name,
                    &[FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update")],
                ));
            }
            None => {}
            Some(version) if version == entry.mod_revision.to_string() => {}
            Some(version) if version.parse::<Revision>().is_err() => {
                return Err(status_errors::plain(format!("strconv.ParseUint: parsing {version:?}: invalid syntax")));
            }
            Some(_) => return Err(status_errors::modified(call.resource, call.name)),
        }
        let version = Value::String(entry.mod_revision.to_string());
        metadata::of(new).insert("resourceVersion".to_owned(), version);
        call.warnings.extend(metadata::deduplicate_owners(new));
        self.plugins.admit(&self.admission(call, Operation::Update, call.name), new, Some(old)).await?;
        keep_times(new, old);
        metadata::restore_system_fields(new, old);
        // The rules of services are about the addresses and ports that it has by then.
        let allocation = self.allocate_service(&call, Some(old), new).await?;
        let swapped = self.swap_checked(call, key, entry, old, new, empties).await;
        let stored = matches!(swapped, Ok(Some(_)));
        self.settle_service(allocation, stored.then_some(&*new)).await;
        swapped
    }

    /// The part of an attempt after the allocation of what a service asks for.
    async fn swap_checked(
        &self,
        call: Call<'_>,
        key: &str,
        entry: &Entry,
        old: &Value,
        new: &mut Value,
        empties: &Empties,
    ) -> Result<Option<Swapped>, Status> {
        call.resource.prepare_for_update(new, old, call.subresource, self.now());
        // A field that was put back is no change, either.
        keep_times(new, old);
        let mut errors = self.admin_access_errors(&call, new, Some(old)).await?;
        let circumstances = Circumstances { empties: empties.clone(), ..Circumstances::default() };
        errors.extend(call.resource.validate_update_under(circumstances, call.subresource, new, old));
        if !errors.is_empty() {
            return Err(status_errors::invalid_object(call.resource, call.name, &errors));
        }
        call.warnings.extend(match call.subresource {
            "" => call.resource.warnings(new, Some(old)),
            subresource => call.resource.subresource_warnings(subresource, new),
        });
        self.plugins.validate(&self.admission(call, Operation::Update, call.name), new, Some(old)).await?;
        self.swap(call, key, entry, metadata::deleting(old), new).await
    }

    /// Changes an object in place without admission, strategy and validation; removes it if that completes its
    /// deletion. Upstream's `GuaranteedUpdate` on the storage itself.
    pub(crate) async fn guaranteed_update(
        &self,
        why: SystemWrite,
        call: Call<'_>,
        change: &mut (dyn FnMut(&mut Value) -> Result<(), Status> + Send),
    ) -> Result<Answer, Status> {
        let key = Self::key(call.resource, call.namespace, call.name);
        tracing::trace!(?why, key, "the server updates an object unchecked");
        for attempts in 0.. {
            let base = self.base(&key, attempts).await?;
            let base = base.ok_or_else(|| status_errors::not_found(call.resource, call.name))?;
            let attempt = async {
                let mut object = self.decoded(call.resource, &base.entry)?;
                let deleting = metadata::deleting(&object);
                change(&mut object)?;
                self.swap(call, &key, &base.entry, deleting, &object).await
            };
            let attempt = attempt.await;
            if let Some(answer) = self.settled(&key, &base, attempt).await? {
                return Ok(answer);
            }
        }
        unreachable!("the loop above only ends by returning")
    }

    /// Writes the new state over the old one. Writes nothing if nothing changed, and removes an object whose deletion
    /// is now complete. `None` if another writer was faster.
    pub(super) async fn swap(
        &self,
        call: Call<'_>,
        key: &str,
        entry: &Entry,
        deleting: bool,
        new: &Value,
    ) -> Result<Option<Swapped>, Status> {
        let encoded = self.encode(call.resource, new);
        let swapped = |revision, is_written| {
            let encoded = super::conversion::view(call.resource, encoded.clone())?;
            Ok(Some(Swapped { answer: Answer::object(200, call.resource, encoded, Some(revision)), is_written }))
        };
        if deleting && deletion_complete(call.resource, new) {
            if call.dry_run {
                return swapped(entry.mod_revision, false);
            }
            return match self.store.delete(key, entry.mod_revision).await {
                // Several writers may take away the last finalizer; for all but one the object is gone already.
                Ok(_) | Err(WriteError::Conflict { found: None }) => {
                    self.release_service(&call, new).await;
                    swapped(entry.mod_revision, true)
                }
                Err(WriteError::Conflict { .. }) => Ok(None),
                Err(error) => Err(status_errors::write(error)),
            };
        }
        let is_first = entry.create_revision == entry.mod_revision;
        let changes = encoded.bytes() != &entry.value || (is_first && call.resource.is_stored_short(new));
        if call.dry_run || !changes {
            return swapped(entry.mod_revision, false);
        }
        match self.write_changed(call.resource, key, encoded.bytes().clone(), entry.mod_revision).await {
            Ok(revision) => swapped(revision, true),
            Err(WriteError::Conflict { .. }) => Ok(None),
            Err(error @ WriteError::TooLarge { .. }) => match without_entries(new) {
                Some(smaller) => Box::pin(self.swap(call, key, entry, deleting, &smaller)).await,
                None => Err(status_errors::write(error)),
            },
            Err(error) => Err(status_errors::write(error)),
        }
    }
}

/// Refuses a body whose name or namespace is not that of the URL.
pub(crate) fn check_identity(call: &Call<'_>, object: &mut Value) -> Result<(), Status> {
    check_namespace(call.resource, call.namespace, object)?;
    let name = metadata::text(object, "name");
    if name.is_empty() {
        return Err(status_errors::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.name
        )));
    }
    if name != call.name {
        return Err(status_errors::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name
        )));
    }
    Ok(())
}

/// True if a deleted object waits neither for a finalizer nor for its grace period.
fn deletion_complete(resource: &'static bayplan_kinds::Kind, new: &Value) -> bool {
    metadata::finalizers(new).is_empty()
        && new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && (resource.kind != "Namespace" || new["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty))
}
