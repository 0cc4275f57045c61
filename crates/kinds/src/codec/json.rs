//! Decoding JSON (or anything else serde can walk) into canonical objects, driven by the schema.
//!
//! One pass: the document is read straight into its canonical form while unknown and duplicate fields are noted. Like
//! upstream's decoder, a value of the wrong type does not stop the walk (a syntax error further on is the better
//! message); the first such error is kept.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use bayplan_model::schema::{Definition, Field, Schema, Type};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::empties::{Collector, Step};
use super::quantity;
use super::syntax::json_kind;
use super::time;
use super::zero::{complete, zero};
use super::{Conversion, PARTS_MAX};

/// How many strict errors are reported; one document can hold very many.
const STRICT_ERRORS_MAX: usize = 100;

/// How many bytes of paths are written to find out whether a strict error is a new one; repeated fields below a key as
/// long as the document would otherwise take the square of its length.
const STRICT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Base64 as upstream reads it: padded, but lenient about the unused bits of the last character.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// What was found besides the object.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The first value of a wrong type, in upstream's words.
    pub(crate) error: Option<String>,
    /// Unknown and duplicate fields, in document order.
    pub(crate) strict: Vec<String>,
    /// The lists, maps and bytes that were given empty.
    pub(super) empties: Collector,
    /// How many structs were read, or would have been.
    parts: usize,
    check_strict: bool,
    strict_bytes: usize,
    conversion: Conversion,
    path: Vec<Step>,
    /// The definitions around the current value, innermost last.
    within: Vec<&'static Definition>,
}

impl Findings {
    pub(crate) fn new(check_strict: bool) -> Self {
        Findings::of(Conversion::Decoded, check_strict)
    }

    pub(crate) fn of(conversion: Conversion, check_strict: bool) -> Self {
        Findings { check_strict, conversion, ..Findings::default() }
    }

    /// Whether there are more structs than an object may have; the surplus was not read.
    pub(crate) fn has_too_many_parts(&self) -> bool {
        self.parts > PARTS_MAX
    }

    /// What is written for an element or map value that is null: a struct, if it is one, with all that structs have.
    fn zero(&mut self, of: &Type) -> Value {
        self.parts = self.parts.saturating_add(usize::from(matches!(of, Type::Object(_))));
        if self.has_too_many_parts() { Value::Null } else { zero(of) }
    }

    /// What a reader that found nothing but structs reports.
    pub(super) fn with_parts(parts: usize) -> Self {
        Findings { parts, ..Findings::default() }
    }

    fn strict_error(&mut self, what: &str, name: &str) {
        if !self.check_strict || self.strict.len() >= STRICT_ERRORS_MAX || self.strict_bytes > STRICT_BYTES_MAX {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Field(key) => push_dotted(&mut path, key),
                Step::Key(key) => push_dotted(&mut path, key),
            }
        }
        push_dotted(&mut path, name);
        let text = format!("{what} field {path:?}");
        self.strict_bytes = self.strict_bytes.saturating_add(text.len());
        if !self.strict.contains(&text) {
            self.strict.push(text);
        }
    }

    fn wrong_type(&mut self, given: &str, of: &str) {
        if self.error.is_some() {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            if let Step::Field(name) = step {
                push_dotted(&mut path, name);
            }
        }
        self.error = Some(match self.within.last() {
            Some(outer) if !path.is_empty() => {
                let outer = outer.short_name();
                format!("json: cannot unmarshal {given} into Go struct field {outer}.{path} of type {of}")
            }
            _ => format!("json: cannot unmarshal {given} into Go value of type {of}"),
        });
    }

    fn invalid(&mut self, message: String) {
        self.error.get_or_insert(message);
    }
}

fn push_dotted(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Reads one value of a type; `None` means null was given (or nothing usable).
struct Seed<'f> {
    findings: &'f mut Findings,
    of: &'static Type,
}

/// Reads a whole object into its canonical form.
pub(crate) fn decode_struct<'de, D: Deserializer<'de>>(
    deserializer: D,
    definition: &'static Definition,
    findings: &mut Findings,
) -> Result<Map<String, Value>, D::Error> {
    deserializer.deserialize_any(StructVisitor { findings, definition })
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if matches!(self.of, Type::Raw | Type::Fields) {
            let value: Value = serde::Deserialize::deserialize(deserializer)?;
            return Ok((!value.is_null()).then_some(value));
        }
        deserializer.deserialize_any(TypeVisitor { findings: self.findings, of: self.of })
    }
}

struct StructVisitor<'f> {
    findings: &'f mut Findings,
    definition: &'static Definition,
}

impl<'de> Visitor<'de> for StructVisitor<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<Self::Value, A::Error> {
        read_struct(access, self.definition, self.findings)
    }
}

struct TypeVisitor<'f> {
    findings: &'f mut Findings,
    of: &'static Type,
}

impl TypeVisitor<'_> {
    fn wrong<E>(self, given: &str) -> Result<Option<Value>, E> {
        if self.findings.error.is_some() {
            return Ok(None);
        }
        if self.findings.conversion == Conversion::Restored
            && let Some(message) = not_restored(self.of, given)
        {
            self.findings.invalid(message);
            return Ok(None);
        }
        let name = match self.of {
            // These decode through an inner value of a plain type.
            Type::IntOrString => {
                self.findings.invalid(format!("json: cannot unmarshal {given} into Go value of type int32"));
                return Ok(None);
            }
            Type::Time | Type::MicroTime => {
                self.findings.invalid(format!("json: cannot unmarshal {given} into Go value of type string"));
                return Ok(None);
            }
            Type::Quantity => {
                self.findings.invalid(quantity::WRONG_FORMAT.to_owned());
                return Ok(None);
            }
            of => go_name(of),
        };
        self.findings.wrong_type(given, &name);
        Ok(None)
    }

    fn integer<E>(self, number: i128) -> Result<Option<Value>, E> {
        match self.of {
            Type::Int32 | Type::IntOrString => match i32::try_from(number) {
                Ok(number) => Ok(Some(Value::from(number))),
                Err(_) => self.wrong(&format!("number {number}")),
            },
            Type::Int64 => match i64::try_from(number) {
                Ok(number) => Ok(Some(Value::from(number))),
                Err(_) => self.wrong(&format!("number {number}")),
            },
            Type::Quantity => self.quantity(&number.to_string()),
            _ => self.wrong("number"),
        }
    }

    fn quantity<E>(self, text: &str) -> Result<Option<Value>, E> {
        match quantity::canonical(text) {
            Ok(canonical) => Ok(Some(Value::String(canonical.into_owned()))),
            Err(message) => {
                self.findings.invalid(message);
                Ok(None)
            }
        }
    }

    fn text<E>(self, text: Cow<'_, str>) -> Result<Option<Value>, E> {
        let invalid = |findings: &mut Findings, message: String| {
            findings.invalid(message);
            Ok(None)
        };
        match self.of {
            Type::String(_) | Type::IntOrString => Ok(Some(Value::String(text.into_owned()))),
            Type::Quantity => self.quantity(&text),
            Type::Time => match time::seconds(&text) {
                Ok(time) => Ok(time.map(Value::String)),
                Err(message) => invalid(self.findings, message),
            },
            Type::MicroTime => match time::micros(&text) {
                Ok(time) => Ok(time.map(Value::String)),
                Err(message) => invalid(self.findings, message),
            },
            Type::Bytes => match BASE64.decode(text.as_bytes()) {
                Ok(bytes) => Ok(Some(Value::String(encode_bytes(&bytes)))),
                Err(_) => {
                    let cleaned: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
                    match BASE64.decode(cleaned.as_bytes()) {
                        Ok(bytes) => Ok(Some(Value::String(encode_bytes(&bytes)))),
                        Err(_) => {
                            let at = illegal_base64_at(text.as_bytes());
                            invalid(self.findings, format!("illegal base64 data at input byte {at}"))
                        }
                    }
                }
            },
            _ => self.wrong("string"),
        }
    }
}

/// Upstream's words for a value that cannot be restored into a field of a type; `None` where a type reads itself.
fn not_restored(of: &Type, given: &str) -> Option<String> {
    let (word, number) = given.split_once(' ').unwrap_or((given, ""));
    let (source, kind) = match word {
        "number" if number.contains(['.', 'e']) => ("float64", "float64"),
        "number" => ("int64", "int64"),
        "array" => ("[]interface {}", "slice"),
        "object" => ("map[string]interface {}", "map"),
        plain => (plain, plain),
    };
    Some(match of {
        // Go converts a whole number to text, though not the one anybody means.
        Type::String(name) if source == "int64" => format!("cannot convert {source} to {name}"),
        Type::Int32 | Type::Int64 if source == "float64" => format!("cannot convert {source} to {}", go_name(of)),
        // Upstream keeps the low bits of a number that is too large. Better no object than another one.
        Type::Int32 | Type::Int64 if source == "int64" => return None,
        Type::String(_) => "unrecognized type: string".to_owned(),
        Type::Int32 | Type::Int64 | Type::Double | Type::Boolean => format!("unrecognized type: {}", go_name(of)),
        Type::Bytes | Type::List(..) => format!("cannot restore slice from {kind}"),
        Type::Map(..) => format!("cannot restore map from {kind}"),
        Type::Object(_) => format!("cannot restore struct from: {kind}"),
        Type::Quantity | Type::IntOrString | Type::Time | Type::MicroTime | Type::Raw | Type::Fields => return None,
    })
}

/// Bytes as JSON shows them.
pub(crate) fn encode_bytes(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The offset upstream's decoder names: the first foreign character, else the start of the broken group of four.
fn illegal_base64_at(text: &[u8]) -> usize {
    let foreign = |byte: &u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'\r' | b'\n'));
    let Some(at) = text.iter().position(foreign) else { return text.len() - text.len() % 4 };
    // Padding may only be the last one or two characters of a group of four.
    if text[at] == b'=' && at % 4 >= 2 { if at % 4 == 2 { at + 2 } else { at + 1 }.min(text.len()) } else { at }
}

impl<'de> Visitor<'de> for TypeVisitor<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        match self.of {
            Type::Boolean => Ok(Some(Value::Bool(value))),
            _ => self.wrong("bool"),
        }
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        self.integer(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        self.integer(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        match self.of {
            Type::Quantity => self.quantity(&value.to_string()),
            Type::Int32 | Type::Int64 | Type::IntOrString => self.wrong(&format!("number {value}")),
            // Go converts no float to text.
            Type::String(_) if self.findings.conversion == Conversion::Restored => {
                self.findings.invalid("unrecognized type: string".to_owned());
                Ok(None)
            }
            _ => self.wrong("number"),
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        self.text(Cow::Borrowed(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Self::Value, E> {
        self.text(Cow::Owned(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let Type::List(of, _) = self.of else {
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return self.wrong("array");
        };
        let mut list = Vec::new();
        loop {
            self.findings.path.push(Step::Index(list.len()));
            let element = access.next_element_seed(Seed { findings: self.findings, of });
            self.findings.path.pop();
            match element? {
                Some(element) => list.push(element.unwrap_or_else(|| self.findings.zero(of))),
                None => return Ok(Some(Value::Array(list))),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        match self.of {
            Type::Object(id) => {
                read_struct(access, Schema::get().at(*id), self.findings).map(|object| Some(Value::Object(object)))
            }
            Type::Map(of, _) => {
                let mut map = Map::new();
                while let Some(key) = access.next_key::<String>()? {
                    if map.contains_key(&key) {
                        self.findings.strict_error("duplicate", &key);
                    }
                    self.findings.path.push(Step::Key(key));
                    let value = access.next_value_seed(Seed { findings: self.findings, of });
                    let Some(Step::Key(key)) = self.findings.path.pop() else {
                        unreachable!("every reader pops the steps it pushes")
                    };
                    map.insert(key, value?.unwrap_or_else(|| self.findings.zero(of)));
                }
                Ok(Some(Value::Object(map)))
            }
            _ => {
                while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                self.wrong("object")
            }
        }
    }
}

fn read_struct<'de, A: MapAccess<'de>>(
    mut access: A,
    definition: &'static Definition,
    findings: &mut Findings,
) -> Result<Map<String, Value>, A::Error> {
    let mut object = Map::new();
    let mut seen = 0_u64;
    findings.parts = findings.parts.saturating_add(1);
    if findings.has_too_many_parts() {
        while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        return Ok(object);
    }
    findings.within.push(definition);
    while let Some(key) = access.next_key::<Cow<'de, str>>()? {
        let Some(index) = definition.field_index(&key) else {
            findings.strict_error("unknown", &key);
            access.next_value::<IgnoredAny>()?;
            continue;
        };
        // No message has more than 64 fields; one that did would only miss duplicates beyond them.
        let bit = 1_u64.checked_shl(u32::try_from(index).unwrap_or(u32::MAX)).unwrap_or(0);
        if seen & bit != 0 {
            findings.strict_error("duplicate", &key);
        }
        seen |= bit;
        let field = &definition.fields[index];
        findings.path.push(Step::Field(field.name));
        let value = access.next_value_seed(Seed { findings, of: &field.ty });
        findings.path.pop();
        let value = value?;
        // An empty list of managed fields asks to forget who owns what; it is gone before the object is stored.
        if field.name == "managedFields" && findings.path.len() == 1 && value.as_ref().is_some_and(Value::is_array) {
            object.extend(value.map(|value| (key.into_owned(), value)));
            continue;
        }
        let given = value.as_ref().and_then(|value| given_empty(&field.ty, value));
        put(&mut object, field, value);
        if let Some(given) = given {
            findings.empties.note(&findings.path, field.name, given);
        }
    }
    findings.within.pop();
    complete(definition, &mut object);
    Ok(object)
}

/// A list, map or bytes without anything in it, which a canonical object does not show.
fn given_empty(of: &Type, value: &Value) -> Option<Value> {
    let is_empty = match (of, value) {
        (Type::List(..), Value::Array(list)) => list.is_empty(),
        (Type::Map(..), Value::Object(map)) => map.is_empty(),
        (Type::Bytes, Value::String(text)) => text.is_empty(),
        _ => false,
    };
    is_empty.then(|| value.clone())
}

/// Writes a field as upstream's encoder would: empty values of omittable fields vanish.
pub(crate) fn put(object: &mut Map<String, Value>, field: &Field, value: Option<Value>) {
    let Some(value) = value else {
        return;
    };
    if field.omit_empty && !field.optional && is_empty(&field.ty, &value) {
        object.remove(field.name);
    } else if !field.omit_empty && matches!(&value, Value::Array(list) if list.is_empty()) {
        // Stored objects do not distinguish an empty list from none.
        object.insert(field.name.to_owned(), Value::Null);
    } else {
        object.insert(field.name.to_owned(), value);
    }
}

fn is_empty(of: &Type, value: &Value) -> bool {
    match of {
        Type::Object(_) | Type::Quantity | Type::IntOrString | Type::Raw => false,
        _ => match value {
            Value::String(text) => text.is_empty(),
            Value::Bool(value) => !value,
            Value::Number(number) => number.as_i64() == Some(0),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Null => true,
        },
    }
}

/// The canonical form of an object already in memory, as after a patch.
pub(crate) fn canonical(definition: &'static Definition, object: Value, findings: &mut Findings) -> Map<String, Value> {
    match object {
        Value::Object(map) => {
            decode_struct(Value::Object(map), definition, findings).expect("walking values in memory cannot fail")
        }
        other => {
            findings.wrong_type(json_kind(&other), definition.go_name());
            Map::new()
        }
    }
}

/// What decoding errors call a type.
fn go_name(of: &Type) -> String {
    match of {
        Type::String(name) => (*name).to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Double => "float64".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Quantity => "resource.Quantity".to_owned(),
        Type::IntOrString => "intstr.IntOrString".to_owned(),
        Type::Time => "v1.Time".to_owned(),
        Type::MicroTime => "v1.MicroTime".to_owned(),
        Type::Raw => "runtime.RawExtension".to_owned(),
        Type::Fields => "v1.FieldsV1".to_owned(),
        Type::Object(id) => Schema::get().at(*id).go_name().to_owned(),
        Type::List(_, name) | Type::Map(_, name) if !name.is_empty() => (*name).to_owned(),
        Type::List(of, _) => format!("[]{}", go_name(of)),
        Type::Map(of, _) => format!("map[string]{}", go_name(of)),
    }
}
