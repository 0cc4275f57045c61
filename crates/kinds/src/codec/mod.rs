//! Request bodies: JSON, YAML or protobuf in, canonical objects out.
//!
//! ```text
//!   JSON ─┐                      ┌─ unknown and duplicate fields ─▶ warnings, or one error under Strict
//!   YAML ─┼─▶ schema ────────────┼─ wrong types, wrong kind ──────▶ 400 in upstream's words
//!   proto ┘                      └─ the object as upstream would write it back
//! ```
//!
//! Canonical means: exactly the fields upstream's answer would show before defaulting. Unknown fields are gone, empty
//! omittable fields are gone, fields that are always written are there, quantities and times have their one spelling.

mod applied;
mod empties;
mod json;
mod older_versions;
mod protobuf;
mod protobuf_answers;
mod protobuf_writer;
mod quantity;
mod syntax;
#[cfg(test)]
mod tests;
mod time;
mod yaml;
mod zero;

use std::cell::Cell;

use bayplan_model::schema::{Definition, Schema};
use bayplan_model::status::{Details, Status, reason};
use serde_json::{Map, Value};

use json::Findings;

pub use empties::Empties;
pub(crate) use empties::StepName;
pub use protobuf_answers::{ProtobufList, write_metadata, write_object, write_value, write_watch_event};

use crate::group_version_kind::GroupVersionKind;

/// How upstream names its scheme in messages; clients show it, nobody parses it.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";

/// The kinds that every group version has besides its own.
const META_KINDS: [&str; 12] = [
    "Status",
    "APIVersions",
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "ListOptions",
    "GetOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
    "WatchEvent",
    "List",
];

/// The type of `metadata`.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// How much of an unreadable body a message quotes.
const SUMMARY_MAX: usize = 30;

/// The most structs of one object. A body of 3 MiB has room for a million empty ones, each of which takes a kilobyte
/// and some microseconds once its defaults are filled in. A few bodies with as many as this are answered within a
/// second together; real objects have hundreds, and a slice with all the devices and attributes that it may have,
/// thousands.
const PARTS_MAX: usize = 50_000;

/// What happens to unknown and repeated fields of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Dropped silently.
    Ignore,
    /// Dropped with a warning.
    #[default]
    Warn,
    /// Refused.
    Strict,
}

/// A decoded body.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The object in canonical form, not yet defaulted.
    pub object: Value,
    /// What that form does not show: where lists and maps were given empty.
    pub empties: Empties,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// The encoding of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Encoding {
    /// The encoding of a media type, JSON when none is given; `None` for any other.
    pub fn of_media_type(media_type: Option<&str>) -> Option<Encoding> {
        let Some(media_type) = media_type.filter(|given| !given.is_empty()) else { return Some(Encoding::Json) };
        match media_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase().as_str() {
            "application/json" => Some(Encoding::Json),
            "application/yaml" => Some(Encoding::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Encoding::Protobuf),
            _ => None,
        }
    }
}

/// Decodes the body of a create or update of an object of a kind.
///
/// `apiVersion` and `kind` may be missing from the body and are then taken from `expected`; otherwise they must agree.
pub fn decode(
    expected: GroupVersionKind<'_>,
    encoding: Encoding,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let definition = definition_of(expected)?;
    let strict = validation != FieldValidation::Ignore;
    let read = match encoding {
        Encoding::Json => read_json(body, definition, strict),
        Encoding::Yaml => read_yaml(body, definition, strict),
        Encoding::Protobuf => read_protobuf(expected, body, definition)?,
    };
    let (object, findings) = read.map_err(|message| unrecognized(expected, &message, body))?;
    conclude(expected, object, findings, validation)
}

/// How upstream makes an object of a value that is already in memory, which decides about the words for wrong types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conversion {
    /// Written as JSON and decoded again.
    #[default]
    Decoded,
    /// Field by field, as the result of a strategic merge patch.
    Restored,
}

/// Gives an object that is already in memory (the result of a patch, or bytes from the store) its canonical form.
pub fn canonical(
    expected: GroupVersionKind<'_>,
    object: Value,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    converted(expected, object, Conversion::Decoded, validation)
}

/// Gives an object its canonical form as [`canonical`] does, in the words of a conversion.
pub fn converted(
    expected: GroupVersionKind<'_>,
    object: Value,
    conversion: Conversion,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let definition = definition_of(expected)?;
    let mut findings = Findings::of(conversion, validation != FieldValidation::Ignore);
    let object = json::canonical(definition, object, &mut findings);
    conclude(expected, object, findings, validation)
}

/// Decodes the body of a delete; an empty body is `None`. Options of any group version are accepted.
pub fn decode_delete_options(encoding: Encoding, body: &[u8]) -> Result<Option<Value>, Status> {
    if body.is_empty() {
        return Ok(None);
    }
    let expected = GroupVersionKind { group: "", version: "v1", kind: "DeleteOptions" };
    let definition = definition_of(expected)?;
    let read = match encoding {
        Encoding::Json => read_json(body, definition, false),
        Encoding::Yaml => read_yaml(body, definition, false),
        Encoding::Protobuf => read_protobuf(expected, body, definition)?,
    };
    let (mut object, findings) = read.map_err(|message| unrecognized(expected, &message, body))?;
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or(expected.kind);
    if kind != expected.kind {
        let message = if META_KINDS.contains(&kind) {
            format!("converting (v1.{kind}) to (v1.DeleteOptions): unknown conversion")
        } else {
            "decoded object cannot be converted to DeleteOptions".to_owned()
        };
        return Err(bad_request(message));
    }
    if let Some(error) = findings.error {
        return Err(cannot_be_handled(expected, expected, &error));
    }
    object.insert("apiVersion".into(), "v1".into());
    object.insert("kind".into(), expected.kind.into());
    Ok(Some(Value::Object(object)))
}

fn bad_request(message: impl Into<String>) -> Status {
    Status::failure(400, reason::BAD_REQUEST, message)
}

type Read = Result<(Map<String, Value>, Findings), String>;

fn read_json(body: &[u8], definition: &'static Definition, strict: bool) -> Read {
    let mut findings = Findings::new(strict);
    // Go replaces what is not UTF-8.
    let text = String::from_utf8_lossy(body);
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let object = json::decode_struct(&mut deserializer, definition, &mut findings)
        .and_then(|object| deserializer.end().map(|()| object))
        .map_err(|error| {
            format!("couldn't get version/kind; json parse error: {}", syntax::explain(text.as_bytes(), &error))
        })?;
    Ok((object, findings))
}

fn read_yaml(body: &[u8], definition: &'static Definition, strict: bool) -> Read {
    let not_yaml = |message: String| format!("couldn't get version/kind; json parse error: {message}");
    let text = std::str::from_utf8(body).map_err(|error| format!("yaml: {error}"))?;
    let value: Value = yaml::parse(text)?;
    if !value.is_object() {
        return Err(not_yaml(format!(
            "json: cannot unmarshal {} into Go value of type {}",
            syntax::json_kind(&value),
            syntax::TYPE_META
        )));
    }
    let mut findings = Findings::new(strict);
    if strict {
        findings.strict.extend(yaml::repeated_keys(text));
    }
    let object = json::canonical(definition, value, &mut findings);
    Ok((object, findings))
}

/// Protobuf bodies name their kind outside the message, so a wrong kind is found before anything is read.
fn read_protobuf(expected: GroupVersionKind<'_>, body: &[u8], definition: &'static Definition) -> Result<Read, Status> {
    let Some(envelope) = body.strip_prefix(protobuf::MAGIC) else {
        return Ok(
            Err("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".into()),
        );
    };
    if envelope.is_empty() {
        return Ok(Err("empty body".into()));
    }
    let unknown = match protobuf::unknown(envelope) {
        Ok(unknown) => unknown,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if expected.kind != "DeleteOptions" || unknown.kind != "DeleteOptions" {
        check_kind(expected, unknown.api_version, unknown.kind)?;
    }
    let parts = Cell::new(0);
    let object = protobuf::message(unknown.raw, definition, &parts)
        .map_err(|error| cannot_be_handled(expected, expected, &error.to_string()))?;
    Ok(Ok((object, Findings::with_parts(parts.get()))))
}

/// The `apiVersion` and `kind` that the envelope of a protobuf body or of a stored object names; none for anything
/// else.
pub fn protobuf_kind(body: &[u8]) -> Option<(&str, &str)> {
    let unknown = protobuf::unknown(body.strip_prefix(protobuf::MAGIC)?).ok()?;
    Some((unknown.api_version, unknown.kind))
}

/// Reads a stored message as the storage version of its kind, whatever version its envelope names: the caller has seen
/// that the two have the same fields.
pub(crate) fn read_stored(storage: GroupVersionKind<'_>, body: &[u8]) -> Result<Value, String> {
    let definition = definition_of(storage).map_err(|status| status.message)?;
    let envelope = body.strip_prefix(protobuf::MAGIC).ok_or("it is no protobuf")?;
    let unknown = protobuf::unknown(envelope).map_err(|error| error.to_string())?;
    let parts = Cell::new(0);
    let mut object = protobuf::message(unknown.raw, definition, &parts).map_err(|error| error.to_string())?;
    if parts.get() > PARTS_MAX {
        return Err(format!("it is too large: the elements of its lists are more than {PARTS_MAX} structs"));
    }
    object.insert("apiVersion".into(), storage.api_version().into());
    object.insert("kind".into(), storage.kind.into());
    Ok(Value::Object(object))
}

/// Writes an object as upstream stores it: protobuf in the envelope.
pub(crate) fn write_stored(kind: GroupVersionKind<'_>, object: &Map<String, Value>) -> Result<Vec<u8>, String> {
    let definition = definition_of(kind).map_err(|status| status.message)?;
    let mut out = Vec::with_capacity(1024);
    protobuf_writer::envelope(&mut out, &kind.api_version(), kind.kind, definition, object)?;
    Ok(out)
}

/// The fields of the range object, which is stored but never served: range and bitmap.
pub(crate) fn read_range(body: &[u8]) -> Result<(String, Vec<u8>), String> {
    let envelope = body.strip_prefix(protobuf::MAGIC).ok_or("it is no protobuf")?;
    let unknown = protobuf::unknown(envelope).map_err(|error| error.to_string())?;
    protobuf::range(unknown.raw).map_err(|error| error.to_string())
}

/// Writes the range object as upstream stores it.
pub(crate) fn write_range(kind: GroupVersionKind<'_>, range: &str, data: &[u8]) -> Result<Vec<u8>, String> {
    let metadata = Schema::get().named(OBJECT_META).ok_or("the schema has no ObjectMeta")?;
    let mut out = Vec::new();
    protobuf_writer::in_envelope(&mut out, &kind.api_version(), kind.kind, |out| {
        protobuf_writer::nested(out, 1, |out| protobuf_writer::message(out, metadata, &Map::new()))?;
        protobuf_writer::bytes(out, 2, range.as_bytes());
        protobuf_writer::bytes(out, 3, data);
        Ok(())
    })?;
    Ok(out)
}

fn conclude(
    expected: GroupVersionKind<'_>,
    mut object: Map<String, Value>,
    findings: Findings,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    check_kind(expected, &text("apiVersion"), &text("kind"))?;
    if findings.has_too_many_parts() {
        return Err(too_many_parts(expected));
    }
    if let Some(error) = findings.error {
        return Err(cannot_be_handled(expected, expected, &error));
    }
    if validation == FieldValidation::Strict && !findings.strict.is_empty() {
        let error = format!("strict decoding error: {}", findings.strict.join(", "));
        return Err(cannot_be_handled(expected, expected, &error));
    }
    object.insert("apiVersion".into(), expected.api_version().into());
    object.insert("kind".into(), expected.kind.into());
    let warnings = findings.strict.iter().flat_map(|error| yaml::warnings_of(error)).collect();
    Ok(Decoded { object: Value::Object(object), empties: findings.empties.finish(), warnings })
}

/// Kinds whose older version has the same fields and is still accepted: clients before 1.22 evict with policy/v1beta1.
const OLDER_TWINS: &[(&str, &str, &str)] = &[("Eviction", "policy/v1beta1", "policy/v1")];

fn check_kind(expected: GroupVersionKind<'_>, api_version: &str, kind: &str) -> Result<(), Status> {
    let expected_version = expected.api_version();
    let api_version = if api_version.is_empty() { expected_version.as_str() } else { api_version };
    let kind = if kind.is_empty() { expected.kind } else { kind };
    let agrees =
        api_version == expected_version || OLDER_TWINS.contains(&(kind, api_version, expected_version.as_str()));
    if agrees && kind == expected.kind {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if version.contains('/') {
        let error =
            format!("couldn't get version/kind; json parse error: unexpected GroupVersion string: {api_version}");
        return Err(bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {error}",
            expected.kind
        )));
    }
    let given = GroupVersionKind { group, version, kind };
    let definition = Schema::get().decoded(group, version, kind);
    if kind == expected.kind && (definition.is_some() || older_versions::has(api_version, kind)) {
        return Err(bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected_version})"
        )));
    }
    let Some(definition) = definition else {
        let error = format!("no kind {kind:?} is registered for version {api_version:?} in scheme {SCHEME:?}");
        return Err(cannot_be_handled(expected, given, &error));
    };
    let internal = expected.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    let error = format!("converting ({}) to ({internal}.{}): unknown conversion", definition.go_name(), expected.kind);
    Err(cannot_be_handled(expected, given, &error))
}

fn too_many_parts(expected: GroupVersionKind<'_>) -> Status {
    let message =
        format!("{} is too large: the elements of its lists are more than {PARTS_MAX} structs", expected.kind);
    Status::failure(422, reason::INVALID, message)
        .with_details(Details { kind: expected.kind.to_owned(), ..Details::default() })
}

fn definition_of(expected: GroupVersionKind<'_>) -> Result<&'static Definition, Status> {
    Schema::get().decoded(expected.group, expected.version, expected.kind).ok_or_else(|| {
        Status::failure(500, reason::INTERNAL_ERROR, format!("Internal error occurred: no type for {}", expected.kind))
    })
}

fn cannot_be_handled(expected: GroupVersionKind<'_>, given: GroupVersionKind<'_>, error: &str) -> Status {
    bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {error}",
        given.kind, given.version, expected.kind
    ))
}

fn unrecognized(expected: GroupVersionKind<'_>, error: &str, body: &[u8]) -> Status {
    bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {error} ({})",
        expected.kind,
        summary(body)
    ))
}

/// The beginning of an unreadable body: verbatim when it looks like JSON, else in hex.
fn summary(body: &[u8]) -> String {
    let (head, more) = if body.len() > SUMMARY_MAX { (&body[..SUMMARY_MAX], " ...") } else { (body, "") };
    match head.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => {
            let hex: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

/// The `status` of a new object, `Null` for kinds without one.
pub(crate) fn empty_status(kind: GroupVersionKind<'_>) -> Value {
    let definition = Schema::get().decoded(kind.group, kind.version, kind.kind);
    let status = definition.and_then(|definition| definition.field("status"));
    status.map_or(Value::Null, |status| zero::zero(&status.ty))
}

/// Adds the fields that are written even when nothing was given for them.
pub(crate) fn complete(definition: &Definition, object: &mut Map<String, Value>) {
    zero::complete(definition, object);
}

/// Reads a body that is applied: YAML, or JSON, which is YAML too. The error is the parser's.
///
/// The second value tells what a strict parser says of it: Go's takes the last of repeated keys, and complains.
pub fn applied_object(body: &[u8]) -> Result<(Value, Option<String>), String> {
    applied::read(body)
}

/// A time as objects carry it: RFC 3339, UTC, to the second.
pub fn write_time(time: jiff::Timestamp) -> String {
    time::write_seconds(time)
}
