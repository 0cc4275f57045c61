//! Create, and the naming of objects that leave their name to the server.

use bayplan_kinds::{Circumstances, Kind};
use bayplan_model::status::Status;
use bayplan_store::{Revision, WriteError};
use jiff::Timestamp;
use serde_json::Value;

use super::decode::Sent;
use super::ownership::{Writer, without_entries};
use super::{Answer, Call, Registry, metadata};
use crate::admission::Operation;
use crate::authz::{Action, Attributes};
use crate::encode::Encoded;
use crate::request::Verb;
use crate::status_errors;

/// Upstream gives up on a generated name after eight collisions.
const GENERATE_ATTEMPTS: usize = 8;

/// Which request stores a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CreatedBy {
    /// A POST, whose sender may create.
    Create,
    /// An update or a patch of an object that does not exist: its sender must have the right to create too.
    Update,
}

impl Registry {
    /// Stores a new object, which is decoded and defaulted.
    pub(crate) async fn create(&self, call: Call<'_>, mut sent: Sent) -> Result<Answer, Status> {
        let Sent { object, empties } = &mut sent;
        check_namespace(call.resource, call.namespace, object)?;
        metadata::wipe_system_fields(object);
        call.warnings.extend(metadata::deduplicate_owners(object));
        Writer::from(call).track_create(object, empties, self.now());
        let name = metadata::text(object, "name").to_owned();
        self.plugins.admit(&self.admission(call, Operation::Create, &name), object, None).await?;
        self.create_admitted(call, sent, CreatedBy::Create).await
    }

    /// The part of a create after mutating admission.
    pub(super) async fn create_admitted(&self, call: Call<'_>, sent: Sent, by: CreatedBy) -> Result<Answer, Status> {
        if !metadata::text(&sent.object, "name").is_empty() {
            return self.create_named(call, sent, by).await;
        }
        let prefix = metadata::text(&sent.object, "generateName").to_owned();
        for attempt in 1.. {
            let mut candidate = sent.clone();
            if !prefix.is_empty() {
                let name = metadata::generate_name(&prefix);
                metadata::of(&mut candidate.object).insert("name".to_owned(), Value::String(name));
            }
            match self.create_named(call, candidate, by).await {
                Err(status) if status.is("AlreadyExists") => {
                    if attempt < GENERATE_ATTEMPTS {
                        continue;
                    }
                    let name = status.details.map(|d| d.name).unwrap_or_default();
                    return Err(status_errors::generated_name_exhausted(call.resource, &name));
                }
                other => return other,
            }
        }
        unreachable!("the loop above only ends by returning")
    }

    async fn create_named(&self, call: Call<'_>, mut sent: Sent, by: CreatedBy) -> Result<Answer, Status> {
        let now = self.now();
        metadata::fill_system_fields(&mut sent.object, now);
        // The rules of services are about the addresses and ports that it has by then.
        let allocation = self.allocate_service(&call, None, &mut sent.object).await?;
        let created = self.create_allocated(call, &mut sent, by, now).await;
        self.settle_service(allocation, created.is_ok().then_some(&sent.object)).await;
        created
    }

    async fn create_allocated(
        &self,
        call: Call<'_>,
        sent: &mut Sent,
        by: CreatedBy,
        now: Timestamp,
    ) -> Result<Answer, Status> {
        let Sent { object, empties } = sent;
        call.warnings.extend(call.resource.early_warnings(object));
        call.resource.prepare_for_create(object, now);
        if call.shares_labels {
            call.resource.share_labels(object);
        }
        let name = metadata::text(object, "name").to_owned();
        let mut errors = self.admin_access_errors(&call, object, None).await?;
        let circumstances = Circumstances { empties: empties.clone(), ..Circumstances::default() };
        errors.extend(call.resource.validate_create_under(circumstances, object));
        if !errors.is_empty() {
            return Err(status_errors::invalid_object(call.resource, &name, &errors));
        }
        call.warnings.extend(call.resource.warnings(object, None));
        if by == CreatedBy::Update {
            self.authorize_create(&call)?;
        }
        self.plugins.validate(&self.admission(call, Operation::Create, &name), object, None).await?;
        if metadata::resource_version(object).is_some() {
            return Err(status_errors::plain("resourceVersion should not be set on objects to be created"));
        }
        let (encoded, revision) = self.store_new(&call, object, &name).await?;
        let encoded = super::conversion::view(call.resource, encoded)?;
        Ok(Answer::object(201, call.resource, encoded, revision))
    }

    /// Writes a new object; a dry run only sees whether it could.
    async fn store_new(
        &self,
        call: &Call<'_>,
        object: &Value,
        name: &str,
    ) -> Result<(Encoded, Option<Revision>), Status> {
        let encoded = self.encode(call.resource, object);
        let key = Self::key(call.resource, call.namespace, name);
        let revision = if call.dry_run {
            if let Some(found) = self.entry(&key).await? {
                return Err(self.exists(call.resource, name, &found));
            }
            None
        } else {
            match self.write_new(call.resource, &key, encoded.bytes().clone()).await {
                Ok(revision) => Some(revision),
                Err(WriteError::Conflict { found: Some(found) }) => {
                    return Err(self.exists(call.resource, name, &found));
                }
                Err(error @ WriteError::TooLarge { .. }) => {
                    let Some(smaller) = without_entries(object) else { return Err(status_errors::write(error)) };
                    return Box::pin(self.store_new(call, &smaller, name)).await;
                }
                Err(error) => return Err(status_errors::write(error)),
            }
        };
        Ok((encoded, revision))
    }

    /// The right to `create`, for a request that came with the right to another verb.
    fn authorize_create(&self, call: &Call<'_>) -> Result<(), Status> {
        let action = Action::Resource {
            group: call.resource.group,
            resource: call.resource.plural,
            subresource: call.subresource,
            name: call.name,
            namespace: call.namespace,
        };
        self.authorizer.check(&Attributes { user: call.user, verb: &Verb::Create, action, field_selector: "" })
    }

    fn exists(&self, resource: &'static Kind, name: &str, found: &bayplan_store::Entry) -> Status {
        let terminating = self.decoded(resource, found).is_ok_and(|object| metadata::deleting(&object));
        status_errors::already_exists(resource, name, terminating)
    }
}

/// Gives the object the namespace of the URL and refuses any other; objects at cluster scope lose theirs.
pub(super) fn check_namespace(resource: &Kind, namespace: &str, object: &mut Value) -> Result<(), Status> {
    let metadata = metadata::of(object);
    let given = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if !resource.namespaced() {
        metadata.remove("namespace");
        return Ok(());
    }
    if given.is_empty() {
        metadata.insert("namespace".to_owned(), Value::String(namespace.to_owned()));
        return Ok(());
    }
    if given != namespace {
        return Err(status_errors::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
