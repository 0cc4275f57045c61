//! Merging lists, and putting the result in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bayplan_model::schema::Type;
use serde_json::{Map, Value};

use super::{
    DIRECTIVE, Error, SET_ELEMENT_ORDER,
    budget::Budget,
    go_value::{Printed, type_name},
    lookup::{self, Member},
    merge_map, name_after, no_merge_key, unknown_directive, without_directives,
};

const LIST: &str = "[]interface {}";
const MAP: &str = "map[string]interface {}";

/// Merges the patch's list into the object's.
pub(super) fn merge(
    original: Vec<Value>,
    patch: Vec<Value>,
    member: &Member<'_>,
    budget: &mut Budget,
) -> Result<Vec<Value>, Error> {
    if !member.strategy.merges() {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    budget.pass(original.iter().chain(&patch))?;
    match element_kind(&original, &patch)? {
        Elements::Scalars => merge_scalars(original, patch, member.merge_key),
        Elements::Maps => merge_maps(original, patch, member, budget),
    }
}

/// Takes the elements of a `$deleteFromPrimitiveList` out of a list.
pub(super) fn delete(
    original: Vec<Value>,
    gone: Vec<Value>,
    member: &Member<'_>,
    budget: &mut Budget,
) -> Result<Vec<Value>, Error> {
    if original.is_empty() && gone.is_empty() {
        return Ok(original);
    }
    budget.pass(original.iter().chain(&gone))?;
    match element_kind(&original, &gone)? {
        Elements::Scalars => {
            let gone: BTreeSet<String> = gone.iter().map(text).collect();
            Ok(original.into_iter().filter(|value| !gone.contains(&text(value))).collect())
        }
        // Upstream's deletion list of maps is merged like any other.
        Elements::Maps => merge_maps(original, gone, member, budget),
    }
}

/// Merges and orders the lists that have a `$setElementOrder`, and takes both out of the patch.
pub(super) fn merge_ordered(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    ty: &Type,
    budget: &mut Budget,
) -> Result<(), Error> {
    let mut directives: Vec<String> =
        patch.keys().filter(|field| field.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    directives.sort();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(bad_type(LIST, &other.unwrap_or_default())),
        };
        let field = name_after(&directive, SET_ELEMENT_ORDER).ok_or(Error::SetElementOrder)?;
        let live = list_of(original.get(field))?;
        let wanted = list_of(patch.get(field))?;
        let member = lookup::list(ty, field)?;
        budget.pass(order.iter().chain(live.into_iter().flatten()).chain(wanted.into_iter().flatten()))?;
        if let Some(wanted) = wanted {
            check_order(wanted, &order, member.merge_key)?;
        }
        let kind = element_kind(live.map_or(&[], |list| list), wanted.map_or(&[], |list| list));
        let (merged, live) = match (live, wanted) {
            (None, None) => continue,
            (Some(live), None) => (live.clone(), live.clone()),
            (None, Some(wanted)) => (wanted.iter().cloned().filter_map(without_directives).collect(), Vec::new()),
            (Some(live), Some(wanted)) => {
                let merged = merge(live.clone(), wanted.clone(), &member, budget)?;
                // An element that the patch deletes loses its position, should the patch add it again.
                let gone: BTreeSet<String> =
                    wanted.iter().filter(|own| is_deletion(own)).map(|own| lookup_key(own, member.merge_key)).collect();
                (
                    merged,
                    live.iter().filter(|own| !gone.contains(&lookup_key(own, member.merge_key))).cloned().collect(),
                )
            }
        };
        let (listed, others) = partition(merged, &order, member.merge_key)?;
        let ordered = put_in_order(listed, others, &order, &live, member.merge_key, kind?)?;
        original.insert(field.into(), Value::Array(ordered));
        patch.remove(field);
    }
    Ok(())
}

fn list_of(value: Option<&Value>) -> Result<Option<&Vec<Value>>, Error> {
    match value {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(bad_type(LIST, other)),
    }
}

fn bad_type(expected: &'static str, received: &Value) -> Error {
    Error::BadType { expected, received: type_name(received) }
}

/// Whether the patch's elements appear in the wanted order, apart from those with a directive.
fn check_order(patch: &[Value], order: &[Value], merge_key: &str) -> Result<(), Error> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let kept: Vec<&Value> = if merge_key.is_empty() { patch.iter().collect() } else { not_deleted(patch)? };
    let (mut at, mut wanted) = (0, 0);
    while at < kept.len() && wanted < order.len() {
        if kept[at].get(DIRECTIVE).is_some() {
            at += 1;
            continue;
        }
        if same_key(kept[at], &order[wanted], merge_key)? {
            at += 1;
        }
        wanted += 1;
    }
    if at < kept.len() && wanted >= order.len() {
        return Err(Error::OrderMismatch {
            patch: Printed::List(patch).to_string(),
            order: Printed::List(order).to_string(),
        });
    }
    Ok(())
}

fn not_deleted(list: &[Value]) -> Result<Vec<&Value>, Error> {
    if let Some(scalar) = list.iter().find(|value| !value.is_object()) {
        return Err(bad_type(MAP, scalar));
    }
    Ok(list.iter().filter(|value| !is_deletion(value)).collect())
}

fn is_deletion(value: &Value) -> bool {
    value.get(DIRECTIVE).and_then(Value::as_str) == Some("delete")
}

fn same_key(left: &Value, right: &Value, merge_key: &str) -> Result<bool, Error> {
    if merge_key.is_empty() {
        return Ok(left == right);
    }
    Ok(key_of(left, merge_key)? == key_of(right, merge_key)?)
}

/// The value of an element's merge key.
fn key_of<'a>(element: &'a Value, merge_key: &str) -> Result<&'a Value, Error> {
    let map = element.as_object().ok_or_else(|| bad_type(MAP, element))?;
    map.get(merge_key).ok_or_else(|| no_merge_key(map, merge_key))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Elements {
    Scalars,
    Maps,
}

/// What both lists consist of.
fn element_kind(original: &[Value], patch: &[Value]) -> Result<Elements, Error> {
    let mut elements = original.iter().chain(patch);
    let first = elements.next().ok_or(Error::NoElements)?;
    if first.is_array() {
        return Err(Error::ListOfLists);
    }
    // A null has no type in Go: upstream cannot name such a list either.
    if first.is_null() || elements.any(|element| type_name(element) != type_name(first)) {
        let lists = format!("[{} {}]", Printed::List(original), Printed::List(patch));
        return Err(Error::MixedList(lists));
    }
    Ok(if first.is_object() { Elements::Maps } else { Elements::Scalars })
}

/// An element's merge key as a key for lookups; Go's nil where it has none.
fn lookup_key(element: &Value, merge_key: &str) -> String {
    element.get(merge_key).map_or_else(|| "null".into(), text)
}

/// A value as a key for lookups; integers and floats differ, as they do in Go.
fn text(value: &Value) -> String {
    value.to_string()
}

fn merge_scalars(original: Vec<Value>, patch: Vec<Value>, merge_key: &str) -> Result<Vec<Value>, Error> {
    let mut seen = BTreeSet::new();
    let merged = original.iter().chain(&patch).filter(|value| seen.insert(text(value))).cloned().collect();
    let (listed, others) = partition(merged, &patch, merge_key)?;
    put_in_order(listed, others, &patch, &original, merge_key, Elements::Scalars)
}

fn merge_maps(
    original: Vec<Value>,
    patch: Vec<Value>,
    member: &Member<'_>,
    budget: &mut Budget,
) -> Result<Vec<Value>, Error> {
    let merge_key = member.merge_key;
    if merge_key.is_empty() {
        return Err(Error::ListWithoutMergeKey(lookup::kind(member.ty)));
    }
    let (live, patch) = apply_directives(original, patch, merge_key)?;
    let mut merged = live.clone();
    // The first element of a key is the one that is merged.
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (at, element) in merged.iter().enumerate() {
        if let Some(key) = element.get(merge_key) {
            places.entry(text(key)).or_insert(at);
        }
    }
    for element in &patch {
        let key = text(key_of(element, merge_key)?);
        match places.get(&key) {
            Some(&at) => {
                let (Value::Object(old), Value::Object(new)) = (merged[at].take(), element.clone()) else {
                    return Err(bad_type(MAP, element));
                };
                merged[at] = Value::Object(merge_map(old, new, member.ty, budget)?);
            }
            None => {
                places.insert(key, merged.len());
                merged.push(element.clone());
            }
        }
    }
    let (listed, others) = partition(merged, &patch, merge_key)?;
    put_in_order(listed, others, &patch, &live, merge_key, Elements::Maps)
}

/// Carries out the `$patch` of the patch's elements; returns the object's list and the patch's without them.
fn apply_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut ordinary = Vec::with_capacity(patch.len());
    let mut deleted = BTreeSet::new();
    let mut replace = false;
    for element in patch {
        match element.get(DIRECTIVE).map(Value::as_str) {
            None => ordinary.push(element),
            Some(Some("delete")) => {
                deleted.insert(text(key_of(&element, merge_key)?));
            }
            Some(Some("replace")) => replace = true,
            Some(Some("merge")) => return Err(Error::MergeDirectiveInList),
            Some(_) => return Err(element.as_object().map_or(Error::NotAnObject, unknown_directive)),
        }
    }
    if replace {
        return Ok((ordinary, Vec::new()));
    }
    original.retain(|element| !element.get(merge_key).is_some_and(|key| deleted.contains(&text(key))));
    Ok((original, ordinary))
}

/// Splits a merged list into the elements that another list has, and the others.
fn partition(merged: Vec<Value>, by: &[Value], merge_key: &str) -> Result<(Vec<Value>, Vec<Value>), Error> {
    if merge_key.is_empty() {
        let listed: BTreeSet<String> = by.iter().map(text).collect();
        return Ok(merged.into_iter().partition(|value| listed.contains(&text(value))));
    }
    let listed: BTreeSet<String> = by.iter().filter_map(|element| element.get(merge_key)).map(text).collect();
    for element in &merged {
        key_of(element, merge_key)?;
    }
    let is_listed = |element: &Value| element.get(merge_key).is_some_and(|key| listed.contains(&text(key)));
    Ok(merged.into_iter().partition(is_listed))
}

/// Sorts the patch's elements by the patch and the others by the object, and merges both, preferring the object's
/// order.
fn put_in_order(
    listed: Vec<Value>,
    others: Vec<Value>,
    patch_order: &[Value],
    live_order: &[Value],
    merge_key: &str,
    kind: Elements,
) -> Result<Vec<Value>, Error> {
    let listed = sort(listed, patch_order, merge_key, kind)?;
    let others = sort(others, live_order, merge_key, kind)?;
    let live = Places::new(live_order, merge_key, kind);
    let (mut listed, mut others) = (listed.into_iter().peekable(), others.into_iter().peekable());
    let mut all = Vec::with_capacity(listed.len() + others.len());
    loop {
        let other_first = match (others.peek(), listed.peek()) {
            (None, None) => return Ok(all),
            (None, Some(_)) => false,
            (Some(_), None) => true,
            (Some(other), Some(own)) => {
                matches!((live.of(other), live.of(own)), (Some(other), Some(own)) if other < own)
            }
        };
        all.extend(if other_first { others.next() } else { listed.next() });
    }
}

/// The positions of elements in a list, by merge key for maps.
struct Places<'a> {
    places: BTreeMap<String, usize>,
    merge_key: Option<&'a str>,
}

impl<'a> Places<'a> {
    fn new(list: &[Value], merge_key: &'a str, kind: Elements) -> Self {
        let mut order = Places { places: BTreeMap::new(), merge_key: (kind == Elements::Maps).then_some(merge_key) };
        for (at, element) in list.iter().enumerate() {
            let key = order.key(element);
            order.places.entry(key).or_insert(at);
        }
        order
    }

    fn key(&self, element: &Value) -> String {
        match self.merge_key {
            Some(merge_key) => lookup_key(element, merge_key),
            None => text(element),
        }
    }

    fn of(&self, element: &Value) -> Option<usize> {
        self.places.get(&self.key(element)).copied()
    }
}

/// Sorts a list by another one; deletions go last.
fn sort(list: Vec<Value>, order: &[Value], merge_key: &str, kind: Elements) -> Result<Vec<Value>, Error> {
    let mut deletions = Vec::new();
    let mut list = list;
    if kind == Elements::Maps {
        for element in list.iter().chain(order) {
            key_of(element, merge_key)?;
        }
        (deletions, list) = list.into_iter().partition(is_deletion);
    }
    let places = Places::new(order, merge_key, kind);
    let placed: Vec<(Option<usize>, Value)> = list.into_iter().map(|value| (places.of(&value), value)).collect();
    Ok(insertion_sort(placed).into_iter().chain(deletions).collect())
}

/// Sorts as upstream's insertion sort does, whose comparison calls an element without a place smaller than any
/// neighbour, and any element smaller than a neighbour without a place.
///
/// So an element without a place moves to the front. One with a place moves behind the last element whose place is not
/// greater, past all without a place that followed that one until now.
fn insertion_sort<T>(elements: Vec<(Option<usize>, T)>) -> Vec<T> {
    let mut front = VecDeque::new();
    let mut sorted: BTreeMap<(usize, usize), (T, VecDeque<T>)> = BTreeMap::new();
    for (at, (place, element)) in elements.into_iter().enumerate() {
        let Some(place) = place else {
            front.push_front(element);
            continue;
        };
        let before = sorted.range_mut(..(place, at)).next_back();
        let followers = before.map_or_else(|| std::mem::take(&mut front), |(_, (_, own))| std::mem::take(own));
        sorted.insert((place, at), (element, followers));
    }
    let placed = sorted.into_values().flat_map(|(element, followers)| std::iter::once(element).chain(followers));
    front.into_iter().chain(placed).collect()
}

#[cfg(test)]
mod tests {
    use super::insertion_sort;

    #[test]
    fn elements_without_a_place_end_where_an_insertion_sort_leaves_them() {
        // Every list of five elements over two places, three places and none.
        for number in 0..4_usize.pow(5) {
            let place = |at: u32| (number / 4_usize.pow(at) % 4).checked_sub(1);
            let elements: Vec<(Option<usize>, u32)> = (0..5).map(|at| (place(at), at)).collect();
            let mut slow = elements.clone();
            for at in 1..slow.len() {
                let mut to = at;
                while to > 0 && slow[to].0.zip(slow[to - 1].0).is_none_or(|(own, before)| own < before) {
                    slow.swap(to, to - 1);
                    to -= 1;
                }
            }
            let slow: Vec<u32> = slow.into_iter().map(|(_, element)| element).collect();
            assert_eq!(insertion_sort(elements.clone()), slow, "{elements:?}");
        }
    }
}
