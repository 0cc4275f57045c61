//! Reads the committed facts into the [`Schema`].

use std::{io::Read, sync::OnceLock};

use flate2::read::GzDecoder;
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::{Definition, DefinitionId, Field, GroupVersionKind, ListType, MapType, PatchStrategy, Schema, Type};

static COMPRESSED: &[u8] = include_bytes!("../../data/schema-facts.json.gz");

/// References look like `#/definitions/<name>`.
const REFERENCE_PREFIX: &str = "#/definitions/";

/// The facts as JSON text, inflated on first use and kept: every name in the schema borrows from it.
pub(super) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = String::new();
        GzDecoder::new(COMPRESSED).read_to_string(&mut text).expect("the committed facts are gzip of UTF-8");
        text
    })
}

/// A JSON object as the list of its members.
struct Members<'a, T>(Vec<(&'a str, T)>);

impl<T> Default for Members<'_, T> {
    fn default() -> Self {
        Members(Vec::new())
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Members<'a, T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<'a, T>(std::marker::PhantomData<(&'a (), T)>);
        impl<'de: 'a, 'a, T: Deserialize<'de>> serde::de::Visitor<'de> for Visitor<'a, T> {
            type Value = Members<'a, T>;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor(std::marker::PhantomData))
    }
}

#[derive(Deserialize)]
struct Fact<'a> {
    #[serde(rename = "type", default)]
    ty: &'a str,
    #[serde(default)]
    format: &'a str,
    #[serde(rename = "$ref", default)]
    reference: &'a str,
    #[serde(borrow, default)]
    properties: Members<'a, Fact<'a>>,
    #[serde(borrow, default)]
    required: Vec<&'a str>,
    #[serde(rename = "enum", borrow, default)]
    values: Vec<&'a str>,
    #[serde(borrow)]
    items: Option<Box<Fact<'a>>>,
    #[serde(rename = "additionalProperties", borrow)]
    map_values: Option<Box<Fact<'a>>>,
    #[serde(rename = "x-kubernetes-group-version-kind", borrow, default)]
    kinds: Vec<Kind<'a>>,
    #[serde(rename = "x-kubernetes-list-type", default)]
    list_type: &'a str,
    #[serde(rename = "x-kubernetes-list-map-keys", borrow, default)]
    list_map_keys: Vec<&'a str>,
    #[serde(rename = "x-kubernetes-map-type", default)]
    map_type: &'a str,
    #[serde(rename = "x-kubernetes-patch-strategy", default)]
    patch_strategy: &'a str,
    #[serde(rename = "x-kubernetes-patch-merge-key")]
    patch_merge_key: Option<&'a str>,
}

#[derive(Deserialize)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

pub(super) fn parse(text: &'static str) -> Schema {
    let Members(mut facts) =
        serde_json::from_str::<Members<'static, Fact<'static>>>(text).expect("the committed facts have this form");
    facts.sort_by_key(|(name, _)| *name);
    let by_name: FxHashMap<&'static str, DefinitionId> =
        facts.iter().enumerate().map(|(at, (name, _))| (*name, id(at))).collect();
    let types: Vec<Type> = facts.iter().enumerate().map(|(at, (name, fact))| type_of(name, fact, id(at))).collect();
    let resolver = Resolver { by_name: &by_name, types: &types };

    let mut definitions = Vec::with_capacity(facts.len());
    let mut by_kind = FxHashMap::default();
    for (at, (name, fact)) in facts.into_iter().enumerate() {
        let kinds: Vec<GroupVersionKind> = fact
            .kinds
            .iter()
            .map(|kind| GroupVersionKind { group: kind.group, version: kind.version, kind: kind.kind })
            .collect();
        by_kind.extend(kinds.iter().map(|kind| ((kind.group, kind.version, kind.kind), id(at))));
        let mut fields: Vec<Field> = fact
            .properties
            .0
            .into_iter()
            .map(|(field, property)| resolver.field(field, property, fact.required.contains(&field)))
            .collect();
        fields.sort_by_key(|field| field.name);
        let map_type = map_type(fact.map_type);
        definitions.push(Definition { id: id(at), name, kinds, fields, shape: types[at].clone(), map_type });
    }
    Schema { definitions, by_name, by_kind }
}

fn id(at: usize) -> DefinitionId {
    DefinitionId(u16::try_from(at).expect("the API has far fewer than 65536 types"))
}

/// What a value of the named definition is; decided before fields are read, because fields refer to definitions.
fn type_of(name: &str, fact: &Fact<'_>, id: DefinitionId) -> Type {
    match name.rsplit('.').next().unwrap_or(name) {
        "Quantity" => Type::Quantity,
        "IntOrString" => Type::IntOrString,
        "Time" => Type::Time,
        "MicroTime" => Type::MicroTime,
        // Objects without declared fields whose content is free, unlike a struct that happens to be empty.
        "FieldsV1" | "RawExtension" | "Patch" => Type::Raw,
        _ if fact.ty == "object" => Type::Object(id),
        _ => Type::Raw,
    }
}

fn map_type(word: &str) -> Option<MapType> {
    match word {
        "atomic" => Some(MapType::Atomic),
        "granular" => Some(MapType::Granular),
        _ => None,
    }
}

struct Resolver<'a> {
    by_name: &'a FxHashMap<&'static str, DefinitionId>,
    types: &'a [Type],
}

impl Resolver<'_> {
    fn field(&self, name: &'static str, fact: Fact<'static>, required: bool) -> Field {
        Field {
            name,
            ty: self.ty(&fact),
            required,
            patch_strategy: match fact.patch_strategy {
                "merge" => PatchStrategy::Merge,
                "replace" => PatchStrategy::Replace,
                "retainKeys" => PatchStrategy::RetainKeys,
                "merge,retainKeys" => PatchStrategy::MergeRetainKeys,
                _ => PatchStrategy::Default,
            },
            patch_merge_key: fact.patch_merge_key,
            list_type: match fact.list_type {
                "atomic" => Some(ListType::Atomic),
                "set" => Some(ListType::Set),
                "map" => Some(ListType::Map),
                _ => None,
            },
            list_map_keys: fact.list_map_keys,
            map_type: map_type(fact.map_type),
        }
    }

    fn ty(&self, fact: &Fact<'static>) -> Type {
        if let Some(name) = fact.reference.strip_prefix(REFERENCE_PREFIX) {
            let id = self.by_name.get(name).expect("every reference of the committed facts resolves");
            return self.types[usize::from(id.0)].clone();
        }
        match (fact.ty, fact.format) {
            ("string", "byte") => Type::Bytes,
            ("string", _) if !fact.values.is_empty() => Type::Enum(fact.values.clone()),
            ("string", _) => Type::String,
            ("integer", "int32") => Type::Int32,
            ("integer", _) => Type::Int64,
            ("number", _) => Type::Double,
            ("boolean", _) => Type::Boolean,
            ("array", _) => Type::List(Box::new(fact.items.as_deref().map_or(Type::Raw, |items| self.ty(items)))),
            ("object", _) => {
                fact.map_values.as_deref().map_or(Type::Raw, |values| Type::Map(Box::new(self.ty(values))))
            }
            _ => Type::Raw,
        }
    }
}
