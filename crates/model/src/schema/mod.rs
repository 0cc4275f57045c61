//! The API's types as data: fields, their types, list keys, patch strategies, protobuf numbers, and what is
//! written when a field is empty.
//!
//! ```text
//!   crates/model/schema/* ──examples/generate_schema──▶ generated/schema.txt
//!   schema.txt ──parse──▶ Schema { definitions, by name, by group-version-kind }
//!         └────openapi──▶ OpenAPI definitions (only when somebody asks)
//!   Definition ──field(name)──▶ Field { type, patch strategy, … } ──Type::Object(id)──▶ Definition
//! ```
//!
//! The text is parsed once, on first use; afterwards everything is `&'static`.

mod openapi;
mod parse;
mod text;

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

/// Names one definition of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefinitionId(u16);

impl DefinitionId {
    /// The place in [`Schema::definitions`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A kind, as objects name it in `apiVersion` and `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// API group, empty for core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
}

/// All types of the API.
#[derive(Debug)]
pub struct Schema {
    definitions: Vec<Definition>,
    by_name: FxHashMap<&'static str, DefinitionId>,
    by_kind: FxHashMap<(&'static str, &'static str, &'static str), DefinitionId>,
    /// The kinds that bodies may name.
    decoded: FxHashMap<(&'static str, &'static str, &'static str), DefinitionId>,
}

/// One type of the API: a struct with named fields, or a named scalar.
#[derive(Debug)]
pub struct Definition {
    /// Where it lives in [`Schema::definitions`].
    pub id: DefinitionId,
    /// Full name, for example `io.k8s.api.core.v1.Pod`.
    pub name: &'static str,
    /// The kinds this type is served as; empty for parts of other types.
    pub kinds: Vec<GroupVersionKind>,
    /// Fields in the order of their names, those of inlined messages included. Empty unless `shape` is an object.
    pub fields: Vec<Field>,
    /// What a value of this type is: `Object` of itself, or the scalar (quantity, time, raw, …) it stands for.
    pub shape: Type,
    /// Whether apply owns a value as a whole or by field.
    pub map_type: Option<MapType>,
    wire: FxHashMap<u32, WireField>,
    /// The same in the order of the numbers, as messages are written.
    wire_order: Vec<(u32, WireField)>,
}

/// What a protobuf field number of a message means.
#[derive(Clone, Copy, Debug)]
pub enum WireField {
    /// The field at this index of [`Definition::fields`].
    Field(usize),
    /// A message whose fields belong to the enclosing one in JSON.
    Inlined(DefinitionId),
}

/// One field of a definition.
#[derive(Debug)]
pub struct Field {
    /// JSON name.
    pub name: &'static str,
    /// Type of the value.
    pub ty: Type,
    /// Whether the API requires it.
    pub required: bool,
    /// The values an enumeration allows; empty for any other field.
    pub values: Vec<&'static str>,
    /// Go's `omitempty`: not written when empty.
    pub omit_empty: bool,
    /// Go's `omitzero`: not written when zero.
    pub omit_zero: bool,
    /// A pointer in Go: absent and zero are different.
    pub optional: bool,
    /// How strategic merge treats it.
    pub patch_strategy: PatchStrategy,
    /// The key that identifies elements of the list in a strategic merge.
    pub patch_merge_key: Option<&'static str>,
    /// How server-side apply treats the list; `None` for fields that are not lists or say nothing.
    pub list_type: Option<ListType>,
    /// The keys that identify elements when `list_type` is `Map`.
    pub list_map_keys: Vec<&'static str>,
    /// How server-side apply treats the map or struct, where this field says so itself.
    pub map_type: Option<MapType>,
}

/// Type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// Text, with the name Go gives the type.
    String(&'static str),
    /// Base64 text (`format: byte`).
    Bytes,
    /// Integer of 32 bits.
    Int32,
    /// Integer of 64 bits.
    Int64,
    /// Floating point.
    Double,
    /// True or false.
    Boolean,
    /// `resource.Quantity`: text or number.
    Quantity,
    /// `intstr.IntOrString`.
    IntOrString,
    /// `metav1.Time`, with seconds.
    Time,
    /// `metav1.MicroTime`, with microseconds.
    MicroTime,
    /// String-keyed map, with the name Go gives it (empty for ordinary ones).
    Map(Box<Type>, &'static str),
    /// List, with the name Go gives it (empty for ordinary ones).
    List(Box<Type>, &'static str),
    /// A struct of the schema.
    Object(DefinitionId),
    /// Any JSON: `RawExtension`, `JSON`.
    Raw,
    /// `FieldsV1`: a tree of managed fields, any JSON object.
    Fields,
}

/// How strategic merge treats a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PatchStrategy {
    /// Nothing said: maps merge, lists are replaced.
    #[default]
    Default,
    /// Lists merge by key, or as a set when their elements are scalars.
    Merge,
    /// Replaced as a whole.
    Replace,
    /// Keys that the patch's `$retainKeys` does not list are dropped.
    RetainKeys,
    /// A list that merges by key, whose elements retain keys.
    MergeRetainKeys,
}

/// How server-side apply treats a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Owned as a whole.
    Atomic,
    /// Each value has its owners.
    Set,
    /// Each element, found by its keys, has its owners.
    Map,
}

/// How server-side apply treats a map or struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    /// Owned as a whole.
    Atomic,
    /// Each field has its owners.
    Granular,
}

impl Schema {
    /// The schema of the served API; parsed on first use.
    pub fn get() -> &'static Schema {
        static SCHEMA: OnceLock<Schema> = OnceLock::new();
        SCHEMA.get_or_init(|| parse::parse(text::TEXT))
    }

    /// The definition of a kind.
    pub fn definition(&'static self, group: &str, version: &str, kind: &str) -> Option<&'static Definition> {
        self.by_kind.get(&(group, version, kind)).map(|&id| self.at(id))
    }

    /// The definition of a kind that bodies may name.
    pub fn decoded(&'static self, group: &str, version: &str, kind: &str) -> Option<&'static Definition> {
        self.decoded.get(&(group, version, kind)).map(|&id| self.at(id))
    }

    /// The definition of that full name.
    pub fn named(&'static self, name: &str) -> Option<&'static Definition> {
        self.by_name.get(name).map(|&id| self.at(id))
    }

    /// The definition an id names.
    pub fn at(&'static self, id: DefinitionId) -> &'static Definition {
        &self.definitions[usize::from(id.0)]
    }

    /// Every definition, in the order of their names.
    pub fn definitions(&'static self) -> &'static [Definition] {
        &self.definitions
    }

    /// The definitions as OpenAPI v2 JSON, built on first use.
    pub fn openapi_definitions() -> &'static Map<String, Value> {
        static DEFINITIONS: OnceLock<Map<String, Value>> = OnceLock::new();
        DEFINITIONS.get_or_init(|| openapi::definitions(text::TEXT))
    }
}

impl Definition {
    /// The field of that JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.field_index(name).map(|at| &self.fields[at])
    }

    /// Where the field of that JSON name is in `fields`.
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.fields.binary_search_by(|field| field.name.cmp(name)).ok()
    }

    /// What a protobuf field number means.
    pub fn wire_field(&self, number: u32) -> Option<WireField> {
        self.wire.get(&number).copied()
    }

    /// The protobuf fields in the order of their numbers.
    pub fn wire_fields(&self) -> &[(u32, WireField)] {
        &self.wire_order
    }

    /// `v1.Container`: what Go calls the type, version and name.
    pub fn go_name(&self) -> &'static str {
        let version = self.name.rmatch_indices('.').nth(1).map_or(0, |(dot, _)| dot + 1);
        &self.name[version..]
    }

    /// The last part of the full name: the struct's own name.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }
}

impl Type {
    /// The struct this is, if it is one.
    pub fn object(&self) -> Option<&'static Definition> {
        match self {
            Type::Object(id) => Some(Schema::get().at(*id)),
            _ => None,
        }
    }

    /// The type of the elements of a list or the values of a map.
    pub fn element(&self) -> Option<&Type> {
        match self {
            Type::List(element, _) | Type::Map(element, _) => Some(element),
            _ => None,
        }
    }
}

impl PatchStrategy {
    /// Whether a list merges instead of being replaced.
    pub fn merges(self) -> bool {
        matches!(self, PatchStrategy::Merge | PatchStrategy::MergeRetainKeys)
    }

    /// Whether a map, or each element of a merging list, honours `$retainKeys`.
    pub fn retains_keys(self) -> bool {
        matches!(self, PatchStrategy::RetainKeys | PatchStrategy::MergeRetainKeys)
    }
}

#[cfg(test)]
mod tests;
