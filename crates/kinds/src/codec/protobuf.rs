//! Decoding protobuf request bodies into canonical objects, driven by the schema.
//!
//! ```text
//!   "k8s\0" Unknown { typeMeta=1 { apiVersion=1, kind=2 }, raw=2 (the kind's own message), … }
//! ```
//!
//! Typed Go clients send nothing else. Scalars arrive even when zero (proto2 presence), so the canonical form, not the
//! wire, decides what is kept.

use std::cell::Cell;

use bayplan_model::schema::{Definition, Field, Schema, Type, WireField};
use jiff::Timestamp;
use serde_json::{Map, Value};
use thiserror::Error;

use super::PARTS_MAX;
use super::json::{encode_bytes, put};
use super::quantity;
use super::time;
use super::zero::{complete, zero};

/// The first four bytes of every protobuf body.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// The API types nest less deeply than this; anything deeper is an attack on the stack.
const DEPTH_MAX: usize = 64;

/// Why a protobuf body could not be read.
#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error("unexpected EOF")]
    UnexpectedEof,
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u64),
    #[error("proto: integer overflow")]
    IntegerOverflow,
    #[error("proto: wrong wireType = {got} for field {field}")]
    WrongWireType { got: &'static str, field: &'static str },
    #[error("proto: message nests too deep")]
    TooDeep,
    #[error("proto: field {0} contains invalid UTF-8")]
    InvalidUtf8(&'static str),
    #[error("{0}")]
    InvalidValue(String),
}

/// The envelope around every message.
#[derive(Debug, Default)]
pub(crate) struct Unknown<'b> {
    pub(crate) api_version: &'b str,
    pub(crate) kind: &'b str,
    pub(crate) raw: &'b [u8],
}

/// Reads the envelope; `body` starts after [`MAGIC`].
pub(crate) fn unknown(body: &[u8]) -> Result<Unknown<'_>, Error> {
    let mut unknown = Unknown::default();
    for entry in entries(body) {
        match entry? {
            (1, Scalar::Bytes(type_meta)) => {
                for entry in entries(type_meta) {
                    match entry? {
                        (1, Scalar::Bytes(text)) => unknown.api_version = utf8(text, "apiVersion")?,
                        (2, Scalar::Bytes(text)) => unknown.kind = utf8(text, "kind")?,
                        _ => {}
                    }
                }
            }
            (2, Scalar::Bytes(raw)) => unknown.raw = raw,
            _ => {}
        }
    }
    Ok(unknown)
}

/// Reads a message into its canonical form.
pub(crate) fn message(
    body: &[u8],
    definition: &'static Definition,
    parts: &Cell<usize>,
) -> Result<Map<String, Value>, Error> {
    message_at(body, definition, Place { depth: 0, parts })
}

/// Where a reader is.
#[derive(Clone, Copy)]
struct Place<'p> {
    depth: usize,
    /// How many structs were read so far, or would have been.
    parts: &'p Cell<usize>,
}

impl Place<'_> {
    fn deeper(self) -> Self {
        Place { depth: self.depth.saturating_add(1), ..self }
    }
}

fn message_at(body: &[u8], definition: &'static Definition, place: Place<'_>) -> Result<Map<String, Value>, Error> {
    let mut object = Map::new();
    place.parts.set(place.parts.get().saturating_add(1));
    if place.parts.get() > PARTS_MAX {
        return Ok(object);
    }
    read_into(&mut object, body, definition, place)?;
    complete(definition, &mut object);
    Ok(object)
}

/// Reads the fields of a message into an object, which for inlined messages is the enclosing one's.
fn read_into(
    object: &mut Map<String, Value>,
    body: &[u8],
    definition: &'static Definition,
    place: Place<'_>,
) -> Result<(), Error> {
    if place.depth > DEPTH_MAX {
        return Err(Error::TooDeep);
    }
    for entry in entries(body) {
        let (number, scalar) = entry?;
        match definition.wire_field(number) {
            None => {}
            Some(WireField::Inlined(inner)) => {
                let Scalar::Bytes(bytes) = scalar else {
                    return Err(Error::WrongWireType { got: scalar.name(), field: "" });
                };
                read_into(object, bytes, Schema::get().at(inner), place.deeper())?;
            }
            Some(WireField::Field(index)) => read_field(object, &definition.fields[index], scalar, place)?,
        }
    }
    Ok(())
}

fn read_field(
    object: &mut Map<String, Value>,
    field: &Field,
    scalar: Scalar<'_>,
    place: Place<'_>,
) -> Result<(), Error> {
    match &field.ty {
        Type::List(of, _) => {
            let list = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            let Value::Array(list) = list else { return Ok(()) };
            match (&**of, scalar) {
                // Packed numbers: legal for a reader, though Go clients do not write them.
                (Type::Int32 | Type::Int64 | Type::Boolean, Scalar::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        let number = varint(&mut packed)?;
                        list.extend(value(of, Scalar::Varint(number), field.name, place)?);
                    }
                }
                (_, scalar) => list.push(value(of, scalar, field.name, place)?.unwrap_or_else(|| zero(of))),
            }
        }
        Type::Map(of, _) => {
            let Scalar::Bytes(bytes) = scalar else {
                return Err(Error::WrongWireType { got: scalar.name(), field: field.name });
            };
            let (mut key, mut entry_value) = ("", None);
            for entry in entries(bytes) {
                match entry? {
                    (1, Scalar::Bytes(text)) => key = utf8(text, field.name)?,
                    (2, scalar) => entry_value = value(of, scalar, field.name, place)?,
                    _ => {}
                }
            }
            let map = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(map) = map {
                map.insert(key.to_owned(), entry_value.unwrap_or_else(|| zero(of)));
            }
        }
        of => put(object, field, value(of, scalar, field.name, place)?),
    }
    Ok(())
}

fn value(of: &Type, scalar: Scalar<'_>, field: &'static str, place: Place<'_>) -> Result<Option<Value>, Error> {
    let read = match (of, scalar) {
        (Type::Boolean, Scalar::Varint(number)) => Value::Bool(number != 0),
        // Negative numbers are sign-extended to 64 bits on the wire; the low 32 bits are the value.
        #[expect(clippy::cast_possible_truncation, reason = "the wire format keeps int32 in the low bits")]
        (Type::Int32, Scalar::Varint(number)) => Value::from(number as u32 as i32),
        (Type::Int64, Scalar::Varint(number)) => Value::from(number.cast_signed()),
        (Type::String(_), Scalar::Bytes(text)) => Value::String(utf8(text, field)?.to_owned()),
        (Type::Bytes, Scalar::Bytes(bytes)) => Value::String(encode_bytes(bytes)),
        (Type::Quantity, Scalar::Bytes(message)) => {
            let text = text_field(message, 1, field)?;
            if text.is_empty() {
                Value::from("0")
            } else {
                Value::String(quantity::canonical(text).map_err(Error::InvalidValue)?.into_owned())
            }
        }
        (Type::IntOrString, Scalar::Bytes(message)) => int_or_string(message, field)?,
        (Type::Time | Type::MicroTime, Scalar::Bytes(message)) => {
            let (seconds, nanos) = timestamp(message)?;
            if seconds == 0 && nanos == 0 {
                return Ok(None);
            }
            let time = Timestamp::new(seconds, nanos).map_err(|error| Error::InvalidValue(error.to_string()))?;
            Value::String(if matches!(of, Type::Time) { time::write_seconds(time) } else { time::write_micros(time) })
        }
        (Type::Raw | Type::Fields, Scalar::Bytes(message)) => return raw(message, place),
        (Type::Object(id), Scalar::Bytes(message)) => {
            Value::Object(message_at(message, Schema::get().at(*id), place.deeper())?)
        }
        // A list inside a map travels as a message of its own.
        (Type::List(inner, _), Scalar::Bytes(message)) => {
            let mut list = Vec::new();
            for entry in entries(message) {
                if let (1, scalar) = entry? {
                    list.push(value(inner, scalar, field, place.deeper())?.unwrap_or_else(|| zero(inner)));
                }
            }
            Value::Array(list)
        }
        (_, scalar) => return Err(Error::WrongWireType { got: scalar.name(), field }),
    };
    Ok(Some(read))
}

fn int_or_string(message: &[u8], field: &'static str) -> Result<Value, Error> {
    let (mut is_string, mut number, mut text) = (false, 0, "");
    for entry in entries(message) {
        match entry? {
            (1, Scalar::Varint(kind)) => is_string = kind == 1,
            #[expect(clippy::cast_possible_truncation, reason = "the wire format keeps int32 in the low bits")]
            (2, Scalar::Varint(value)) => number = value as u32 as i32,
            (3, Scalar::Bytes(value)) => text = utf8(value, field)?,
            _ => {}
        }
    }
    Ok(if is_string { Value::from(text) } else { Value::from(number) })
}

fn timestamp(message: &[u8]) -> Result<(i64, i32), Error> {
    let (mut seconds, mut nanos) = (0, 0);
    for entry in entries(message) {
        match entry? {
            (1, Scalar::Varint(value)) => seconds = value.cast_signed(),
            #[expect(clippy::cast_possible_truncation, reason = "the wire format keeps int32 in the low bits")]
            (2, Scalar::Varint(value)) => nanos = value as u32 as i32,
            _ => {}
        }
    }
    Ok((seconds, nanos))
}

/// Embedded documents: JSON, or an envelope of their own.
fn raw(message: &[u8], place: Place<'_>) -> Result<Option<Value>, Error> {
    let mut document: &[u8] = &[];
    for entry in entries(message) {
        if let (1, Scalar::Bytes(bytes)) = entry? {
            document = bytes;
        }
    }
    if document.is_empty() {
        return Ok(None);
    }
    if let Some(body) = document.strip_prefix(MAGIC) {
        let unknown = unknown(body)?;
        let (group, version) = unknown.api_version.split_once('/').unwrap_or(("", unknown.api_version));
        let Some(definition) = Schema::get().decoded(group, version, unknown.kind) else {
            return Err(Error::InvalidValue(format!(
                "no kind {:?} is registered for version {:?}",
                unknown.kind, unknown.api_version
            )));
        };
        let mut object = message_at(unknown.raw, definition, place.deeper())?;
        object.insert("apiVersion".into(), unknown.api_version.into());
        object.insert("kind".into(), unknown.kind.into());
        return Ok(Some(Value::Object(object)));
    }
    serde_json::from_slice(document).map(Some).map_err(|error| Error::InvalidValue(error.to_string()))
}

/// The range and the bitmap of a `RangeAllocation`, which the API does not describe: it is stored, never served.
pub(crate) fn range(body: &[u8]) -> Result<(String, Vec<u8>), Error> {
    let (mut range, mut data) = (String::new(), Vec::new());
    for entry in entries(body) {
        match entry? {
            (2, Scalar::Bytes(text)) => range = utf8(text, "range")?.to_owned(),
            (3, Scalar::Bytes(bitmap)) => data = bitmap.to_vec(),
            _ => {}
        }
    }
    Ok((range, data))
}

fn text_field<'b>(message: &'b [u8], number: u32, field: &'static str) -> Result<&'b str, Error> {
    let mut text = "";
    for entry in entries(message) {
        match entry? {
            (n, Scalar::Bytes(bytes)) if n == number => text = utf8(bytes, field)?,
            _ => {}
        }
    }
    Ok(text)
}

fn utf8<'b>(bytes: &'b [u8], field: &'static str) -> Result<&'b str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::InvalidUtf8(field))
}

/// One value in wire form.
#[derive(Clone, Copy, Debug)]
enum Scalar<'b> {
    Varint(u64),
    Fixed,
    Bytes(&'b [u8]),
}

impl Scalar<'_> {
    fn name(&self) -> &'static str {
        match self {
            Scalar::Varint(_) => "0",
            Scalar::Fixed => "1",
            Scalar::Bytes(_) => "2",
        }
    }
}

/// The fields of a message in wire order, as (number, value).
fn entries(mut body: &[u8]) -> impl Iterator<Item = Result<(u32, Scalar<'_>), Error>> {
    std::iter::from_fn(move || {
        if body.is_empty() {
            return None;
        }
        let entry = next_entry(&mut body);
        if entry.is_err() {
            body = &[];
        }
        Some(entry)
    })
}

fn next_entry<'b>(body: &mut &'b [u8]) -> Result<(u32, Scalar<'b>), Error> {
    let tag = varint(body)?;
    let number = u32::try_from(tag >> 3).map_err(|_| Error::IntegerOverflow)?;
    let scalar = match tag & 7 {
        0 => Scalar::Varint(varint(body)?),
        1 => {
            take(body, 8)?;
            Scalar::Fixed
        }
        2 => {
            let length = usize::try_from(varint(body)?).map_err(|_| Error::IntegerOverflow)?;
            Scalar::Bytes(take(body, length)?)
        }
        5 => {
            take(body, 4)?;
            Scalar::Fixed
        }
        other => return Err(Error::IllegalWireType(other)),
    };
    Ok((number, scalar))
}

fn take<'b>(body: &mut &'b [u8], length: usize) -> Result<&'b [u8], Error> {
    let (head, tail) = body.split_at_checked(length).ok_or(Error::UnexpectedEof)?;
    *body = tail;
    Ok(head)
}

fn varint(body: &mut &[u8]) -> Result<u64, Error> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = body.split_first().ok_or(Error::UnexpectedEof)?;
        *body = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Error::IntegerOverflow)
}
