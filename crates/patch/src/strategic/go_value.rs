//! JSON values as Go's `fmt` prints them, because upstream's messages contain them.

use std::fmt;

use serde_json::{Map, Number, Value};

/// A value to print as `%v` does.
pub(super) enum Printed<'a> {
    Value(&'a Value),
    Map(&'a Map<String, Value>),
    List(&'a [Value]),
}

impl fmt::Display for Printed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Printed::Value(Value::Null) => formatter.write_str("<nil>"),
            Printed::Value(Value::Bool(value)) => value.fmt(formatter),
            Printed::Value(Value::Number(number)) => formatter.write_str(&print_number(number)),
            Printed::Value(Value::String(text)) => formatter.write_str(text),
            Printed::Value(Value::Array(list)) => Printed::List(list).fmt(formatter),
            Printed::Value(Value::Object(map)) => Printed::Map(map).fmt(formatter),
            Printed::List(list) => {
                let items: Vec<String> = list.iter().map(|value| Printed::Value(value).to_string()).collect();
                write!(formatter, "[{}]", items.join(" "))
            }
            Printed::Map(map) => {
                let mut entries: Vec<(&String, &Value)> = map.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                let items: Vec<String> =
                    entries.iter().map(|(key, value)| format!("{key}:{}", Printed::Value(value))).collect();
                write!(formatter, "map[{}]", items.join(" "))
            }
        }
    }
}

/// A value as Go's `%s` prints it: text as it is, and `%!s(…)` for anything else.
pub(super) fn as_string(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "%!s(<nil>)".into(),
        Value::Bool(value) => format!("%!s(bool={value})"),
        Value::Number(number) => format!("%!s({}={})", type_name(value), print_number(number)),
        Value::Array(list) => format!("[{}]", list.iter().map(as_string).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let items: Vec<String> = entries.iter().map(|(key, value)| format!("{key}:{}", as_string(value))).collect();
            format!("map[{}]", items.join(" "))
        }
    }
}

/// Go's name of a decoded value's type.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Integers as they are; floats in the shortest form, with an exponent below 1e-4 and from 1e21 on.
fn print_number(number: &Number) -> String {
    if let Some(integer) = number.as_i64() {
        return integer.to_string();
    }
    let float = number.as_f64().unwrap_or_default();
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..21).contains(&exponent) {
        return float.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}
