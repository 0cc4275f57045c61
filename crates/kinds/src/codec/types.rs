//! The table of wire types: what fields each kind has, how they are spelled in JSON and numbered in protobuf, and which
//! of them are written even when empty.
//!
//! Upstream's objects pass through typed structs on every request, so an answer always shows the same fields whatever
//! the client left out. The table carries exactly the facts needed to give objects that canonical form without structs.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

/// The table in its committed text form.
static TEXT: &str = include_str!("types.txt");

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(TEXT));

/// The table, parsed on first use.
pub(crate) fn table() -> &'static Table {
    &TABLE
}

/// Where a message stands in [`Table::structs`].
pub(crate) type StructId = usize;

/// The type of a field, list element or map value.
#[derive(Debug)]
pub(crate) enum Type {
    /// Text, with the name decoding errors give it.
    String(&'static str),
    Bool,
    Int32,
    Int64,
    Bytes,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    /// Any JSON value.
    Raw,
    /// A managed-fields tree, any JSON object.
    Fields,
    Struct(StructId),
    /// A list, with the name decoding errors give it (empty when it is an ordinary one).
    List(Box<Type>, &'static str),
    /// A string-keyed map, with the name decoding errors give it (empty when it is an ordinary one).
    Map(Box<Type>, &'static str),
}

/// One field of a message.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) of: Type,
    pub(crate) omit_empty: bool,
    pub(crate) omit_zero: bool,
    /// Absent and zero are different.
    pub(crate) optional: bool,
}

/// What a protobuf field number of a message means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wire {
    /// The field at this index.
    Field(usize),
    /// A message whose fields belong to the enclosing one in JSON.
    Inline(StructId),
}

/// One message.
#[derive(Debug)]
pub(crate) struct Struct {
    /// `Container`.
    pub(crate) name: &'static str,
    /// `v1.Container`: what decoding errors call it.
    pub(crate) go_name: String,
    pub(crate) fields: Vec<Field>,
    by_name: FxHashMap<&'static str, usize>,
    by_number: FxHashMap<u32, Wire>,
    /// Fields that are written even when nothing was given for them, with what is written.
    always: Vec<(&'static str, Value)>,
}

impl Struct {
    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn wire(&self, number: u32) -> Option<Wire> {
        self.by_number.get(&number).copied()
    }

    /// Adds the fields that are written even when nothing was given for them.
    pub(crate) fn complete(&self, object: &mut Map<String, Value>) {
        for (name, zero) in &self.always {
            if !object.contains_key(*name) {
                object.insert((*name).to_owned(), zero.clone());
            }
        }
    }
}

/// All messages and the kinds they belong to.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) structs: Vec<Struct>,
    /// `group/version` (`/v1` for core) and kind of each root.
    kinds: FxHashMap<(&'static str, &'static str), StructId>,
}

impl Table {
    /// The message of a kind; `group_version` is `/v1` for core.
    pub(crate) fn kind(&self, group_version: &str, kind: &str) -> Option<StructId> {
        self.kinds.get(&(group_version, kind)).copied()
    }

    /// What is written for an element or map value of this type when null was given.
    pub(crate) fn zero(&self, of: &Type) -> Value {
        match of {
            Type::String(_) => Value::String(String::new()),
            Type::Bool => Value::Bool(false),
            Type::Int32 | Type::Int64 | Type::IntOrString => Value::from(0),
            Type::Quantity => Value::from("0"),
            Type::Struct(id) => {
                let mut object = Map::new();
                self.structs[*id].complete(&mut object);
                Value::Object(object)
            }
            _ => Value::Null,
        }
    }

    fn parse(text: &'static str) -> Table {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let names: Vec<&'static str> = lines().filter_map(|line| line.strip_prefix("type ")).collect();
        let ids: FxHashMap<&'static str, StructId> = names.iter().enumerate().map(|(i, name)| (*name, i)).collect();
        let mut kinds = FxHashMap::default();
        let mut raw: Vec<Vec<RawField>> = Vec::with_capacity(names.len());
        for line in lines() {
            if let Some(kind) = line.strip_prefix("kind ") {
                let mut words = kind.split(' ');
                let (Some(group_version), Some(kind), Some(of)) = (words.next(), words.next(), words.next()) else {
                    unreachable!("a kind line of the committed table has three words")
                };
                kinds.insert((group_version, kind), ids[of]);
            } else if line.starts_with("type ") {
                raw.push(Vec::new());
            } else if let Some(fields) = raw.last_mut() {
                fields.push(RawField::parse(line));
            }
        }
        let mut table = Table { structs: Vec::with_capacity(names.len()), kinds };
        for (id, full_name) in names.iter().enumerate() {
            table.structs.push(build(full_name, id, &raw, &ids));
        }
        table.fill_always();
        table
    }

    /// Computes what each message writes when nothing was given, innermost messages first.
    fn fill_always(&mut self) {
        let mut done = vec![false; self.structs.len()];
        for id in 0..self.structs.len() {
            self.always_of(id, &mut done);
        }
    }

    fn always_of(&mut self, id: StructId, done: &mut [bool]) {
        if std::mem::replace(&mut done[id], true) {
            return;
        }
        let inner: Vec<StructId> = self.structs[id]
            .fields
            .iter()
            .filter_map(|field| match field.of {
                Type::Struct(inner) if !field.optional => Some(inner),
                _ => None,
            })
            .collect();
        for inner in inner {
            self.always_of(inner, done);
        }
        let always = self.structs[id]
            .fields
            .iter()
            .filter(|field| !field.omit_zero)
            .filter_map(|field| match (&field.of, field.optional) {
                (_, true) if field.omit_empty => None,
                (_, true) => Some((field.name, Value::Null)),
                // Structs are never empty to upstream's JSON encoder.
                (
                    Type::Struct(_) | Type::Quantity | Type::IntOrString | Type::Time | Type::MicroTime | Type::Raw,
                    _,
                ) => Some((field.name, self.zero(&field.of))),
                _ if field.omit_empty => None,
                _ => Some((field.name, self.zero(&field.of))),
            })
            .collect();
        self.structs[id].always = always;
    }
}

#[derive(Clone, Copy)]
struct RawField {
    name: &'static str,
    number: u32,
    flags: &'static str,
    of: &'static str,
}

impl RawField {
    fn parse(line: &'static str) -> RawField {
        let mut words = line.split_ascii_whitespace();
        let mut word = || words.next().expect("a field line of the committed table has four words");
        let (name, number, flags, of) = (word(), word(), word(), word());
        RawField { name, number: number.parse().expect("field numbers are numbers"), flags, of }
    }

    fn inline(self) -> bool {
        self.name == "~"
    }
}

fn build(
    full_name: &'static str,
    id: StructId,
    raw: &[Vec<RawField>],
    ids: &FxHashMap<&'static str, StructId>,
) -> Struct {
    let name = full_name.rsplit('.').next().unwrap_or(full_name);
    let package = full_name.rsplit('/').next().unwrap_or(full_name);
    let mut built = Struct {
        name,
        go_name: package.to_owned(),
        fields: Vec::new(),
        by_name: FxHashMap::default(),
        by_number: FxHashMap::default(),
        always: Vec::new(),
    };
    for field in &raw[id] {
        if field.inline() {
            let inner = ids[&field.of[1..]];
            built.by_number.insert(field.number, Wire::Inline(inner));
            add_inlined(&mut built, inner, raw, ids);
        } else {
            if field.number != 0 {
                built.by_number.insert(field.number, Wire::Field(built.fields.len()));
            }
            add(&mut built, *field, ids);
        }
    }
    built
}

fn add_inlined(built: &mut Struct, inner: StructId, raw: &[Vec<RawField>], ids: &FxHashMap<&'static str, StructId>) {
    for field in &raw[inner] {
        if field.inline() {
            add_inlined(built, ids[&field.of[1..]], raw, ids);
        } else {
            add(built, *field, ids);
        }
    }
}

fn add(built: &mut Struct, field: RawField, ids: &FxHashMap<&'static str, StructId>) {
    built.by_name.insert(field.name, built.fields.len());
    built.fields.push(Field {
        name: field.name,
        of: parse_type(field.of, ids),
        omit_empty: field.flags.contains('o'),
        omit_zero: field.flags.contains('z'),
        optional: field.flags.contains('p'),
    });
}

fn parse_type(text: &'static str, ids: &FxHashMap<&'static str, StructId>) -> Type {
    if let Some(name) = text.strip_prefix('@') {
        return Type::Struct(ids[name]);
    }
    let inner = |text: &'static str| {
        // `[]string=v1.X`: the name is the list's own; element names of plain lists follow the element.
        match text.rsplit_once('=') {
            Some((of, name)) if text.starts_with(['[', '{']) || !text.starts_with("string") => {
                (Box::new(parse_type(of, ids)), name)
            }
            _ => (Box::new(parse_type(text, ids)), ""),
        }
    };
    if let Some(of) = text.strip_prefix("[]") {
        let (of, name) = inner(of);
        return Type::List(of, name);
    }
    if let Some(of) = text.strip_prefix("{}") {
        let (of, name) = inner(of);
        return Type::Map(of, name);
    }
    let (base, name) = text.split_once('=').unwrap_or((text, "string"));
    match base {
        "string" => Type::String(name),
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "bytes" => Type::Bytes,
        "quantity" => Type::Quantity,
        "intorstring" => Type::IntOrString,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "raw" => Type::Raw,
        "fields" => Type::Fields,
        other => unreachable!("the committed table has no type {other}"),
    }
}

/// What decoding errors call a type.
pub(crate) fn go_name(of: &Type) -> String {
    match of {
        Type::String(name) => (*name).to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Quantity => "resource.Quantity".to_owned(),
        Type::IntOrString => "intstr.IntOrString".to_owned(),
        Type::Time => "v1.Time".to_owned(),
        Type::MicroTime => "v1.MicroTime".to_owned(),
        Type::Raw => "runtime.RawExtension".to_owned(),
        Type::Fields => "v1.FieldsV1".to_owned(),
        Type::Struct(id) => table().structs[*id].go_name.clone(),
        Type::List(_, name) | Type::Map(_, name) if !name.is_empty() => (*name).to_owned(),
        Type::List(of, _) => format!("[]{}", go_name(of)),
        Type::Map(of, _) => format!("map[string]{}", go_name(of)),
    }
}
