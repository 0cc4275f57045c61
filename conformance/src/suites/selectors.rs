//! Quantities, int-or-percent values, label and field selectors.

use std::collections::BTreeMap;

use bayplan_model::{
    field_selector::FieldSelector,
    int_or_string::IntOrString,
    label_selector::{LabelSelector, Selector},
    quantity::{Format, Quantity, scale},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Mismatch, Outcome};
use crate::difference::compare;

const SCALES: [(&str, i32); 7] = [
    ("nano", scale::NANO),
    ("micro", scale::MICRO),
    ("milli", scale::MILLI),
    ("unit", scale::UNIT),
    ("kilo", scale::KILO),
    ("mega", scale::MEGA),
    ("giga", scale::GIGA),
];

pub(super) fn check(case: &Value) -> Outcome {
    let (input, mut expected) = (&case["input"], case["expect"].clone());
    let actual = match case["type"].as_str() {
        Some("quantity") => {
            let mut actual = quantity(&Deserialize::deserialize(input)?, expected.get("mul3").is_some());
            drop_inner_workings(&mut expected, &mut actual);
            actual
        }
        Some("intOrString") => int_or_string(&Deserialize::deserialize(input)?),
        Some("labelSelector") => label_selector(&Deserialize::deserialize(input)?),
        Some("fieldSelector") => field_selector(&Deserialize::deserialize(input)?),
        other => return Err(Mismatch::Unreadable(format!("unknown type {other:?}"))),
    };
    Ok(compare(&expected, &actual)?)
}

#[derive(Deserialize)]
struct Operands {
    a: String,
    b: Option<String>,
}

fn quantity(input: &Operands, with_unary: bool) -> Value {
    let a = match Quantity::parse(&input.a) {
        Ok(a) => a,
        Err(error) => return json!({"error": error.to_string()}),
    };
    let mut answer = Map::new();
    answer.insert("a".into(), describe(&a));
    let scaled = SCALES.iter().map(|(name, scale)| (name.to_string(), scaled_value(&a, *scale)));
    answer.insert("scaled".into(), Value::Object(scaled.collect()));
    let rounded = SCALES[2..5].iter().map(|(name, scale)| {
        let mut rounded = a.clone();
        let exact = rounded.round_up(*scale);
        (name.to_string(), json!({"exact": exact, "string": printed(&rounded)}))
    });
    answer.insert("roundUp".into(), Value::Object(rounded.collect()));
    if with_unary {
        let mut negated = a.clone();
        negated.neg();
        answer.insert("neg".into(), describe(&negated));
        let mut tripled = a.clone();
        let ok = tripled.mul(3);
        answer.insert("mul3".into(), json!({"ok": ok, "value": describe(&tripled)}));
        answer.insert("cmpInt64_1000".into(), json!(a.cmp_i64(1000) as i8));
    }
    match input.b.as_deref().map(Quantity::parse) {
        None => {}
        Some(Err(error)) => {
            answer.insert("bError".into(), json!(error.to_string()));
        }
        Some(Ok(b)) => {
            answer.insert("b".into(), describe(&b));
            let (mut sum, mut difference) = (a.clone(), a.clone());
            sum.add(&b);
            difference.sub(&b);
            answer.insert("add".into(), describe(&sum));
            answer.insert("sub".into(), describe(&difference));
            answer.insert("cmp".into(), json!(a.cmp(&b) as i8));
            answer.insert("equal".into(), json!(a == b));
        }
    }
    Value::Object(answer)
}

fn describe(quantity: &Quantity) -> Value {
    json!({
        "string": printed(quantity),
        "json": printed(quantity),
        "format": quantity.format().as_str(),
        "sign": quantity.sign(),
        "isZero": quantity.is_zero(),
        "value": scaled_value(quantity, scale::UNIT),
        "milliValue": scaled_value(quantity, scale::MILLI),
        "float": quantity.approximate_f64(),
    })
}

/// The quantity as it goes into JSON; null where it is too large for its format: v1.36 then prints the mantissa alone
/// and loses the magnitude ("1000E" as "1"; mended later), we print an exponent.
fn printed(quantity: &Quantity) -> Value {
    let text = quantity.to_string();
    let lost = quantity.format() == Format::DecimalSI && text.contains('e');
    if lost { Value::Null } else { json!(quantity) }
}

/// The value as text; null where it leaves 64 bits, and where upstream leaves them on the way: it cuts the integer
/// that holds a negative amount to 64 bits before dividing.
fn scaled_value(quantity: &Quantity, scale: i32) -> Value {
    let cut = quantity.sign() < 0 && !quantity.is_held_in_64_bits();
    match quantity.checked_scaled_value(scale) {
        Some(value) if !cut => json!(value.to_string()),
        _ => Value::Null,
    }
}

/// Takes out of both sides what does not count: upstream's choice of representation, and what it loses beyond 64 bits.
fn drop_inner_workings(expected: &mut Value, actual: &mut Value) {
    let (Value::Object(expected), Value::Object(actual)) = (expected, actual) else { return };
    for inner in ["asInt64", "asInt64Ok"] {
        expected.remove(inner);
    }
    actual.retain(|key, value| !value.is_null() || expected.remove(key).is_none());
    for (key, value) in actual {
        if let Some(expected) = expected.get_mut(key) {
            drop_inner_workings(expected, value);
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Share {
    value: IntOrString,
    total: i64,
    round_up: bool,
}

fn int_or_string(input: &Share) -> Value {
    let mut answer = json!({"string": input.value.to_string(), "intValue": input.value.int_value()});
    match input.value.scaled(input.total, input.round_up) {
        Ok(scaled) => answer["scaled"] = json!(scaled),
        Err(error) => answer["error"] = json!(error.to_string()),
    }
    answer
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LabelQuestion {
    selector: Option<String>,
    label_selector: Option<LabelSelector>,
    labels: Vec<BTreeMap<String, String>>,
}

fn label_selector(input: &LabelQuestion) -> Value {
    let selector = match &input.selector {
        Some(text) => Selector::parse(text),
        None => Selector::of(input.label_selector.as_ref()),
    };
    let selector = match selector {
        Ok(selector) => selector,
        Err(error) => return json!({"error": error.to_string()}),
    };
    let requirements = selector.requirements().iter().map(|requirement| {
        let mut values = requirement.values().to_vec();
        values.sort();
        values.dedup();
        json!({"key": requirement.key(), "op": requirement.operator().as_str(), "values": values})
    });
    json!({
        "string": selector.to_string(),
        "requirements": null_if_empty(requirements.collect()),
        "empty": selector.is_everything(),
        "selectable": !selector.is_nothing(),
        "matches": input.labels.iter().map(|labels| selector.matches(labels)).collect::<Vec<bool>>(),
    })
}

#[derive(Deserialize)]
struct FieldQuestion {
    selector: String,
    fields: Vec<BTreeMap<String, String>>,
}

fn field_selector(input: &FieldQuestion) -> Value {
    let selector = match FieldSelector::parse(&input.selector) {
        Ok(selector) => selector,
        Err(error) => return json!({"error": error.to_string()}),
    };
    let requirements = selector.requirements().iter().map(|requirement| {
        json!({"field": requirement.field, "op": requirement.operator.as_str(), "value": requirement.value})
    });
    let matches =
        |fields: &BTreeMap<String, String>| selector.matches(|field| fields.get(field).map_or("", String::as_str));
    json!({
        "string": selector.to_string(),
        "requirements": null_if_empty(requirements.collect()),
        "empty": selector.is_everything(),
        "matches": input.fields.iter().map(matches).collect::<Vec<bool>>(),
    })
}

/// Go writes an empty list that was never filled as null.
fn null_if_empty(list: Vec<Value>) -> Value {
    if list.is_empty() { Value::Null } else { Value::Array(list) }
}
