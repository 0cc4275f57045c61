//! The one place where input becomes an object: decoded, checked for unknown fields, defaulted.
//!
//! ```text
//!   create, update   body (JSON, YAML, protobuf) ─┐
//!   patch            the patched object ──────────┴─▶ canonical object + warnings ─▶ defaults
//! ```

use bayplan_kinds::{GroupVersionKind, Kind};
use bayplan_model::status::Status;
use serde_json::Value;

use super::patch::Patch;
use crate::codec::{self, Decoded, Empties, Encoding};
use crate::request::FieldValidation;
use crate::status_errors::{self, FieldError};

/// What an object is decoded from.
pub(crate) enum Input<'a> {
    /// The body of a request.
    Body { content_type: Option<&'a str>, bytes: &'a [u8] },
    /// A stored object after a patch, and the patch.
    Patched(Value, &'a Patch),
}

/// A new object, decoded and defaulted.
pub(crate) struct New {
    pub(crate) decoded: Decoded,
    /// Whether it will have its labels in common with its template.
    pub(crate) shares_labels: bool,
}

/// Decodes and defaults the object of a create.
pub(crate) fn new_object(
    resource: &'static Kind,
    input: Input<'_>,
    field_validation: FieldValidation,
) -> Result<New, Status> {
    let mut decoded = without_defaults(resource.group_version_kind(), input, field_validation)?;
    let shares_labels = resource.shares_labels(&decoded.object);
    resource.default(&mut decoded.object);
    Ok(New { decoded, shares_labels })
}

/// An object on its way into the store.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) object: Value,
    /// What its canonical form does not show, though messages quote it and somebody owns it.
    pub(crate) empties: Empties,
}

impl Sent {
    /// The same in which nothing was given empty.
    pub(crate) fn plain(object: Value) -> Sent {
        Sent { object, empties: Empties::default() }
    }
}

/// Decodes and defaults an object of a resource.
pub(crate) fn object(
    resource: &'static Kind,
    input: Input<'_>,
    field_validation: FieldValidation,
) -> Result<Decoded, Status> {
    let mut decoded = without_defaults(resource.group_version_kind(), input, field_validation)?;
    resource.default(&mut decoded.object);
    Ok(decoded)
}

/// Decodes an object of a kind that has no defaults: a scale, a binding, a review.
pub(crate) fn without_defaults(
    kind: GroupVersionKind<'_>,
    input: Input<'_>,
    field_validation: FieldValidation,
) -> Result<Decoded, Status> {
    match input {
        Input::Body { content_type, bytes } => codec::decode(kind, encoding(content_type)?, bytes, field_validation),
        Input::Patched(patched, patch) => of_patch(kind, patched, patch, field_validation),
    }
}

/// The object that a patch makes. What is repeated or unknown in the patch comes before what is unknown in its result.
fn of_patch(
    kind: GroupVersionKind<'_>,
    patched: Value,
    patch: &Patch,
    field_validation: FieldValidation,
) -> Result<Decoded, Status> {
    let invalid = |status: Status| {
        if status.code == 400 { invalid_patch(kind, patch.quoted(&patched), &status) } else { status }
    };
    if field_validation == FieldValidation::Ignore {
        return codec::converted(kind, patched.clone(), patch.conversion(), field_validation).map_err(invalid);
    }
    let decoded = codec::converted(kind, patched.clone(), patch.conversion(), FieldValidation::Warn);
    let mut decoded = decoded.map_err(invalid)?;
    let mut warnings = patch.strict_errors();
    warnings.append(&mut decoded.warnings);
    if field_validation == FieldValidation::Strict && !warnings.is_empty() {
        let error = format!("strict decoding error: {}", warnings.join(", "));
        return Err(invalid_patch(kind, patch.quoted(&patched), &status_errors::bad_request(error)));
    }
    Ok(Decoded { warnings, ..decoded })
}

/// The encoding of a request body; a 415 for any other media type.
pub(crate) fn encoding(content_type: Option<&str>) -> Result<Encoding, Status> {
    Encoding::of_media_type(content_type).ok_or_else(status_errors::unsupported_media_type)
}

/// A patch that makes an object unreadable is a 422, where the same body of an update is a 400.
fn invalid_patch(kind: GroupVersionKind<'_>, quoted: String, status: &Status) -> Status {
    let why = status.message.split_once(&format!("cannot be handled as a {}: ", kind.kind));
    let why = why.map_or(status.message.as_str(), |(_, why)| why);
    let value = Value::String(quoted);
    // Upstream names neither the kind nor the object here.
    status_errors::invalid("", "", "", &[FieldError::invalid("patch", value, why)])
}
