//! Writes canonical objects as protobuf, driven by the schema: byte for byte what upstream's generated code writes.
//!
//! Upstream writes the fields in the order of their numbers, and every field that is no pointer even when it is zero.
//! Values that do not fit their type are an error, so that nothing is stored that would be read as something else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bayplan_model::schema::{Definition, Field, Schema, Type, WireField};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::protobuf::MAGIC;

/// Wire types of protobuf.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

/// An object's message in its envelope.
pub(crate) fn envelope(
    out: &mut Vec<u8>,
    api_version: &str,
    kind: &str,
    definition: &'static Definition,
    object: &Map<String, Value>,
) -> Result<(), String> {
    in_envelope(out, api_version, kind, |out| message(out, definition, object))
}

/// Writes an envelope around the message that `write` appends.
pub(crate) fn in_envelope(
    out: &mut Vec<u8>,
    api_version: &str,
    kind: &str,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    begin_envelope(out, api_version, kind)?;
    nested(out, ENVELOPED, write)?;
    end_envelope(out);
    Ok(())
}

/// The field of an envelope that holds the message.
const ENVELOPED: u32 = 2;

fn begin_envelope(out: &mut Vec<u8>, api_version: &str, kind: &str) -> Result<(), String> {
    out.extend_from_slice(MAGIC);
    nested(out, 1, |out| {
        bytes(out, 1, api_version.as_bytes());
        bytes(out, 2, kind.as_bytes());
        Ok(())
    })
}

fn end_envelope(out: &mut Vec<u8>) {
    // Neither a content encoding nor a content type.
    bytes(out, 3, b"");
    bytes(out, 4, b"");
}

/// What comes before and after the rest of a message in its envelope: `start` is the start of the message, `rest` the
/// length of what follows it.
pub(crate) fn around(api_version: &str, kind: &str, start: &[u8], rest: usize) -> Result<(Vec<u8>, Vec<u8>), String> {
    let (mut head, mut tail) = (Vec::with_capacity(start.len() + 64), Vec::new());
    begin_envelope(&mut head, api_version, kind)?;
    varint(&mut head, u64::from(ENVELOPED << 3 | LENGTH));
    varint(&mut head, (start.len() + rest) as u64);
    head.extend_from_slice(start);
    end_envelope(&mut tail);
    Ok((head, tail))
}

/// Appends the fields of a message.
pub(crate) fn message(
    out: &mut Vec<u8>,
    definition: &'static Definition,
    object: &Map<String, Value>,
) -> Result<(), String> {
    for (number, wire) in definition.wire_fields() {
        match wire {
            WireField::Inlined(inner) => nested(out, *number, |out| message(out, Schema::get().at(*inner), object))?,
            WireField::Field(index) => {
                let field = &definition.fields[*index];
                let value = object.get(field.name).filter(|value| !value.is_null());
                write_field(out, *number, field, value).map_err(|error| within(field.name, &error))?;
            }
        }
    }
    Ok(())
}

/// Puts the name of a field before an error, as a path.
fn within(field: &str, error: &str) -> String {
    if error.starts_with(':') { format!("{field}{error}") } else { format!("{field}.{error}") }
}

fn write_field(out: &mut Vec<u8>, number: u32, field: &Field, value: Option<&Value>) -> Result<(), String> {
    match (&field.ty, value) {
        (Type::List(of, _), Some(Value::Array(list))) => {
            list.iter().try_for_each(|element| write_value(out, number, of, element))
        }
        (Type::Map(of, _), Some(Value::Object(map))) => map.iter().try_for_each(|(key, value)| {
            nested(out, number, |out| {
                bytes(out, 1, key.as_bytes());
                write_value(out, 2, of, value)
            })
        }),
        // Go's nil: lists, maps and bytes that nobody gave.
        (Type::List(..) | Type::Map(..) | Type::Bytes, None) => Ok(()),
        (_, None) if field.optional => Ok(()),
        (of, None) => write_value(out, number, of, &Value::Null),
        (of, Some(value)) => write_value(out, number, of, value),
    }
}

/// Writes one value; null is the zero of its type.
fn write_value(out: &mut Vec<u8>, number: u32, of: &Type, value: &Value) -> Result<(), String> {
    let wrong = || Err(format!(": {} is no value of this field", shown(value)));
    match (of, value) {
        (Type::Boolean, Value::Null) => varint_field(out, number, 0),
        (Type::Boolean, Value::Bool(flag)) => varint_field(out, number, u64::from(*flag)),
        (Type::Int32 | Type::Int64, Value::Null) => varint_field(out, number, 0),
        (Type::Int32 | Type::Int64, Value::Number(given)) => match given.as_i64() {
            Some(given) => varint_field(out, number, given.cast_unsigned()),
            None => return wrong(),
        },
        (Type::Double, Value::Null | Value::Number(_)) => {
            varint(out, u64::from(number << 3 | FIXED64));
            out.extend_from_slice(&value.as_f64().unwrap_or(0.0).to_le_bytes());
        }
        (Type::String(_), Value::Null) => bytes(out, number, b""),
        (Type::String(_), Value::String(text)) => bytes(out, number, text.as_bytes()),
        (Type::Bytes, Value::Null) => bytes(out, number, b""),
        (Type::Bytes, Value::String(text)) => match BASE64.decode(text) {
            Ok(decoded) => bytes(out, number, &decoded),
            Err(error) => return Err(format!(": is not base64: {error}")),
        },
        (Type::Quantity, Value::Null) => text_message(out, number, b"0"),
        (Type::Quantity, Value::String(text)) => text_message(out, number, text.as_bytes()),
        (Type::IntOrString, value) => return int_or_string(out, number, value),
        (Type::Time | Type::MicroTime, Value::Null) => bytes(out, number, b""),
        (Type::Time | Type::MicroTime, Value::String(text)) => return time(out, number, text),
        (Type::Raw | Type::Fields, Value::Null) => bytes(out, number, b""),
        (Type::Raw | Type::Fields, value) => text_message(out, number, value.to_string().as_bytes()),
        (Type::Object(id), value) => {
            let definition = Schema::get().at(*id);
            let empty = Map::new();
            let object = match value {
                Value::Object(object) => object,
                Value::Null => &empty,
                _ => return wrong(),
            };
            return nested(out, number, |out| message(out, definition, object));
        }
        // A list inside a map travels as a message of its own.
        (Type::List(inner, _), Value::Array(list)) => {
            return nested(out, number, |out| list.iter().try_for_each(|element| write_value(out, 1, inner, element)));
        }
        (Type::List(..), Value::Null) => bytes(out, number, b""),
        _ => return wrong(),
    }
    Ok(())
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    text.chars().take(40).collect()
}

fn int_or_string(out: &mut Vec<u8>, number: u32, value: &Value) -> Result<(), String> {
    let (kind, given, text) = match value {
        Value::Null => (0, 0, ""),
        Value::String(text) => (1, 0, text.as_str()),
        value => (0, value.as_i64().ok_or_else(|| format!(": {value} is no value of this field"))?, ""),
    };
    nested(out, number, |out| {
        varint_field(out, 1, kind);
        varint_field(out, 2, given.cast_unsigned());
        bytes(out, 3, text.as_bytes());
        Ok(())
    })
}

fn time(out: &mut Vec<u8>, number: u32, text: &str) -> Result<(), String> {
    let time: Timestamp = text.parse().map_err(|error| format!(": {text:?} is no time: {error}"))?;
    // The parts have one sign here; on the wire the fraction counts forward.
    let (mut seconds, mut nanos) = (time.as_second(), i64::from(time.subsec_nanosecond()));
    if nanos < 0 {
        (seconds, nanos) = (seconds.saturating_sub(1), nanos + 1_000_000_000);
    }
    nested(out, number, |out| {
        varint_field(out, 1, seconds.cast_unsigned());
        varint_field(out, 2, nanos.cast_unsigned());
        Ok(())
    })
}

/// A message whose only field, 1, is a text.
fn text_message(out: &mut Vec<u8>, number: u32, text: &[u8]) {
    // Writing a text cannot fail.
    let written = nested(out, number, |out| {
        bytes(out, 1, text);
        Ok(())
    });
    debug_assert!(written.is_ok());
}

/// Writes a message: its length is known once it is written, and most take one byte for it.
pub(crate) fn nested(
    out: &mut Vec<u8>,
    number: u32,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    varint(out, u64::from(number << 3 | LENGTH));
    let start = out.len();
    out.push(0);
    write(out)?;
    let length = out.len() - start - 1;
    let mut prefix = Vec::with_capacity(5);
    varint(&mut prefix, length as u64);
    out[start] = prefix[0];
    if prefix.len() > 1 {
        out.splice(start + 1..start + 1, prefix[1..].iter().copied());
    }
    Ok(())
}

pub(crate) fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    varint(out, u64::from(number << 3 | LENGTH));
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn varint_field(out: &mut Vec<u8>, number: u32, value: u64) {
    varint(out, u64::from(number << 3 | VARINT));
    varint(out, value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).expect("seven bits fit a byte") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("less than 0x80"));
}
