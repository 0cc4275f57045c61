//! Compares a state with the recorded one, by the rules of the recordings.
//!
//! - Objects of a kind, events, endpoints of a slice, subsets of Endpoints with their addresses and ports, and the
//!   volumes of a pod are sets; equal objects are recorded once, with their number.
//! - A path named `unstable` may have any value, or none. `newEvents` alone allows further events, `newEvents[i]` lets
//!   that event be missing.
//! - The annotation with the time that triggered a change of endpoints may be there or not.

use serde_json::{Value, json};

use crate::difference::{Difference, compare, difference};

/// Stands for any value, and for none.
const ANY: &str = "$ANY";

/// Marks an event that may be missing.
const OPTIONAL: &str = "$OPTIONAL";

const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Lists inside objects that are sets.
const SETS: [&str; 6] = ["endpoints", "subsets", "addresses", "notReadyAddresses", "ports", "volumes"];

/// Compares the state after a step with the recorded one.
pub(super) fn check(mut expected: Value, mut actual: Value, unstable: &[String]) -> Result<(), Difference> {
    let further_events = unstable.iter().any(|path| path == "newEvents");
    for path in unstable.iter().filter(|path| *path != "newEvents") {
        accept(path, &mut expected);
    }
    for state in [&mut expected, &mut actual] {
        without_trigger_time(state);
    }
    let fields = expected.as_object().into_iter().flatten();
    for (field, expected) in fields {
        let (path, actual) = (format!(".{field}"), &actual[field]);
        match (expected, actual) {
            (Value::Array(expected), Value::Array(actual)) => {
                same_set(&path, &expand(expected), actual, field == "newEvents" && further_events)?;
            }
            _ => same(&path, expected, Some(actual))?,
        }
    }
    Ok(())
}

/// Each object as often as it was counted. Events keep their number.
fn expand(recorded: &[Value]) -> Vec<Value> {
    let mut all = Vec::new();
    for item in recorded {
        let count = item.get("count").and_then(Value::as_u64).filter(|_| item.get("metadata").is_some());
        let mut item = item.clone();
        if let (Some(_), Some(map)) = (count, item.as_object_mut()) {
            map.remove("count");
        }
        all.extend((0..count.unwrap_or(1)).map(|_| item.clone()));
    }
    all
}

/// Lets the value at a path (`pods[0].spec.nodeName`) be any.
fn accept(path: &str, expected: &mut Value) {
    let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
    let Some((parent, field)) = pointer.rsplit_once('/') else { return };
    match expected.pointer_mut(parent) {
        Some(Value::Object(map)) => drop(map.insert(field.into(), json!(ANY))),
        Some(Value::Array(items)) => match field.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
            Some(Value::Object(event)) if parent == "/newEvents" => drop(event.insert(OPTIONAL.into(), json!(true))),
            Some(item) => *item = json!(ANY),
            None => {}
        },
        _ => {}
    }
}

fn without_trigger_time(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(without_trigger_time),
        Value::Object(map) => {
            if let Some(Value::Object(annotations)) = map.get_mut("annotations") {
                let removed = annotations.remove(TRIGGER_TIME).is_some();
                if removed && annotations.is_empty() {
                    map.remove("annotations");
                }
            }
            map.values_mut().for_each(without_trigger_time);
        }
        _ => {}
    }
}

fn same(path: &str, expected: &Value, actual: Option<&Value>) -> Result<(), Difference> {
    if expected == ANY {
        return Ok(());
    }
    match (expected, actual) {
        (Value::Object(left), Some(Value::Object(right))) => {
            let mut fields: Vec<&String> = left.keys().chain(right.keys()).collect();
            fields.sort();
            fields.dedup();
            for field in fields.into_iter().filter(|field| *field != OPTIONAL) {
                let path = format!("{path}.{field}");
                match (left.get(field), right.get(field)) {
                    (Some(Value::Array(left)), Some(Value::Array(right))) if SETS.contains(&field.as_str()) => {
                        same_set(&path, left, right, false)?;
                    }
                    (Some(left), right) => same(&path, left, right)?,
                    (None, right) => return Err(difference(&path, None, right)),
                }
            }
            Ok(())
        }
        (Value::Array(left), Some(Value::Array(right))) => {
            for at in 0..left.len().max(right.len()) {
                let path = format!("{path}[{at}]");
                match left.get(at) {
                    Some(left) => same(&path, left, right.get(at))?,
                    None => return Err(difference(&path, None, right.get(at))),
                }
            }
            Ok(())
        }
        (expected, Some(actual)) => {
            compare(expected, actual).map_err(|found| Difference { path: path.into(), ..found })
        }
        (expected, None) => Err(difference(path, Some(expected), None)),
    }
}

/// Finds an actual element for each expected one; those that leave the least open choose first.
fn same_set(path: &str, expected: &[Value], actual: &[Value], further: bool) -> Result<(), Difference> {
    let mut order: Vec<usize> = (0..expected.len()).collect();
    order.sort_by_key(|at| expected[*at].to_string().matches(ANY).count());
    let mut left: Vec<&Value> = actual.iter().collect();
    let mut missing = Vec::new();
    for at in order {
        match left.iter().position(|item| same("", &expected[at], Some(item)).is_ok()) {
            Some(found) => drop(left.remove(found)),
            None if expected[at].get(OPTIONAL).is_some() => {}
            None => missing.push(at),
        }
    }
    missing.sort_unstable();
    if let Some(at) = missing.first() {
        let path = format!("{path}[{at}]");
        let wanted = &expected[*at];
        let alike = left.iter().find(|item| identity(item) == identity(wanted)).or(left.first());
        return match alike {
            Some(alike) => same(&path, wanted, Some(alike)),
            None => Err(difference(&path, Some(wanted), None)),
        };
    }
    match left.first() {
        Some(item) if !further => Err(difference(&format!("{path}[{}]", expected.len()), None, Some(item))),
        _ => Ok(()),
    }
}

/// What tells an element of a set from others.
fn identity(item: &Value) -> Value {
    match item.get("metadata") {
        Some(metadata) => metadata["name"].clone(),
        None => json!([item["name"], item["reason"], item["addresses"], item["ip"]]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Value {
        let slice = json!({
            "metadata": {"name": "web-$R", "annotations": {TRIGGER_TIME: "$TIME"}},
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}],
        });
        let pod = json!({
            "metadata": {"name": "work-$R"}, "count": 2,
            "spec": {"containers": [{"name": "a"}, {"name": "b"}], "nodeName": "n1"},
            "status": {"phase": "Running"},
        });
        let event = |reason: &str, count: i64| json!({"name": "work", "reason": reason, "count": count});
        json!({
            "action": {"status": 200, "affected": 2},
            "pods": [pod],
            "endpointSlices": [slice],
            "newEvents": [event("Created", 2), event("Deleted", 1)],
        })
    }

    /// What was recorded, as a cluster shows it: objects one by one, sets in another order.
    fn shown() -> Value {
        let mut state = recorded();
        let mut pod = state["pods"][0].clone();
        pod.as_object_mut().unwrap().remove("count");
        state["pods"] = json!([pod, pod]);
        state["endpointSlices"][0]["endpoints"].as_array_mut().unwrap().reverse();
        state["newEvents"].as_array_mut().unwrap().reverse();
        state["endpointSlices"][0]["metadata"].as_object_mut().unwrap().remove("annotations");
        state
    }

    /// Where a planted difference is found.
    fn found(unstable: &[&str], plant: impl Fn(&mut Value)) -> Option<String> {
        let mut state = shown();
        plant(&mut state);
        let unstable: Vec<String> = unstable.iter().map(ToString::to_string).collect();
        check(recorded(), state, &unstable).err().map(|difference| difference.path)
    }

    fn event(reason: &str) -> Value {
        json!({"name": "work", "reason": reason, "count": 1})
    }

    #[test]
    fn what_is_equal_by_the_rules_is_equal() {
        assert_eq!(found(&[], |_| {}), None);
        assert_eq!(found(&["pods[0].spec.nodeName"], |state| state["pods"][1]["spec"]["nodeName"] = json!("n2")), None);
        assert_eq!(found(&["newEvents"], |state| state["newEvents"].as_array_mut().unwrap().push(event("More"))), None);
        assert_eq!(found(&["newEvents[1]"], |state| drop(state["newEvents"].as_array_mut().unwrap().remove(0))), None);
        assert_eq!(found(&["action.affected"], |state| state["action"]["affected"] = json!(3)), None);
    }

    #[test]
    fn every_planted_difference_is_found() {
        type Plant = fn(&mut Value);
        let plants: [(&str, &[&str], Plant); 12] = [
            (".action.status", &[], |state| state["action"]["status"] = json!(409)),
            (".pods[0].status.phase", &[], |state| state["pods"][0]["status"]["phase"] = json!("Failed")),
            (".pods[0].spec.containers[0].name", &[], |state| {
                state["pods"][0]["spec"]["containers"].as_array_mut().unwrap().reverse();
            }),
            (".pods[0].metadata.labels", &[], |state| state["pods"][1]["metadata"]["labels"] = json!({"a": "b"})),
            (".pods[1]", &[], |state| drop(state["pods"].as_array_mut().unwrap().pop())),
            (".pods[2]", &[], |state| {
                let pod = state["pods"][0].clone();
                state["pods"].as_array_mut().unwrap().push(pod);
            }),
            (".endpointSlices[0].endpoints[1].addresses[0]", &[], |state| {
                state["endpointSlices"][0]["endpoints"][0]["addresses"] = json!(["10.0.0.3"]);
            }),
            (".newEvents[0].count", &[], |state| state["newEvents"][1]["count"] = json!(3)),
            (".newEvents[1]", &["newEvents"], |state| drop(state["newEvents"].as_array_mut().unwrap().remove(0))),
            (".newEvents[2]", &[], |state| state["newEvents"].as_array_mut().unwrap().push(event("More"))),
            (".newEvents[0]", &["newEvents[1]"], |state| drop(state["newEvents"].as_array_mut().unwrap().remove(1))),
            (".pods[0].status.phase", &["pods[0].spec.nodeName"], |state| {
                state["pods"][0]["status"]["phase"] = json!("Failed");
            }),
        ];
        for (path, unstable, plant) in plants {
            // The two pods are alike, so that either may be the one that is left over.
            let found = found(unstable, plant).map(|path| path.replace(".pods[1].", ".pods[0]."));
            assert_eq!(found.as_deref(), Some(path), "{unstable:?}");
        }
    }
}
