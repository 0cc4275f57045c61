//! What changed between two states of an object, by the schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element;
use super::fields::{Fields, children, leaf, node};
use super::shape::{Kind, Shape};

/// The fields of the root that nobody owns.
pub(crate) const UNOWNED: [&str; 2] = ["apiVersion", "kind"];
/// The fields of the metadata that nobody owns.
pub(crate) const UNOWNED_METADATA: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// The fields that differ between two states; no field is in two of the sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Changes {
    pub(crate) added: Fields,
    pub(crate) modified: Fields,
    pub(crate) removed: Fields,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    pub(crate) fn each(&mut self, change: impl Fn(&mut Fields)) {
        change(&mut self.added);
        change(&mut self.modified);
        change(&mut self.removed);
    }
}

/// The same for one value: the nodes that its place gets in the three sets.
#[derive(Default)]
struct Marks {
    added: Option<Value>,
    modified: Option<Value>,
    removed: Option<Value>,
}

/// Compares two objects, apart from the fields that nobody owns.
pub(crate) fn compare(live: &Value, new: &Value, root: Shape) -> Changes {
    let mut changes = Changes::default();
    let (Some(live), Some(new)) = (live.as_object(), new.as_object()) else { return changes };
    zip(live, new, &UNOWNED, |name, old, new| {
        let Some(shape) = root.child(name) else { return };
        let marks = match (name, old, new) {
            ("metadata", Some(Value::Object(old)), Some(Value::Object(new))) => {
                maps(old, new, shape, &UNOWNED_METADATA)
            }
            _ => values(old, new, shape),
        };
        attach(&mut changes, element::field(name), marks);
    });
    changes
}

/// Compares two objects with all their fields.
pub(crate) fn compare_all(live: &Value, new: &Value, root: Shape) -> Changes {
    let node = |node: Option<Value>| node.map(|node| children(&node).clone()).unwrap_or_default();
    let marks = both(live, new, root);
    Changes { added: node(marks.added), modified: node(marks.modified), removed: node(marks.removed) }
}

fn attach(changes: &mut Changes, element: String, marks: Marks) {
    let put = |set: &mut Fields, node: Option<Value>| {
        if let Some(node) = node {
            set.insert(element.clone(), node);
        }
    };
    put(&mut changes.added, marks.added);
    put(&mut changes.modified, marks.modified);
    put(&mut changes.removed, marks.removed);
}

/// Visits the fields of either map whose values differ, but for some names.
fn zip<'v>(
    old: &'v Map<String, Value>,
    new: &'v Map<String, Value>,
    but: &[&str],
    mut visit: impl FnMut(&'v str, Option<&'v Value>, Option<&'v Value>),
) {
    for (name, old) in old {
        let new = new.get(name);
        if new != Some(old) && !but.contains(&name.as_str()) {
            visit(name, Some(old), new);
        }
    }
    for (name, new) in new {
        if !old.contains_key(name) && !but.contains(&name.as_str()) {
            visit(name, None, Some(new));
        }
    }
}

fn values(old: Option<&Value>, new: Option<&Value>, shape: Shape) -> Marks {
    match (old, new) {
        (None, None) => Marks::default(),
        (None, Some(new)) => Marks { added: Some(whole(new, shape)), ..Marks::default() },
        (Some(old), None) => Marks { removed: Some(whole(old, shape)), ..Marks::default() },
        (Some(old), Some(new)) => both(old, new, shape),
    }
}

fn both(old: &Value, new: &Value, shape: Shape) -> Marks {
    let no_fields = Map::new();
    let map = |value| match value {
        &Value::Null => Some(&no_fields),
        value => value.as_object(),
    };
    if shape.is_leaf() || (is_empty(old) && is_empty(new)) {
        return changed(old, new);
    }
    match shape.kind {
        Kind::Struct(_) | Kind::Map(_) | Kind::Any => match (map(old), map(new)) {
            (Some(old), Some(new)) => maps(old, new, shape, &[]),
            _ => changed(old, new),
        },
        Kind::List { .. } => match (items_of(old), items_of(new)) {
            (Some(old), Some(new)) => lists(old, new, shape),
            _ => changed(old, new),
        },
        _ => changed(old, new),
    }
}

/// The items of a list; null has none.
fn items_of(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Null => Some(&[]),
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn changed(old: &Value, new: &Value) -> Marks {
    Marks { modified: (!same(old, new)).then(leaf), ..Marks::default() }
}

/// Equality of values, where numbers count and not how they are written.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}

fn maps(old: &Map<String, Value>, new: &Map<String, Value>, shape: Shape, but: &[&str]) -> Marks {
    let mut below = Changes::default();
    zip(old, new, but, |name, old, new| {
        if let Some(shape) = shape.child(name) {
            attach(&mut below, element::field(name), values(old, new, shape));
        }
    });
    marks(below)
}

fn marks(below: Changes) -> Marks {
    let Changes { added, modified, removed } = below;
    Marks { added: node(false, added), modified: node(false, modified), removed: node(false, removed) }
}

/// The items of a list by their element; several where a list repeats one.
fn by_element(items: &[Value], shape: Shape) -> BTreeMap<String, Vec<&Value>> {
    let mut found: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    if let Kind::List { element, keys } = shape.kind {
        for item in items {
            if let Ok(key) = element::of_item(item, element, keys) {
                found.entry(key).or_default().push(item);
            }
        }
    }
    found
}

fn lists(old: &[Value], new: &[Value], shape: Shape) -> Marks {
    let Kind::List { element, .. } = shape.kind else { return Marks::default() };
    let item_shape = element::item_shape(element);
    let (old, new) = (by_element(old, shape), by_element(new, shape));
    let mut below = Changes::default();
    let elements = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
    for key in elements {
        let before = old.get(key).map_or(&[][..], Vec::as_slice);
        let after = new.get(key).map_or(&[][..], Vec::as_slice);
        let marks = match (before, after) {
            // Repeated items are compared as a whole.
            ([_, _, ..], [_, _, ..]) => Marks { modified: (before != after).then(leaf), ..Marks::default() },
            ([_, _, ..], after) => Marks { removed: Some(leaf()), ..values(None, after.first().copied(), item_shape) },
            (before, [_, _, ..]) => Marks { added: Some(leaf()), ..values(before.first().copied(), None, item_shape) },
            (before, after) => values(before.first().copied(), after.first().copied(), item_shape),
        };
        attach(&mut below, key.clone(), marks);
    }
    marks(below)
}

/// A list or map without anything in it.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// The node of a value that is new or gone: itself and everything in it.
fn whole(value: &Value, shape: Shape) -> Value {
    if shape.is_leaf() || is_empty(value) {
        return leaf();
    }
    let below: Fields = match (shape.kind, value) {
        (Kind::Struct(_) | Kind::Map(_) | Kind::Any, Value::Object(fields)) => {
            let known = fields
                .iter()
                .filter_map(|(name, value)| Some((element::field(name), whole(value, shape.child(name)?))));
            known.collect()
        }
        (Kind::List { element, .. }, Value::Array(items)) => {
            let item = |items: Vec<&Value>| match items.as_slice() {
                [item] => whole(item, element::item_shape(element)),
                _ => leaf(),
            };
            by_element(items, shape).into_iter().map(|(key, items)| (key, item(items))).collect()
        }
        _ => Fields::new(),
    };
    node(true, below).unwrap_or_else(leaf)
}

/// What an applied object claims: its leaves, the items of its lists, the keys of its maps.
pub(crate) fn field_set(object: &Value, shape: Shape) -> Fields {
    let (_, below) = claimed(object, shape);
    below
}

/// Whether a value is claimed itself, and what is claimed below it.
fn claimed(value: &Value, shape: Shape) -> (bool, Fields) {
    if shape.is_leaf() {
        return (true, Fields::new());
    }
    match (shape.kind, value) {
        (Kind::Struct(_) | Kind::Map(_) | Kind::Any, Value::Object(fields)) => {
            let named = matches!(shape.kind, Kind::Struct(_));
            let below = fields.iter().filter_map(|(name, value)| {
                let (member, below) = claimed(value, shape.child(name)?);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                Some((element::field(name), node(member || empty || !named, below)?))
            });
            (false, below.collect())
        }
        (Kind::List { element, .. }, Value::Array(items)) => {
            let item = |items: Vec<&Value>| match items.as_slice() {
                [item] => node(true, claimed(item, element::item_shape(element)).1).unwrap_or_else(leaf),
                _ => leaf(),
            };
            let below = by_element(items, shape).into_iter().map(|(key, items)| (key, item(items)));
            (false, below.collect())
        }
        (Kind::Any, Value::Null) => (false, Fields::new()),
        (Kind::Any, _) => (true, Fields::new()),
        _ => (false, Fields::new()),
    }
}

/// Takes the fields that nobody owns out of a set.
pub(crate) fn strip(set: &mut Fields) {
    for name in UNOWNED {
        set.remove(&element::field(name));
    }
    let key = element::field("metadata");
    let Some(metadata) = set.get(&key) else { return };
    let mut metadata = children(metadata).clone();
    metadata.remove(super::fields::SELF);
    for name in UNOWNED_METADATA {
        metadata.remove(&element::field(name));
    }
    match node(false, metadata) {
        Some(node) => set.insert(key, node),
        None => set.remove(&key),
    };
}
