//! Builds the [`Schema`] from the generated text.

use rustc_hash::FxHashMap;

use super::text::{self, DefinitionLines, FieldLine};
use super::{
    Definition, DefinitionId, Field, GroupVersionKind, ListType, MapType, PatchStrategy, Schema, Type, WireField,
};

pub(super) fn parse(text: &'static str) -> Schema {
    let lines = text::definitions(text);
    let by_name: FxHashMap<&'static str, DefinitionId> =
        lines.iter().enumerate().map(|(at, definition)| (definition.name, id(at))).collect();
    let builder = Builder { lines: &lines, by_name: &by_name };
    let (mut by_kind, mut decoded) = (FxHashMap::default(), FxHashMap::default());
    let mut definitions = Vec::with_capacity(lines.len());
    for (at, definition) in lines.iter().enumerate() {
        let kinds: Vec<GroupVersionKind> = definition.attributes.list("kinds").map(kind).collect();
        by_kind.extend(kinds.iter().map(|kind| ((kind.group, kind.version, kind.kind), id(at))));
        let roots = definition.attributes.list("decoded").map(kind);
        decoded.extend(roots.map(|kind| ((kind.group, kind.version, kind.kind), id(at))));
        definitions.push(builder.definition(id(at), definition, kinds));
    }
    Schema { definitions, by_name, by_kind, decoded }
}

fn id(at: usize) -> DefinitionId {
    DefinitionId(u16::try_from(at).expect("the API has far fewer than 65536 types"))
}

/// `group/version/kind`, with an empty group for core.
fn kind(text: &'static str) -> GroupVersionKind {
    let mut parts = text.split('/');
    let mut part = || parts.next().expect("a kind of the generated text has three parts");
    GroupVersionKind { group: part(), version: part(), kind: part() }
}

fn map_type(word: Option<&str>) -> Option<MapType> {
    match word {
        Some("atomic") => Some(MapType::Atomic),
        Some("granular") => Some(MapType::Granular),
        _ => None,
    }
}

struct Builder<'a> {
    lines: &'a [DefinitionLines],
    by_name: &'a FxHashMap<&'static str, DefinitionId>,
}

impl Builder<'_> {
    fn definition(&self, id: DefinitionId, lines: &DefinitionLines, kinds: Vec<GroupVersionKind>) -> Definition {
        let mut fields = Vec::new();
        self.add_fields(&mut fields, lines, lines);
        fields.sort_by_key(|field| field.name);
        let index_of = |name: &str| fields.binary_search_by(|field: &Field| field.name.cmp(name));
        let wire = lines.fields.iter().filter(|line| line.number != 0).map(|line| {
            let of = match index_of(line.name) {
                Ok(index) => WireField::Field(index),
                Err(_) => WireField::Inlined(self.named(line.ty)),
            };
            (line.number, of)
        });
        let wire: FxHashMap<u32, WireField> = wire.collect();
        let mut wire_order: Vec<(u32, WireField)> = wire.iter().map(|(number, field)| (*number, *field)).collect();
        wire_order.sort_by_key(|(number, _)| *number);
        let map_type = map_type(lines.attributes.get("map"));
        Definition { id, name: lines.name, kinds, fields, shape: shape(id, lines), map_type, wire, wire_order }
    }

    /// Adds the fields of a definition, and those of the messages it inlines.
    fn add_fields(&self, fields: &mut Vec<Field>, outer: &DefinitionLines, lines: &DefinitionLines) {
        for line in &lines.fields {
            if line.is_inlined() {
                let DefinitionId(inner) = self.named(line.ty);
                self.add_fields(fields, outer, &self.lines[usize::from(inner)]);
            } else {
                fields.push(self.field(line, outer.attributes.list("required").any(|name| name == line.name)));
            }
        }
    }

    fn field(&self, line: &FieldLine, required: bool) -> Field {
        Field {
            name: line.name,
            ty: self.ty(line.ty),
            required,
            values: line.values().collect(),
            omit_empty: line.flags.contains('o'),
            omit_zero: line.flags.contains('z'),
            optional: line.flags.contains('p'),
            patch_strategy: match line.attributes.get("strategy") {
                Some("merge") => PatchStrategy::Merge,
                Some("replace") => PatchStrategy::Replace,
                Some("retainKeys") => PatchStrategy::RetainKeys,
                Some("merge,retainKeys") => PatchStrategy::MergeRetainKeys,
                _ => PatchStrategy::Default,
            },
            patch_merge_key: line.attributes.get("key"),
            list_type: match line.attributes.get("list") {
                Some("atomic") => Some(ListType::Atomic),
                Some("set") => Some(ListType::Set),
                Some("map") => Some(ListType::Map),
                _ => None,
            },
            list_map_keys: line.attributes.list("keys").collect(),
            map_type: map_type(line.attributes.get("map")),
        }
    }

    /// The definition that `@name` refers to.
    fn named(&self, ty: &'static str) -> DefinitionId {
        *ty.strip_prefix('@').and_then(|name| self.by_name.get(name)).expect("every reference of the text resolves")
    }

    fn ty(&self, text: &'static str) -> Type {
        if text.starts_with('@') {
            return Type::Object(self.named(text));
        }
        if let Some(element) = text.strip_prefix("[]") {
            let (element, go_name) = self.element(element);
            return Type::List(element, go_name);
        }
        if let Some(element) = text.strip_prefix("{}") {
            let (element, go_name) = self.element(element);
            return Type::Map(element, go_name);
        }
        let (base, go_name) = text.split_once('=').unwrap_or((text, "string"));
        match base {
            "string" => Type::String(go_name),
            "bool" => Type::Boolean,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "double" => Type::Double,
            "bytes" => Type::Bytes,
            "quantity" => Type::Quantity,
            "intorstring" => Type::IntOrString,
            "time" => Type::Time,
            "microtime" => Type::MicroTime,
            "fields" => Type::Fields,
            _ => Type::Raw,
        }
    }

    /// The type of the elements, and the name of the list or map itself: a name belongs to plain text elements, else to
    /// the whole.
    fn element(&self, text: &'static str) -> (Box<Type>, &'static str) {
        match text.rsplit_once('=') {
            Some((of, go_name)) if !text.starts_with("string") => (Box::new(self.ty(of)), go_name),
            _ => (Box::new(self.ty(text)), ""),
        }
    }
}

/// What a value of the definition is.
fn shape(id: DefinitionId, lines: &DefinitionLines) -> Type {
    let is_object = lines.attributes.get("openapi").is_none_or(|openapi| openapi.contains("\"object\""));
    match lines.name.rsplit('.').next().unwrap_or(lines.name) {
        "Quantity" => Type::Quantity,
        "IntOrString" => Type::IntOrString,
        "Time" => Type::Time,
        "MicroTime" => Type::MicroTime,
        "FieldsV1" => Type::Fields,
        // Objects without declared fields whose content is free, unlike a struct that happens to be empty.
        "RawExtension" | "Patch" => Type::Raw,
        _ if is_object => Type::Object(id),
        _ => Type::Raw,
    }
}
