//! The API's types as data: every served kind's fields, their types, list keys and patch strategies.
//!
//! ```text
//!   data/schema-facts.json.gz ──inflate──▶ text ──facts──▶ Schema { definitions, by name, by group-version-kind }
//!                                            └──────────▶ raw definitions (only when OpenAPI asks)
//!   Definition ──field(name)──▶ Field { type, patch strategy, … } ──Type::Object(id)──▶ Definition
//! ```
//!
//! The facts are parsed once, on first use; afterwards everything is `&'static`.

mod facts;

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

/// Names one definition of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefinitionId(u16);

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
    /// Fields in the order of their names; inlined structs are flattened. Empty unless `shape` is an object.
    pub fields: Vec<Field>,
    /// What a value of this type is: `Object` of itself, or the scalar (quantity, time, raw, …) it stands for.
    pub shape: Type,
    /// Whether apply owns a value as a whole or by field.
    pub map_type: Option<MapType>,
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
    /// Text.
    String,
    /// Text out of a fixed set of values.
    Enum(Vec<&'static str>),
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
    /// String-keyed map.
    Map(Box<Type>),
    /// List.
    List(Box<Type>),
    /// A struct of the schema.
    Object(DefinitionId),
    /// Any JSON: `RawExtension`, `FieldsV1`, `JSON`.
    Raw,
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
        SCHEMA.get_or_init(|| facts::parse(facts::text()))
    }

    /// The definition of a kind.
    pub fn definition(&'static self, group: &str, version: &str, kind: &str) -> Option<&'static Definition> {
        self.by_kind.get(&(group, version, kind)).map(|&id| self.at(id))
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

    /// The definitions as OpenAPI v2 JSON, with every fact: for OpenAPI documents. Parsed on first use.
    pub fn raw_definitions() -> &'static Map<String, Value> {
        static RAW: OnceLock<Map<String, Value>> = OnceLock::new();
        RAW.get_or_init(|| serde_json::from_str(facts::text()).expect("the committed facts are a JSON object"))
    }
}

impl Definition {
    /// The field of that JSON name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.binary_search_by(|field| field.name.cmp(name)).ok().map(|at| &self.fields[at])
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
            Type::List(element) | Type::Map(element) => Some(element),
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
