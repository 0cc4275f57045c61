//! What an expression may use: functions with their overloads, and variables with their types and sizes.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::types::Type;

/// One way to call a function.
#[derive(Debug)]
pub(crate) struct Overload {
    /// The target comes first.
    pub(crate) parameters: Vec<Type>,
    pub(crate) result: Type,
    pub(crate) has_target: bool,
    /// Its type parameters.
    pub(crate) generics: Vec<char>,
}

/// The overloads of a function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
}

/// Finds a function of the base environment.
pub(crate) fn function(name: &str) -> Option<&'static Function> {
    static FUNCTIONS: OnceLock<FxHashMap<&'static str, Function>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| read(include_str!("functions.txt"))).get(name)
}

/// The function that only stored expressions may use: it is newer than the version before, to which a cluster may be
/// rolled back.
pub(crate) fn stored_function(name: &str) -> Option<&'static Function> {
    static INCLUDES: OnceLock<FxHashMap<&'static str, Function>> = OnceLock::new();
    INCLUDES.get_or_init(|| read("dyn.includes(dyn) -> bool")).get(name)
}

fn read(table: &'static str) -> FxHashMap<&'static str, Function> {
    let mut functions: FxHashMap<&'static str, Function> = FxHashMap::default();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (types, signature) = match line.split_once(": ") {
            Some((types, signature)) if types.starts_with("X=") => (&types[2..], signature),
            _ => ("", line),
        };
        let (call, result) = signature.rsplit_once(" -> ").expect("every line of the table has a result");
        let (path, parameters) = split_call(call);
        let (target, name) = split_target(path);
        for stands_for in types.split('|') {
            let stands_for = (!stands_for.is_empty()).then(|| read_type(stands_for, None));
            let part = |text| read_type(text, stands_for.as_ref());
            let parameters: Vec<Type> = target.into_iter().chain(split_list(parameters)).map(part).collect();
            let mut generics = Vec::new();
            parameters.iter().chain([&part(result)]).for_each(|of| collect_generics(of, &mut generics));
            let overload = Overload { result: part(result), has_target: target.is_some(), generics, parameters };
            functions.entry(name).or_insert_with(|| Function { name, overloads: Vec::new() }).overloads.push(overload);
        }
    }
    functions
}

/// `path(parameters)`; the parenthesis of the call is the last that opens on the outermost level.
fn split_call(call: &'static str) -> (&'static str, &'static str) {
    let mut depth = 0;
    for (at, c) in call.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return (&call[..at], &call[at + 1..call.len() - 1]);
        }
    }
    (call, "")
}

/// `target.name`, or a name alone, which may have dots itself: namespaces are no types.
fn split_target(path: &'static str) -> (Option<&'static str>, &'static str) {
    const NAMESPACES: [&str; 7] = ["cel", "format", "ip", "lists", "optional", "sets", "strings"];
    match path.rsplit_once('.') {
        Some((target, name)) if !NAMESPACES.contains(&target) && !path.starts_with('_') => (Some(target), name),
        _ => (None, path),
    }
}

fn split_list(list: &'static str) -> Vec<&'static str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = list[start..].trim();
    parts.extend((!last.is_empty()).then_some(last));
    parts
}

fn read_type(text: &'static str, stands_for: Option<&Type>) -> Type {
    if let Some((name, inner)) = text.split_once('(') {
        let parts: Vec<Type> =
            split_list(&inner[..inner.len() - 1]).into_iter().map(|part| read_type(part, stands_for)).collect();
        return match (name, parts.as_slice()) {
            ("list", [element]) => Type::list(element.clone()),
            ("map", [key, value]) => Type::map(key.clone(), value.clone()),
            ("optional_type", [inner]) => Type::optional(inner.clone()),
            ("type", [inner]) => Type::Type(Some(Box::new(inner.clone()))),
            _ => Type::Error,
        };
    }
    match (text, stands_for) {
        ("X", Some(type_)) => type_.clone(),
        ("A", _) => Type::Parameter('A'),
        ("B", _) => Type::Parameter('B'),
        _ => simple_type(text).unwrap_or(Type::Named(text)),
    }
}

/// The type of a name that every expression may use.
pub(crate) fn simple_type(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "dyn" => Type::Dyn,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        _ => return None,
    })
}

/// The type that an identifier names, if it names one: `int` is a value of type `type(int)`.
pub(crate) fn named_type(name: &str) -> Option<Type> {
    Some(match name {
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "type" => Type::Type(None),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        "timestamp" | "duration" | "dyn" => return None,
        other => simple_type(other)?,
    })
}

fn collect_generics(of: &Type, generics: &mut Vec<char>) {
    if let Type::Parameter(name) = of
        && !generics.contains(name)
    {
        generics.push(*name);
    }
    of.parts().into_iter().for_each(|part| collect_generics(part, generics));
}

/// The type of a variable or of a part of it, with the largest size that its values have.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The type.
    pub of: Type,
    /// Characters of a string, elements of a list, entries of a map; what upstream declares, 0 when it declares none.
    pub max_size: u64,
    /// The fields of an object.
    pub fields: Vec<(&'static str, Declared)>,
    /// The keys of a map.
    pub key: Option<Box<Declared>>,
    /// The values of a map, or the elements of a list.
    pub element: Option<Box<Declared>>,
    /// The size of a value is known also when it is selected by its name, as a field.
    pub sizes_by_name: bool,
}

impl Declared {
    /// A value without parts.
    pub fn simple(of: Type, max_size: u64) -> Self {
        Declared { of, max_size, fields: Vec::new(), key: None, element: None, sizes_by_name: false }
    }

    /// A map of at most this many entries.
    pub fn map(key: Declared, element: Declared, max_size: u64) -> Self {
        let of = Type::map(key.of.clone(), element.of.clone());
        let (key, element) = (Some(Box::new(key)), Some(Box::new(element)));
        Declared { of, max_size, fields: Vec::new(), key, element, sizes_by_name: false }
    }

    /// An object with fields.
    pub fn object(name: &'static str, fields: Vec<(&'static str, Declared)>) -> Self {
        Declared { fields, ..Declared::simple(Type::Named(name), 0) }
    }

    /// The declaration of a part: a field's name, `@keys`, `@values` or `@items`.
    pub(crate) fn part(&self, name: &str) -> Option<&Declared> {
        match name {
            "@items" | "@values" => self.element.as_deref(),
            "@keys" => self.key.as_deref(),
            _ => {
                let field = self.fields.iter().find(|(field, _)| *field == name).map(|(_, declared)| declared);
                field.or_else(|| self.element.as_deref().filter(|_| self.sizes_by_name))
            }
        }
    }
}

/// The variables of an expression, and whether it is stored already.
#[derive(Clone, Debug)]
pub struct Environment {
    /// By name.
    pub variables: Vec<(&'static str, Declared)>,
    /// An expression that was accepted before may use what is newer than the version before.
    pub stored: bool,
}

impl Environment {
    pub(crate) fn function(&self, name: &str) -> Option<&'static Function> {
        function(name).or_else(|| stored_function(name).filter(|_| self.stored))
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&Declared> {
        self.variables.iter().find(|(variable, _)| *variable == name).map(|(_, declared)| declared)
    }

    /// The fields of an object type; none for other types.
    pub(crate) fn fields(&self, type_name: &str) -> Option<&[(&'static str, Declared)]> {
        let is = |declared: &&Declared| matches!(declared.of, Type::Named(name) if name == type_name);
        let object = self.variables.iter().map(|(_, declared)| declared).find(is);
        object.map(|declared| declared.fields.as_slice())
    }
}
