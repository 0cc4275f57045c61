//! Quantities and versions.

use std::cmp::Ordering;
use std::sync::Arc;

use bayplan_model::quantity::Quantity;
use semver::Version;

use crate::Error;
use crate::value::Value;

/// Reads a text.
pub(super) fn of_text(name: &str, text: &str, rest: &[Value]) -> Result<Value, Error> {
    let normalize = matches!(rest, [Value::Bool(true)]);
    match name {
        "quantity" => Quantity::parse(text)
            .map(|quantity| Value::Quantity(Arc::new(quantity)))
            .map_err(|error| Error::runtime(error.to_string())),
        "isQuantity" => Ok(Value::Bool(Quantity::parse(text).is_ok())),
        "semver" => version(text, normalize),
        _ => Ok(Value::Bool(version(text, normalize).is_ok())),
    }
}

fn version(text: &str, normalize: bool) -> Result<Value, Error> {
    let normal = || {
        let text = text.trim_start_matches(['v', 'V']);
        let end = text.find(['-', '+']).unwrap_or(text.len());
        let mut parts: Vec<String> = text[..end].split('.').map(|part| trim_zeros(part).to_owned()).collect();
        parts.resize(parts.len().max(3), "0".to_owned());
        format!("{}{}", parts.join("."), &text[end..])
    };
    let parsed = if normalize { Version::parse(&normal()) } else { Version::parse(text) };
    parsed
        .map(|version| Value::Semver(Arc::new(version)))
        .map_err(|error| Error::runtime(no_version(text).unwrap_or_else(|| error.to_string())))
}

/// Why a text is no version, in upstream's words.
fn no_version(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("Version string empty".into());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, _] = parts.as_slice() else { return Some("No Major.Minor.Patch elements found".into()) };
    for (name, part) in [("major", major), ("minor", minor)] {
        if !part.bytes().all(|b| b.is_ascii_digit()) || part.is_empty() {
            return Some(format!("Invalid character(s) found in {name} number {part:?}"));
        }
    }
    None
}

/// A number without leading zeros; something else unchanged.
fn trim_zeros(part: &str) -> &str {
    let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match part.trim_start_matches('0') {
        "" if digits => "0",
        trimmed if digits => trimmed,
        _ => part,
    }
}

fn order(name: &str, order: Ordering) -> Value {
    match name {
        "isGreaterThan" => Value::Bool(order.is_gt()),
        "isLessThan" => Value::Bool(order.is_lt()),
        _ => Value::Int(order as i64),
    }
}

/// Functions of a quantity.
pub(super) fn quantity(name: &str, args: &[Value]) -> Result<Value, Error> {
    let number = |value: &Value| match value {
        Value::Quantity(value) => Some((**value).clone()),
        Value::Int(value) => Some(Quantity::new(*value, bayplan_model::quantity::Format::DecimalSI)),
        _ => None,
    };
    match (name, args) {
        ("sign", [Value::Quantity(value)]) => Ok(Value::Int(value.sign().into())),
        ("isInteger", [Value::Quantity(value)]) => Ok(Value::Bool(value.as_i64().is_some())),
        ("asInteger", [Value::Quantity(value)]) => {
            value.as_i64().map(Value::Int).ok_or_else(|| Error::runtime("cannot convert value to integer"))
        }
        ("asApproximateFloat", [Value::Quantity(value)]) => Ok(Value::Double(value.approximate_f64())),
        ("isGreaterThan" | "isLessThan" | "compareTo", [Value::Quantity(a), Value::Quantity(b)]) => {
            Ok(order(name, a.cmp(b)))
        }
        ("add" | "sub", [Value::Quantity(a), b]) => {
            let mut result = (**a).clone();
            let other = number(b).ok_or_else(Error::no_such_overload)?;
            if name == "add" {
                result.add(&other)
            } else {
                result.sub(&other)
            }
            Ok(Value::Quantity(Arc::new(result)))
        }
        _ => Err(Error::no_such_overload()),
    }
}

/// Functions of a version.
pub(super) fn semver(name: &str, args: &[Value]) -> Result<Value, Error> {
    let part = |part: u64| Ok(Value::Int(i64::try_from(part).unwrap_or(i64::MAX)));
    match (name, args) {
        ("major", [Value::Semver(version)]) => part(version.major),
        ("minor", [Value::Semver(version)]) => part(version.minor),
        ("patch", [Value::Semver(version)]) => part(version.patch),
        ("isGreaterThan" | "isLessThan" | "compareTo", [Value::Semver(a), Value::Semver(b)]) => {
            Ok(order(name, a.cmp_precedence(b)))
        }
        _ => Err(Error::no_such_overload()),
    }
}
