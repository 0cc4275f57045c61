//! Merges what is applied into an object: the applied side wins, nothing is removed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::compare::is_empty;
use super::element;
use super::shape::{Kind, Shape};

/// The live value with the applied one merged into it. The error is a path and a text.
pub(crate) fn merge(live: Value, applied: &Value, shape: Shape) -> Result<Value, String> {
    if shape.is_leaf() || is_empty(&live) || is_empty(applied) && matches!(live, Value::Null) {
        return Ok(applied.clone());
    }
    match (shape.kind, live, applied) {
        (Kind::Struct(_) | Kind::Map(_) | Kind::Any, Value::Object(live), Value::Object(applied)) => {
            maps(live, applied, shape).map(Value::Object)
        }
        (Kind::List { .. }, Value::Array(live), Value::Array(applied)) => lists(live, applied, shape).map(Value::Array),
        // Null in place of a list or map that is owned by part has no parts.
        (Kind::Struct(_) | Kind::Map(_), live @ Value::Object(_), Value::Null) => Ok(live),
        (Kind::List { .. }, live @ Value::Array(_), Value::Null) => Ok(live),
        (_, _, applied) => Ok(applied.clone()),
    }
}

fn maps(
    mut live: Map<String, Value>,
    applied: &Map<String, Value>,
    shape: Shape,
) -> Result<Map<String, Value>, String> {
    for (name, applied) in applied {
        let merged = match (live.remove(name), shape.child(name)) {
            (Some(live), Some(shape)) => merge(live, applied, shape).map_err(|error| format!(".{name}{error}"))?,
            _ => applied.clone(),
        };
        live.insert(name.clone(), merged);
    }
    Ok(live)
}

/// Merges lists by item. The order is that of the applied list for its items; those that only the live list has stay
/// near their neighbours. Upstream's algorithm.
fn lists(live: Vec<Value>, applied: &[Value], shape: Shape) -> Result<Vec<Value>, String> {
    let Kind::List { element, keys } = shape.kind else { return Ok(live) };
    let item_shape = element::item_shape(element);
    let indexed = |items: &[Value]| -> Result<Vec<String>, String> {
        let elements = items.iter().enumerate().map(|(index, item)| {
            element::of_item(item, element, keys).map_err(|error| format!(": element {index}: {error}"))
        });
        elements.collect()
    };
    let (old, new) = (indexed(&live)?, indexed(applied)?);
    let items: BTreeMap<&str, &Value> = new.iter().map(String::as_str).zip(applied).collect();
    let mut known: BTreeMap<&str, Option<usize>> = BTreeMap::new();
    for (at, key) in old.iter().enumerate() {
        // Repeated items are not merged.
        known.entry(key).and_modify(|at| *at = None).or_insert(Some(at));
    }
    let mut live: Vec<Option<Value>> = live.into_iter().map(Some).collect();
    let mut merged = Vec::with_capacity(live.len().max(applied.len()));
    for step in order(&old, &new) {
        match step {
            Step::Live(at) => merged.extend(live[at].take()),
            Step::Merged(key) => {
                let applied = items[key];
                let live = known.get(key).copied().flatten().and_then(|at| live[at].take());
                let item = match live {
                    Some(live) => merge(live, applied, item_shape)?,
                    None => applied.clone(),
                };
                merged.push(item);
            }
        }
    }
    Ok(merged)
}

/// Where the next item of a merged list comes from.
enum Step<'a> {
    /// The live list alone.
    Live(usize),
    /// The applied list, with what the live one has of it.
    Merged(&'a str),
}

fn order<'a>(old: &[String], new: &'a [String]) -> Vec<Step<'a>> {
    let (in_old, in_new): (BTreeSet<&str>, BTreeSet<&str>) =
        (old.iter().map(String::as_str).collect(), new.iter().map(String::as_str).collect());
    let mut shared = new.iter().map(String::as_str).filter(|key| in_old.contains(key));
    let mut next_shared = shared.next();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut steps = Vec::with_capacity(old.len().max(new.len()));
    let (mut l, mut r) = (0, 0);
    while l < old.len() || r < new.len() {
        if l < old.len() && r < new.len() {
            if old[l] == new[r] {
                done.insert(&new[r]);
                steps.push(Step::Merged(&new[r]));
                (l, r) = (l + 1, r + 1);
                next_shared = shared.next();
                continue;
            }
            if in_new.contains(old[l].as_str()) && next_shared.is_some_and(|next| next != old[l]) {
                // Shared, but not the one whose turn it is.
                l += 1;
                continue;
            }
        }
        if l < old.len() {
            if !in_new.contains(old[l].as_str()) {
                steps.push(Step::Live(l));
                l += 1;
                continue;
            }
            if done.contains(old[l].as_str()) {
                l += 1;
            }
        }
        if r < new.len() {
            let key = new[r].as_str();
            done.insert(key);
            steps.push(Step::Merged(key));
            r += 1;
            if next_shared == Some(key) {
                next_shared = shared.next();
            }
        } else if l < old.len() && in_new.contains(old[l].as_str()) && !done.contains(old[l].as_str()) {
            // Every shared item is merged by now; nothing may hold the loop up.
            l += 1;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use bayplan_model::schema::Schema;
    use serde_json::json;

    use super::*;

    fn merged(live: Value, applied: Value) -> Value {
        let spec = Schema::get().named("io.k8s.api.core.v1.PodSpec").unwrap();
        merge(live, &applied, Shape::of_definition(spec)).unwrap()
    }

    #[test]
    fn items_follow_the_applied_order_and_the_others_stay_in_place() {
        let names =
            |names: &[&str]| json!({"containers": names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>()});
        for (live, applied, result) in [
            (vec!["a", "b", "c"], vec!["c", "a"], vec!["b", "c", "a"]),
            (vec!["a", "b"], vec!["a", "b"], vec!["a", "b"]),
            (vec!["a", "b"], vec!["x"], vec!["a", "b", "x"]),
            (vec!["a", "b", "c"], vec!["x", "b"], vec!["a", "x", "b", "c"]),
            (vec![], vec!["x"], vec!["x"]),
            (vec!["a", "a", "b"], vec!["b", "a"], vec!["b", "a"]),
        ] {
            assert_eq!(merged(names(&live), names(&applied)), names(&result), "{live:?} + {applied:?}");
        }
    }

    #[test]
    fn maps_merge_and_atomic_parts_are_replaced() {
        let live = json!({
            "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a"}], "containers": [{"name": "c", "image": "x"}],
        });
        let applied = json!({
            "nodeSelector": {"c": "d"}, "tolerations": [{"key": "b"}], "containers": [{"name": "c", "tty": true}],
        });
        let result = json!({
            "nodeSelector": {"c": "d"}, "tolerations": [{"key": "b"}],
            "containers": [{"name": "c", "image": "x", "tty": true}],
        });
        assert_eq!(merged(live, applied), result);
        assert_eq!(merged(json!({"hostNetwork": true}), json!({"hostNetwork": null})), json!({"hostNetwork": null}));
    }
}
