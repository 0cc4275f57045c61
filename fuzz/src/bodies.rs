//! Request bodies in all encodings: decoded, defaulted, validated, printed, written and read again.
//!
//! Input: `<plural> <encoding> <validation>`, a newline, the body. `protobuf` is a message to which the envelope is
//! added; `envelope` is a whole protobuf body.

use bayplan_kinds::codec::{self, Decoded, Encoding, FieldValidation};
use bayplan_kinds::{Kind, served};
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use jiff::Timestamp;
use serde_json::Value;

use crate::{bounded, first_line};

/// Bytes allocated for each byte of a body. A `{},` in a list of containers becomes an object of six fields with its
/// defaults, and a dozen errors of 200 bytes each; everything is done several times over here.
const FACTOR: u64 = 8192;

pub(crate) fn run(data: &[u8]) {
    let (line, body) = first_line(data);
    let mut words = line.split(' ');
    let kind = kind(words.next().unwrap_or_default());
    let (encoding, body) = encoded(words.next().unwrap_or_default(), kind, body);
    let validation = match words.next() {
        Some("strict") => FieldValidation::Strict,
        Some("ignore") => FieldValidation::Ignore,
        _ => FieldValidation::Warn,
    };
    bounded::work(body.len(), FACTOR, "a body", || {
        match codec::decode(kind.group_version_kind(), encoding, &body, validation) {
            Ok(decoded) => accepted(kind, decoded, body.len()),
            Err(status) => bounded::refusal(body.len(), "decoding", &status),
        }
        match codec::decode_delete_options(encoding, &body) {
            Ok(options) => drop(options),
            Err(status) => bounded::refusal(body.len(), "decoding delete options", &status),
        }
    });
}

/// The kind with this plural; any kind when there is none, so that a mutated name still leads somewhere.
fn kind(plural: &str) -> &'static Kind {
    let any = plural.bytes().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
    served().find(|kind| kind.plural == plural).unwrap_or_else(|| served().nth(any % served().count()).expect("a kind"))
}

fn encoded(word: &str, kind: &Kind, body: &[u8]) -> (Encoding, Vec<u8>) {
    match word {
        "yaml" => (Encoding::Yaml, body.to_vec()),
        "envelope" => (Encoding::Protobuf, body.to_vec()),
        "protobuf" => (Encoding::Protobuf, envelope(kind, body)),
        _ => (Encoding::Json, body.to_vec()),
    }
}

/// `k8s`, a zero byte and `runtime.Unknown`: the kind's name and the message.
fn envelope(kind: &Kind, message: &[u8]) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let mut field = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length >= 0x80 {
            field.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        field.push(length as u8);
        field.extend_from_slice(bytes);
        field
    };
    let type_meta = [field(1, kind.api_version().as_bytes()), field(2, kind.kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, message)].concat()
}

/// What holds of every object that was decoded.
fn accepted(kind: &'static Kind, decoded: Decoded, input: usize) {
    for warning in &decoded.warnings {
        bounded::text(input, "a warning", warning);
    }
    let object = decoded.object;
    same_when_read_again(kind, &object, "decoded");
    let mut defaulted = object;
    kind.default(&mut defaulted);
    same_when_read_again(kind, &defaulted, "defaulted");
    let mut twice = defaulted.clone();
    kind.default(&mut twice);
    assert_eq!(twice, defaulted, "{}: defaulting twice is not defaulting once", kind.kind);

    let mut object = defaulted;
    let now = Timestamp::UNIX_EPOCH;
    kind.prepare_for_create(&mut object, now);
    let errors = kind.validate_create(&object);
    bounded::errors(input, "validation", &errors);
    let _ = (kind.warnings(&object, None), kind.row(&object, now));
    for field in kind.selectable_fields() {
        let _ = kind.field_value(&object, field);
    }
    if errors.is_empty() {
        valid(kind, &object, now, input);
    }
}

/// What holds of every object that could be created.
fn valid(kind: &'static Kind, object: &Value, now: Timestamp, input: usize) {
    let mut updated = object.clone();
    kind.prepare_for_update(&mut updated, object, "", now);
    assert_eq!(&updated, object, "{}: an update without a change changes something", kind.kind);
    for subresource in ["", "status"] {
        let errors = kind.validate_update(subresource, &updated, object);
        bounded::errors(input, "validation of an update", &errors);
    }
    let mut stored = object.clone();
    kind.convert_to_storage(&mut stored);
    kind.convert_from_storage(&mut stored);
    assert_eq!(&stored, object, "{}: what is stored is read as something else", kind.kind);
    // What the API server accepts, the scheduler can read.
    let text = object.to_string();
    match kind.kind {
        "Pod" => drop(serde_json::from_str::<Pod>(&text).unwrap_or_else(|error| panic!("{error}: {text}"))),
        "Node" => drop(serde_json::from_str::<Node>(&text).unwrap_or_else(|error| panic!("{error}: {text}"))),
        _ => {}
    }
}

/// An object is already as it is written: as JSON, as YAML and in memory.
fn same_when_read_again(kind: &'static Kind, object: &Value, what: &str) {
    let of = kind.group_version_kind();
    let text = object.to_string();
    let json = codec::decode(of, Encoding::Json, text.as_bytes(), FieldValidation::Strict);
    let json = json.unwrap_or_else(|status| panic!("{what}, written and refused: {}: {text}", status.message));
    assert_eq!(&json.object, object, "{what}, written and read again");
    let canonical = codec::canonical(of, object.clone(), FieldValidation::Strict);
    let canonical = canonical.unwrap_or_else(|status| panic!("{what} and refused: {}: {text}", status.message));
    assert_eq!(&canonical.object, object, "{what}, made canonical again");
}
