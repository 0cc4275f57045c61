//! Sets of fields, kept in the form in which objects carry them (FieldsV1): a tree of path elements.
//!
//! ```text
//!   {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}}    owns metadata.labels and metadata.labels.app
//! ```
//!
//! A node without children is a member of the set; one with children is a member if it has the child `.`. No node is
//! there for nothing: every leaf is a member. So a set needs no decoding, and what nobody touches costs nothing.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::element;
use super::shape::{Kind, Shape};

/// A set of fields: the children of its root.
pub(crate) type Fields = Map<String, Value>;

/// The child that stands for the node itself.
pub(crate) const SELF: &str = ".";

static NO_FIELDS: LazyLock<Fields> = LazyLock::new(Fields::new);

/// A member without children.
pub(crate) fn leaf() -> Value {
    Value::Object(Fields::new())
}

/// A node with children; `None` when there would be nothing in it.
pub(crate) fn node(member: bool, mut children: Fields) -> Option<Value> {
    if children.is_empty() {
        return member.then(leaf);
    }
    if member {
        children.insert(SELF.to_owned(), leaf());
    }
    Some(Value::Object(children))
}

/// The children of a node, the one that stands for itself among them.
pub(crate) fn children(node: &Value) -> &Fields {
    node.as_object().unwrap_or(&NO_FIELDS)
}

pub(crate) fn is_member(node: &Value) -> bool {
    let children = children(node);
    children.is_empty() || children.contains_key(SELF)
}

/// Takes a node apart.
fn opened(node: &mut Value) -> (bool, &mut Fields) {
    let member = is_member(node);
    if !node.is_object() {
        *node = leaf();
    }
    let children = node.as_object_mut().expect("made an object right above");
    children.remove(SELF);
    (member, children)
}

/// Closes a node that was taken apart; false when nothing is left of it.
fn closed(member: bool, children: &mut Fields) -> bool {
    if member && !children.is_empty() {
        children.insert(SELF.to_owned(), leaf());
    }
    member || !children.is_empty()
}

/// Adds the members of another set.
pub(crate) fn add(target: &mut Fields, other: Fields) {
    if target.is_empty() {
        *target = other;
        return;
    }
    for (key, mut theirs) in other {
        match target.get_mut(&key) {
            None => {
                target.insert(key, theirs);
            }
            Some(mine) => {
                let (their_member, theirs) = opened(&mut theirs);
                let (member, mine) = opened(mine);
                add(mine, std::mem::take(theirs));
                closed(member || their_member, mine);
            }
        }
    }
}

/// Removes the members of another set; children of a removed member stay.
pub(crate) fn subtract(target: &mut Fields, other: &Fields) {
    for (key, theirs) in other.iter().filter(|(key, _)| *key != SELF) {
        let Some(mine) = target.get_mut(key) else { continue };
        let (member, mine) = opened(mine);
        subtract(mine, children(theirs));
        if !closed(member && !is_member(theirs), mine) {
            target.remove(key);
        }
    }
}

/// The members of both sets.
pub(crate) fn intersection(a: &Fields, b: &Fields) -> Fields {
    let both = a.iter().filter(|(key, _)| *key != SELF).filter_map(|(key, mine)| {
        let theirs = b.get(key)?;
        let common = intersection(children(mine), children(theirs));
        Some((key.clone(), node(is_member(mine) && is_member(theirs), common)?))
    });
    both.collect()
}

/// Removes a path of named fields with everything below it.
pub(crate) fn remove_path(target: &mut Fields, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    let key = element::field(first);
    if rest.is_empty() {
        target.remove(&key);
        return;
    }
    let Some(mine) = target.get_mut(&key) else { return };
    let (member, mine) = opened(mine);
    remove_path(mine, rest);
    if !closed(member, mine) {
        target.remove(&key);
    }
}

/// Whether a path of named fields is a member.
pub(crate) fn has(set: &Fields, path: &[String]) -> bool {
    match path {
        [] => false,
        [last] => set.get(last).is_some_and(is_member),
        [first, rest @ ..] => set.get(first).is_some_and(|node| has(children(node), rest)),
    }
}

/// The set with every named field of a struct as a member that has members below it.
pub(crate) fn with_named_parents(set: &Fields, shape: Option<Shape>) -> Fields {
    let completed = set.iter().filter(|(key, _)| *key != SELF).map(|(key, mine)| {
        let name = key.strip_prefix(element::FIELD);
        let (named, below) = match (shape.map(|shape| shape.kind), name) {
            (Some(Kind::Struct(definition)), Some(name)) => {
                let field = definition.field(name);
                (field.is_some(), field.map(|field| Shape::of(&field.ty, Some(field))))
            }
            (Some(Kind::Map(element)), Some(_)) => (false, Some(Shape::of(element, None))),
            (Some(Kind::Any), Some(_)) => (false, shape),
            (Some(Kind::List { element, .. }), None) if key.starts_with(element::KEY) => {
                (false, Some(Shape::of(element, None)))
            }
            _ => (false, None),
        };
        let inner = with_named_parents(children(mine), below);
        (key.clone(), node(named || is_member(mine), inner).unwrap_or_else(leaf))
    });
    completed.collect()
}

/// The paths of the members: those of a level before what is below them.
pub(crate) fn paths(set: &Fields) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    collect(set, &mut Vec::new(), &mut found);
    found
}

fn collect(set: &Fields, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    for (key, _) in set.iter().filter(|(key, node)| *key != SELF && is_member(node)) {
        let mut path = prefix.clone();
        path.push(key.clone());
        found.push(path);
    }
    for (key, node) in set.iter().filter(|(key, _)| *key != SELF) {
        prefix.push(key.clone());
        collect(children(node), prefix, found);
        prefix.pop();
    }
}

/// Brings a set that somebody sent into the form that this module keeps; `None` if it is no set.
pub(crate) fn normalized(set: &Value) -> Option<Fields> {
    let mut fields = Fields::new();
    for (key, child) in set.as_object()? {
        if key == SELF {
            continue;
        }
        let Some(key) = element::normalized(key)? else { continue };
        let below = if child.is_null() { Fields::new() } else { normalized(child)? };
        let member = is_member(child) || below.is_empty();
        add(&mut fields, node(member, below).map(|node| (key, node)).into_iter().collect());
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> Fields {
        normalized(&value).unwrap()
    }

    #[test]
    fn sets_are_added_and_subtracted_member_by_member() {
        let labels = set(json!({"f:labels": {".": {}, "f:a": {}, "f:b": {}}, "f:name": {}}));
        for (other, less, more) in [
            (json!({}), json!(labels), json!(labels)),
            (json!({"f:labels": {}}), json!({"f:labels": {"f:a": {}, "f:b": {}}, "f:name": {}}), json!(labels)),
            (json!({"f:labels": {"f:a": {}}}), json!({"f:labels": {".": {}, "f:b": {}}, "f:name": {}}), json!(labels)),
            (
                json!({"f:labels": {".": {}, "f:a": {}, "f:b": {}, "f:c": {}}}),
                json!({"f:name": {}}),
                json!({"f:labels": {".": {}, "f:a": {}, "f:b": {}, "f:c": {}}, "f:name": {}}),
            ),
        ] {
            let other = set(other);
            let mut left = labels.clone();
            subtract(&mut left, &other);
            assert_eq!(json!(left), less);
            let mut both = labels.clone();
            add(&mut both, other);
            assert_eq!(json!(both), more);
        }
    }

    #[test]
    fn an_intersection_has_what_both_have() {
        let a = set(json!({"f:x": {".": {}, "f:y": {}}, "f:z": {}}));
        let b = set(json!({"f:x": {"f:y": {}, "f:w": {}}}));
        assert_eq!(json!(intersection(&a, &b)), json!({"f:x": {"f:y": {}}}));
        assert_eq!(json!(intersection(&b, &set(json!({"f:z": {}})))), json!({}));
    }

    #[test]
    fn paths_are_removed_with_what_is_below_them() {
        let mut less = set(json!({
            "f:status": {"f:phase": {}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}},
        }));
        remove_path(&mut less, &["status"]);
        remove_path(&mut less, &["spec", "absent"]);
        assert_eq!(less.keys().collect::<Vec<_>>(), ["f:spec"]);
    }

    #[test]
    fn what_somebody_sent_is_normalised_or_refused() {
        let sent = json!({"f:a": {".": {}}, "x:later": {}, "k:{\"b\":1, \"a\":\"x\"}": {"f:c": null}, ".": {}});
        assert_eq!(json!(set(sent)), json!({"f:a": {}, "k:{\"a\":\"x\",\"b\":1}": {"f:c": {}}}));
        for wrong in [json!([]), json!({"a": {}}), json!({"f:a": 1}), json!({"k:{": {}}), json!({"i:x": {}})] {
            assert_eq!(normalized(&wrong), None, "{wrong}");
        }
    }
}
