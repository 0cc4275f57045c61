//! Patch: applied to the stored object, and again whenever another writer was faster.

use bayplan_kinds::GroupVersionKind;
use bayplan_kinds::codec::Conversion;
use bayplan_model::schema::Schema;
use bayplan_model::status::{Details, Status, reason};
use bayplan_patch::{Fault, body, json_patch, merge_patch, strategic, strict};
use bytes::Bytes;
use serde_json::Value;

use super::decode::{self, Input, Sent};
use super::{Answer, Call, Registry, UpdatedObject};
use crate::request::{FieldValidation, Preconditions};
use crate::status_errors;

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' strategic merge patch.
    Strategic,
}

impl PatchKind {
    /// Reads the content type of a patch that is not applied.
    pub(crate) fn parse(content_type: Option<&str>) -> Result<PatchKind, Status> {
        let media = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        match media {
            "application/json-patch+json" => Ok(PatchKind::Json),
            "application/merge-patch+json" => Ok(PatchKind::Merge),
            "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
            _ => Err(Status::failure(415, reason::UNSUPPORTED_MEDIA_TYPE, "415: Unsupported Media Type")
                .with_details(Details::default())),
        }
    }
}

/// A patch whose syntax has been checked.
pub(crate) struct Patch {
    kind: PatchKind,
    body: Bytes,
}

impl Patch {
    /// Reads the body of a patch.
    pub(crate) fn parse(kind: PatchKind, body: &[u8]) -> Result<Patch, Status> {
        let patch = Patch { kind, body: Bytes::copy_from_slice(body) };
        if let PatchKind::Strategic = kind {
            patch.strategic()?;
        }
        Ok(patch)
    }

    fn strategic(&self) -> Result<Value, Status> {
        body::object(&self.body).map_err(|error| status_errors::bad_request(format!("error decoding patch: {error}")))
    }

    /// Applies the patch to an object of a kind.
    pub(crate) fn apply(&self, kind: GroupVersionKind<'_>, object: &Value) -> Result<Value, Status> {
        let object = object.clone();
        match self.kind {
            PatchKind::Json => json_patch::apply(object, &self.body).map_err(|e| failed(e.fault(), &e)),
            PatchKind::Merge => merge_patch::apply(object, &self.body).map_err(|e| failed(e.fault(), &e)),
            PatchKind::Strategic => {
                let definition = Schema::get()
                    .definition(kind.group, kind.version, kind.kind)
                    .ok_or_else(|| status_errors::internal(format!("the type {} is not in the schema", kind.kind)))?;
                strategic::apply(object, &self.strategic()?, definition).map_err(|e| failed(e.fault(), &e))
            }
        }
    }
}

impl Patch {
    /// What it says twice, or says that no patch has.
    pub(super) fn strict_errors(&self) -> Vec<String> {
        match self.kind {
            PatchKind::Json => strict::of_operations(&self.body),
            PatchKind::Merge | PatchKind::Strategic => strict::of_object(&self.body),
        }
    }

    /// How its result becomes an object, which decides about the words for what does not fit.
    pub(super) fn conversion(&self) -> Conversion {
        match self.kind {
            PatchKind::Json | PatchKind::Merge => Conversion::Decoded,
            PatchKind::Strategic => Conversion::Restored,
        }
    }

    /// What the message quotes when the result is no object of the kind: the result, or of a strategic merge patch the
    /// patch itself.
    pub(super) fn quoted(&self, result: &Value) -> String {
        match self.kind {
            PatchKind::Json | PatchKind::Merge => result.to_string(),
            PatchKind::Strategic => self.strategic().map(|patch| strategic::printed(&patch)).unwrap_or_default(),
        }
    }
}

/// The answer to a patch that cannot be applied.
fn failed(fault: Fault, error: &dyn std::fmt::Display) -> Status {
    match fault {
        Fault::Undecodable => status_errors::bad_request(error.to_string()),
        Fault::TooLarge => {
            Status::failure(413, reason::REQUEST_ENTITY_TOO_LARGE, format!("Request entity too large: {error}"))
        }
        Fault::TooCostly => Status::failure(422, reason::INVALID, error.to_string()).with_details(Details::default()),
        Fault::Inapplicable => {
            Status::failure(422, reason::INVALID, "the server rejected our request due to an error in our request")
                .with_details(Details::default())
        }
        Fault::Unclassified => status_errors::plain(error.to_string()),
    }
}

impl Registry {
    /// Patches an object, or one of its subresources.
    pub(crate) async fn patch(
        &self,
        call: Call<'_>,
        kind: PatchKind,
        body: &[u8],
        field_validation: FieldValidation,
    ) -> Result<Answer, Status> {
        let patch = Patch::parse(kind, body)?;
        let mut compute = |old: &Value| {
            let patched = patch.apply(call.resource.group_version_kind(), old)?;
            let decoded = decode::object(call.resource, Input::Patched(patched, &patch), field_validation)?;
            call.warnings.extend(decoded.warnings);
            Ok(Sent { object: decoded.object, empties: decoded.empties })
        };
        self.update(call, UpdatedObject::Compute(&mut compute), Preconditions::default()).await
    }
}
