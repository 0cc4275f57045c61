//! Makes `src/schema/generated/schema.txt` from the inputs in `schema/`:
//!
//! ```text
//!   schema-facts.json.gz     OpenAPI definitions: fields, references, list keys, patch strategies ─┐
//!   protobuf-fields.json.gz  message → field number → name and type                                ├─▶ schema.txt
//!   go-fields.txt            what only the Go types tell: pointers, omitted fields, type names     ─┘
//! ```
//!
//! Run it with `cargo run -p bayplan-model --example generate_schema`; a test compares its output with the committed
//! file.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::{Map, Value};

const FACTS: &[u8] = include_bytes!("../schema/schema-facts.json.gz");
const PROTOBUF: &[u8] = include_bytes!("../schema/protobuf-fields.json.gz");
const GO_FIELDS: &str = include_str!("../schema/go-fields.txt");
const OUTPUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema/generated/schema.txt");

const HEADER: &str = "\
# Made by `cargo run -p bayplan-model --example generate_schema` from the inputs in crates/model/schema; do not edit.
# One line a definition, and indented below it its fields:
#   <OpenAPI name> [inlined] [decoded=<group/version/kind>] [kinds=…] [required=…] [map=…] [unions=…] [openapi=…]
#     <JSON name, ~ for an inlined message> <protobuf number, 0 for none> <flags> <type> [list=…] [keys=…] [map=…]
#     [strategy=…] [key=…] [enum=…, to the end of the line]
# Flags: o = omitted when empty, z = omitted when zero, p = optional (absent differs from zero), - = none.
# Types: @ a definition, [] a list, {} a string-keyed map, raw:name any JSON, =name what decoding errors call the type.
";

type Json = Map<String, Value>;

#[expect(clippy::disallowed_methods, reason = "a generator writes its output")]
fn main() -> std::io::Result<()> {
    std::fs::write(OUTPUT, generate())
}

/// The text of the schema.
pub(crate) fn generate() -> String {
    let inputs = Inputs { facts: inflate(FACTS), protobuf: inflate(PROTOBUF), go: GoFields::parse(GO_FIELDS) };
    let mut inlined = BTreeMap::new();
    let mut definitions: BTreeMap<String, String> = BTreeMap::new();
    for (name, fact) in &inputs.facts {
        definitions.insert(name.clone(), inputs.definition(name, object(fact), None, &mut inlined));
    }
    // Messages that OpenAPI only shows as the fields of others; they may inline further ones.
    while let Some((name, fact)) = inlined.pop_first() {
        if let Entry::Vacant(vacant) = definitions.entry(name) {
            let text = inputs.definition(vacant.key(), &fact, Some("inlined"), &mut inlined);
            vacant.insert(text);
        }
    }
    let mut text = HEADER.to_owned();
    definitions.values().for_each(|definition| text.push_str(definition));
    text
}

fn inflate(compressed: &[u8]) -> Json {
    let mut text = String::new();
    GzDecoder::new(compressed).read_to_string(&mut text).expect("the input is gzip of UTF-8");
    serde_json::from_str(&text).expect("the input is a JSON object")
}

fn object(value: &Value) -> &Json {
    value.as_object().expect("the inputs have objects here")
}

fn text<'v>(object: &'v Json, name: &str) -> &'v str {
    object.get(name).and_then(Value::as_str).unwrap_or("")
}

fn texts<'v>(object: &'v Json, name: &str) -> Vec<&'v str> {
    object.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What only the Go types tell.
struct GoFields {
    /// `group/version` and kind of what is decoded.
    decoded: BTreeSet<(&'static str, &'static str)>,
    /// By type and field: flags and type name, either empty when the rule holds.
    fields: BTreeMap<(&'static str, &'static str), (&'static str, &'static str)>,
}

impl GoFields {
    fn parse(text: &'static str) -> GoFields {
        let mut go = GoFields { decoded: BTreeSet::new(), fields: BTreeMap::new() };
        let mut current = "";
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match (line.starts_with(' '), &*words) {
                (false, ["kind", group_version, kind]) => {
                    go.decoded.insert((group_version, kind));
                }
                (false, [name]) => current = name,
                (true, [field, rest @ ..]) => {
                    let name = rest.iter().find_map(|word| word.strip_prefix('=')).unwrap_or("");
                    let flags = rest.iter().find(|word| !word.starts_with('=')).copied().unwrap_or("");
                    go.fields.insert((current, field), (flags, name));
                }
                _ => panic!("go-fields.txt has a line that is none of its forms: {line:?}"),
            }
        }
        go
    }
}

struct Inputs {
    facts: Json,
    protobuf: Json,
    go: GoFields,
}

impl Inputs {
    /// One definition with its fields. Messages it inlines that OpenAPI does not name are added to `inlined`.
    fn definition(&self, name: &str, fact: &Json, mark: Option<&str>, inlined: &mut BTreeMap<String, Json>) -> String {
        let mut line = name.to_owned();
        line.extend(mark.map(|mark| format!(" {mark}")));
        self.kinds(&mut line, fact);
        attribute(&mut line, "required", &texts(fact, "required").join(","));
        attribute(&mut line, "map", text(fact, "x-kubernetes-map-type"));
        if let Some(unions) = fact.get("x-kubernetes-unions") {
            attribute(&mut line, "unions", &unions.to_string());
        }
        let Some(properties) = fact.get("properties") else {
            attribute(&mut line, "openapi", &Value::Object(fact.clone()).to_string());
            return line + "\n";
        };
        line.push('\n');
        let mut left = object(properties).clone();
        let message = name.strip_prefix("io.k8s.").map(|rest| format!("k8s.io.{rest}")).unwrap_or_default();
        for (number, field) in self.fields_of(&message) {
            let wanted = text(field, "name");
            let known = left.keys().find(|name| name.eq_ignore_ascii_case(wanted)).cloned();
            match known {
                Some(known) => {
                    let property = left.remove(&known).expect("it was found");
                    line.push_str(&self.field(name, fact, &known, number, object(&property)));
                }
                None => self.inline(&mut line, &message, number, field, fact, &mut left, inlined),
            }
        }
        for (field, property) in &left {
            line.push_str(&self.field(name, fact, field, 0, object(property)));
        }
        line
    }

    fn kinds(&self, line: &mut String, fact: &Json) {
        let kinds = fact.get("x-kubernetes-group-version-kind").and_then(Value::as_array).into_iter().flatten();
        let kinds: Vec<[&str; 3]> =
            kinds.map(|kind| ["group", "version", "kind"].map(|part| text(object(kind), part))).collect();
        let is_decoded = |[group, version, kind]: &&[&str; 3]| {
            self.go.decoded.contains(&(format!("{group}/{version}").as_str(), *kind))
        };
        let joined = |kinds: Vec<String>| kinds.join(",");
        attribute(line, "decoded", &joined(kinds.iter().filter(is_decoded).map(|kind| kind.join("/")).collect()));
        attribute(line, "kinds", &joined(kinds.iter().map(|kind| kind.join("/")).collect()));
    }

    /// The fields of a message by number.
    fn fields_of(&self, message: &str) -> BTreeMap<u32, &Json> {
        let fields = self.protobuf.get(message).and_then(Value::as_object).into_iter().flatten();
        fields.map(|(number, field)| (number.parse().expect("field numbers are numbers"), object(field))).collect()
    }

    /// The message a field of `message` holds, if it holds one.
    fn message_of(&self, message: &str, field: &Json) -> Option<String> {
        let named = text(field, "type");
        let package = message.rsplit_once('.').map_or("", |(package, _)| package);
        [named.to_owned(), format!("{package}.{named}")].into_iter().find(|name| self.protobuf.contains_key(name))
    }

    /// A protobuf field that JSON does not have: a message whose fields stand in the outer object.
    #[expect(clippy::too_many_arguments, reason = "all of it is the state of one definition")]
    fn inline(
        &self,
        line: &mut String,
        outer: &str,
        number: u32,
        field: &Json,
        fact: &Json,
        left: &mut Json,
        inlined: &mut BTreeMap<String, Json>,
    ) {
        let message = self.message_of(outer, field).expect("a field that JSON does not name is an inlined message");
        let name = message.replacen("k8s.io.", "io.k8s.", 1);
        let _ = writeln!(line, "  ~ {number} - @{name}");
        let names = self.names_of(&message, left);
        let properties: Json = names.iter().filter_map(|name| Some((name.clone(), left.remove(name)?))).collect();
        if !self.facts.contains_key(&name) {
            let required = texts(fact, "required").into_iter().filter(|field| properties.contains_key(*field));
            let required = Value::from(required.collect::<Vec<_>>());
            inlined.insert(
                name,
                Json::from_iter([("properties".into(), properties.into()), ("required".into(), required)]),
            );
        }
    }

    /// The JSON names of a message's fields, those of inlined messages included.
    fn names_of(&self, message: &str, known: &Json) -> Vec<String> {
        let mut names = Vec::new();
        for field in self.fields_of(message).values() {
            let name = text(field, "name");
            match self.message_of(message, field) {
                Some(inner) if !known.contains_key(name) => names.extend(self.names_of(&inner, known)),
                _ => names.push(name.to_owned()),
            }
        }
        names
    }

    fn field(&self, of: &str, fact: &Json, name: &str, number: u32, property: &Json) -> String {
        let (flags, go_name) = self.go.fields.get(&(of, name)).copied().unwrap_or_default();
        let required = texts(fact, "required").contains(&name);
        let flags = match flags {
            "" if required => "-",
            "" => "o",
            flags => flags,
        };
        let mut line = format!("  {name} {number} {flags} {}", self.type_of(property));
        if !go_name.is_empty() {
            let _ = write!(line, "={go_name}");
        }
        attribute(&mut line, "list", text(property, "x-kubernetes-list-type"));
        attribute(&mut line, "keys", &texts(property, "x-kubernetes-list-map-keys").join(","));
        attribute(&mut line, "map", text(property, "x-kubernetes-map-type"));
        attribute(&mut line, "strategy", text(property, "x-kubernetes-patch-strategy"));
        attribute(&mut line, "key", text(property, "x-kubernetes-patch-merge-key"));
        let holder = ["items", "additionalProperties"].into_iter().find_map(|part| property.get(part));
        let values = texts(holder.map_or(property, object), "enum");
        if !values.is_empty() {
            let _ = write!(line, " enum={}", values.join(","));
        }
        line + "\n"
    }

    fn type_of(&self, property: &Json) -> String {
        if let Some(name) = text(property, "$ref").strip_prefix("#/definitions/") {
            return match name.rsplit('.').next().unwrap_or(name) {
                "Quantity" => "quantity".to_owned(),
                "IntOrString" => "intorstring".to_owned(),
                "Time" => "time".to_owned(),
                "MicroTime" => "microtime".to_owned(),
                "FieldsV1" => "fields".to_owned(),
                "RawExtension" => "raw".to_owned(),
                _ if text(object(&self.facts[name]), "type") == "object" => format!("@{name}"),
                _ => format!("raw:{name}"),
            };
        }
        let inner = |part: &str| self.type_of(object(&property[part]));
        match (text(property, "type"), text(property, "format")) {
            ("string", "byte") => "bytes".to_owned(),
            ("string", _) => "string".to_owned(),
            ("integer", format) => format.to_owned(),
            ("number", format) => format.to_owned(),
            ("boolean", _) => "bool".to_owned(),
            ("array", _) => format!("[]{}", inner("items")),
            ("object", _) => format!("{{}}{}", inner("additionalProperties")),
            (other, _) => panic!("the facts have a type that is none of these: {other:?}"),
        }
    }
}

fn attribute(line: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        assert!(!value.contains(' '), "{name}={value} would not be read as one word");
        let _ = write!(line, " {name}={value}");
    }
}
