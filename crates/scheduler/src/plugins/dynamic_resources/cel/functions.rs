//! The functions that expressions may call.

use std::cmp::Ordering;
use std::sync::Arc;

use bayplan_model::quantity::Quantity;
use regex::Regex;
use semver::Version;

use super::parse::{Expression, ExpressionKind};
use super::value::Value;
use super::{Error, networks};

/// Functions without a target.
pub(super) const GLOBAL: [&str; 18] = [
    "ip",
    "isIP",
    "cidr",
    "isCIDR",
    "size",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "dyn",
    "type",
    "quantity",
    "isQuantity",
    "semver",
    "isSemver",
    "matches",
];

/// Functions of a target.
pub(super) const METHODS: [&str; 55] = [
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "containsIP",
    "containsCIDR",
    "ip",
    "prefixLength",
    "masked",
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "lowerAscii",
    "upperAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "join",
    "reverse",
    "find",
    "findAll",
    "isSorted",
    "sum",
    "min",
    "max",
    "slice",
    "flatten",
    "distinct",
    "sort",
    "first",
    "last",
    "sign",
    "isInteger",
    "asInteger",
    "asApproximateFloat",
    "add",
    "sub",
    "isGreaterThan",
    "isLessThan",
    "compareTo",
    "major",
    "minor",
    "patch",
    "hasValue",
    "value",
    "or",
    "orValue",
];

/// Functions with a dotted name.
pub(super) const NAMESPACED: [&str; 10] = [
    "ip.isCanonical",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "math.greatest",
    "math.least",
    "math.abs",
    "optional.of",
    "optional.none",
    "optional.ofNonZeroValue",
];

/// The dotted name of a call whose target is a namespace, not a value.
pub(super) fn namespaced(target: &Expression, function: &str) -> Option<String> {
    match &target.node {
        ExpressionKind::Ident(name) if matches!(name.as_str(), "sets" | "math" | "optional" | "cel") => {
            Some(format!("{name}.{function}"))
        }
        // `ip` is also a common name for a variable.
        ExpressionKind::Ident(name) if name == "ip" && function == "isCanonical" => Some("ip.isCanonical".to_owned()),
        _ => None,
    }
}

/// The cost of reading a value.
pub(super) fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() / 10,
        Value::Bytes(bytes) => bytes.len() / 10,
        Value::List(items) => items.len(),
        Value::Map(map) => map.entries.len(),
        _ => 0,
    }
}

/// Calls a function; the target comes first.
pub(super) fn call(name: &str, args: &[Value]) -> Result<Value, Error> {
    match args {
        [Value::Quantity(_), ..] if !matches!(name, "type" | "dyn" | "string") => quantity(name, args),
        [Value::Semver(_), ..] if !matches!(name, "type" | "dyn" | "string") => semver(name, args),
        [Value::Ip(address), rest @ ..] if !matches!(name, "type" | "dyn" | "string") => {
            networks::of_address(name, *address, rest)
        }
        [Value::Cidr(network), rest @ ..] if !matches!(name, "type" | "dyn" | "string") => {
            networks::of_network(name, *network, rest)
        }
        [Value::Optional(inner), rest @ ..] if !matches!(name, "type" | "dyn") => optional(name, inner, rest),
        [Value::List(items), rest @ ..] if !name.contains('.') => list(name, items, rest),
        _ => other(name, args),
    }
}

fn int(value: usize) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn other(name: &str, args: &[Value]) -> Result<Value, Error> {
    match (name, args) {
        ("dyn", [value]) => Ok(value.clone()),
        ("type", [value]) => Ok(Value::Type(value.type_name())),
        ("size", [Value::Map(map)]) => Ok(int(map.entries.len())),
        ("size", [Value::Bytes(bytes)]) => Ok(int(bytes.len())),
        ("int" | "uint" | "double" | "string" | "bool" | "bytes", [value]) => convert(name, value),
        ("quantity", [Value::String(text)]) => Quantity::parse(text)
            .map(|quantity| Value::Quantity(Arc::new(quantity)))
            .map_err(|error| Error::runtime(error.to_string())),
        ("isQuantity", [Value::String(text)]) => Ok(Value::Bool(Quantity::parse(text).is_ok())),
        ("ip" | "isIP" | "ip.isCanonical" | "cidr" | "isCIDR", [Value::String(text)]) => networks::of_text(name, text),
        ("semver", [Value::String(text)]) => version(text, false),
        ("semver", [Value::String(text), Value::Bool(normalize)]) => version(text, *normalize),
        ("isSemver", [Value::String(text)]) => Ok(Value::Bool(version(text, false).is_ok())),
        ("isSemver", [Value::String(text), Value::Bool(normalize)]) => {
            Ok(Value::Bool(version(text, *normalize).is_ok()))
        }
        ("optional.none", []) => Ok(Value::Optional(None)),
        ("optional.of", [value]) => Ok(Value::Optional(Some(Arc::new(value.clone())))),
        ("optional.ofNonZeroValue", [value]) => Ok(Value::Optional((!is_zero(value)).then(|| Arc::new(value.clone())))),
        ("sets.contains", [Value::List(a), Value::List(b)]) => Ok(Value::Bool(b.iter().all(|item| has(a, item)))),
        ("sets.intersects", [Value::List(a), Value::List(b)]) => Ok(Value::Bool(b.iter().any(|item| has(a, item)))),
        ("sets.equivalent", [Value::List(a), Value::List(b)]) => {
            Ok(Value::Bool(b.iter().all(|item| has(a, item)) && a.iter().all(|item| has(b, item))))
        }
        ("math.greatest" | "math.least", [Value::List(items)]) => extreme(items, name == "math.greatest"),
        ("math.greatest" | "math.least", items) => extreme(items, name == "math.greatest"),
        ("math.abs", [Value::Int(value)]) => {
            value.checked_abs().map(Value::Int).ok_or_else(|| Error::runtime("integer overflow"))
        }
        ("math.abs", [Value::Double(value)]) => Ok(Value::Double(value.abs())),
        ("math.abs", [Value::Uint(value)]) => Ok(Value::Uint(*value)),
        (name, [Value::String(text), rest @ ..]) => string(name, text, rest),
        _ => Err(Error::no_such_overload()),
    }
}

fn has(items: &[Value], wanted: &Value) -> bool {
    items.iter().any(|item| item.equals(wanted))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.entries.is_empty(),
        other => other.number() == Some(0.0),
    }
}

/// The greatest or least of some values; none when there are none.
fn extreme(items: &[Value], greatest: bool) -> Result<Value, Error> {
    let mut items = items.iter();
    let mut best = items.next().ok_or_else(Error::no_such_overload)?;
    for item in items {
        let order = item.compare(best).ok_or_else(Error::no_such_overload)?;
        if order == if greatest { Ordering::Greater } else { Ordering::Less } {
            best = item;
        }
    }
    Ok(best.clone())
}

fn convert(name: &str, value: &Value) -> Result<Value, Error> {
    let range = || Error::runtime("integer overflow");
    match (name, value) {
        ("int", Value::Int(_)) | ("uint", Value::Uint(_)) | ("double", Value::Double(_)) => Ok(value.clone()),
        ("string", Value::String(_)) | ("bool", Value::Bool(_)) | ("bytes", Value::Bytes(_)) => Ok(value.clone()),
        ("int", Value::Uint(value)) => i64::try_from(*value).map(Value::Int).map_err(|_| range()),
        ("int", Value::Double(value)) if value.abs() < 9.2e18 => Ok(Value::Int(*value as i64)),
        ("uint", Value::Int(value)) => u64::try_from(*value).map(Value::Uint).map_err(|_| range()),
        ("uint", Value::Double(value)) if (0.0..1.8e19).contains(value) => Ok(Value::Uint(*value as u64)),
        ("int" | "uint", Value::Double(_)) => Err(range()),
        ("int", Value::String(text)) => text.parse().map(Value::Int).map_err(|_| unreadable(name, text)),
        ("uint", Value::String(text)) => text.parse().map(Value::Uint).map_err(|_| unreadable(name, text)),
        ("double", Value::String(text)) => text.parse().map(Value::Double).map_err(|_| unreadable(name, text)),
        ("double", value) => value.number().map(Value::Double).ok_or_else(Error::no_such_overload),
        ("bool", Value::String(text)) => match &**text {
            "1" | "t" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(unreadable(name, text)),
        },
        ("bytes", Value::String(text)) => Ok(Value::Bytes(text.as_bytes().into())),
        ("string", Value::Bytes(bytes)) => {
            let text = std::str::from_utf8(bytes).map_err(|_| Error::runtime("invalid UTF-8 in bytes"))?;
            Ok(Value::string(text))
        }
        ("string", Value::Int(value)) => Ok(Value::string(value.to_string())),
        ("string", Value::Uint(value)) => Ok(Value::string(value.to_string())),
        ("string", Value::Double(value)) => Ok(Value::string(value.to_string())),
        ("string", Value::Bool(value)) => Ok(Value::string(value.to_string())),
        ("string", Value::Quantity(value)) => Ok(Value::string(value.to_string())),
        ("string", Value::Semver(value)) => Ok(Value::string(value.to_string())),
        ("string", Value::Ip(value)) => Ok(Value::string(value.to_string())),
        ("string", Value::Cidr(value)) => Ok(Value::string(value.to_string())),
        _ => Err(Error::no_such_overload()),
    }
}

fn unreadable(type_name: &str, text: &str) -> Error {
    Error::runtime(format!("type conversion error from 'string' to '{type_name}': {text:?}"))
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
    parsed.map(|version| Value::Semver(Arc::new(version))).map_err(|error| Error::runtime(error.to_string()))
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

fn quantity(name: &str, args: &[Value]) -> Result<Value, Error> {
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

fn semver(name: &str, args: &[Value]) -> Result<Value, Error> {
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

fn optional(name: &str, inner: &Option<Arc<Value>>, rest: &[Value]) -> Result<Value, Error> {
    match (name, inner, rest) {
        ("hasValue", inner, []) => Ok(Value::Bool(inner.is_some())),
        ("value" | "orValue", Some(value), _) => Ok((**value).clone()),
        ("value", None, []) => Err(Error::runtime("optional.none() dereference")),
        ("orValue", None, [other]) => Ok(other.clone()),
        ("or", Some(value), _) => Ok(Value::Optional(Some(value.clone()))),
        ("or", None, [other]) => Ok(other.clone()),
        _ => Err(Error::no_such_overload()),
    }
}

fn index(value: &Value) -> Result<usize, Error> {
    match value {
        Value::Int(value) => {
            usize::try_from(*value).map_err(|_| Error::runtime(format!("index out of range: {value}")))
        }
        _ => Err(Error::no_such_overload()),
    }
}

fn list(name: &str, items: &[Value], rest: &[Value]) -> Result<Value, Error> {
    let position = |at: Option<usize>| Value::Int(at.map_or(-1, |at| at as i64));
    match (name, rest) {
        ("size", []) => Ok(int(items.len())),
        ("isSorted", []) => {
            let mut sorted = true;
            for pair in items.windows(2) {
                sorted &= pair[0].compare(&pair[1]).ok_or_else(Error::no_such_overload)?.is_le();
            }
            Ok(Value::Bool(sorted))
        }
        ("min" | "max", []) if items.is_empty() => Err(Error::runtime(format!("{name} called on empty list"))),
        ("min" | "max", []) => extreme(items, name == "max"),
        ("sum", []) => sum(items),
        ("indexOf", [wanted]) => Ok(position(items.iter().position(|item| item.equals(wanted)))),
        ("lastIndexOf", [wanted]) => Ok(position(items.iter().rposition(|item| item.equals(wanted)))),
        ("first", []) => Ok(Value::Optional(items.first().cloned().map(Arc::new))),
        ("last", []) => Ok(Value::Optional(items.last().cloned().map(Arc::new))),
        ("reverse", []) => Ok(Value::list(items.iter().rev().cloned().collect())),
        ("distinct", []) => {
            let mut kept: Vec<Value> = Vec::new();
            for item in items {
                if !has(&kept, item) {
                    kept.push(item.clone());
                }
            }
            Ok(Value::list(kept))
        }
        ("slice", [from, to]) => {
            let (from, to) = (index(from)?, index(to)?);
            let part = items.get(from..to).ok_or_else(|| Error::runtime("slice out of range"))?;
            Ok(Value::list(part.to_vec()))
        }
        ("flatten", []) => Ok(Value::list(
            items
                .iter()
                .flat_map(|item| match item {
                    Value::List(inner) => inner.to_vec(),
                    other => vec![other.clone()],
                })
                .collect(),
        )),
        ("sort", []) => {
            let mut sorted = items.to_vec();
            let mut comparable = true;
            sorted.sort_by(|a, b| {
                a.compare(b).unwrap_or_else(|| {
                    comparable = false;
                    Ordering::Equal
                })
            });
            if comparable { Ok(Value::list(sorted)) } else { Err(Error::no_such_overload()) }
        }
        ("join", rest) => {
            let separator = match rest {
                [] => "",
                [Value::String(separator)] => separator,
                _ => return Err(Error::no_such_overload()),
            };
            let texts = items.iter().map(|item| match item {
                Value::String(text) => Ok(&**text),
                _ => Err(Error::no_such_overload()),
            });
            Ok(Value::string(texts.collect::<Result<Vec<&str>, Error>>()?.join(separator)))
        }
        _ => other(name, &[&[Value::list(items.to_vec())], rest].concat()),
    }
}

fn sum(items: &[Value]) -> Result<Value, Error> {
    let overflow = || Error::runtime("integer overflow");
    match items {
        [] => Ok(Value::Int(0)),
        [Value::Int(_), ..] => {
            let mut total = 0i64;
            for item in items {
                let Value::Int(value) = item else { return Err(Error::no_such_overload()) };
                total = total.checked_add(*value).ok_or_else(overflow)?;
            }
            Ok(Value::Int(total))
        }
        [Value::Uint(_), ..] => {
            let mut total = 0u64;
            for item in items {
                let Value::Uint(value) = item else { return Err(Error::no_such_overload()) };
                total = total.checked_add(*value).ok_or_else(overflow)?;
            }
            Ok(Value::Uint(total))
        }
        items => {
            let doubles = items.iter().map(|item| match item {
                Value::Double(value) => Ok(*value),
                _ => Err(Error::no_such_overload()),
            });
            Ok(Value::Double(doubles.sum::<Result<f64, Error>>()?))
        }
    }
}

fn regex(pattern: &str) -> Result<Regex, Error> {
    Regex::new(pattern).map_err(|_| Error::runtime(format!("error parsing regexp: {pattern:?}")))
}

fn string(name: &str, text: &str, rest: &[Value]) -> Result<Value, Error> {
    match (name, rest) {
        ("size", []) => Ok(int(text.chars().count())),
        ("contains", [Value::String(part)]) => Ok(Value::Bool(text.contains(&**part))),
        ("startsWith", [Value::String(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        ("endsWith", [Value::String(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        ("matches", [Value::String(pattern)]) => Ok(Value::Bool(regex(pattern)?.is_match(text))),
        ("find", [Value::String(pattern)]) => {
            Ok(Value::string(regex(pattern)?.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", [Value::String(pattern), limit @ ..]) => {
            let limit = limit.first().map(index).transpose()?.unwrap_or(usize::MAX);
            let found =
                regex(pattern)?.find_iter(text).take(limit).map(|found| Value::string(found.as_str())).collect();
            Ok(Value::list(found))
        }
        ("lowerAscii", []) => Ok(Value::string(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::string(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::string(text.trim())),
        ("reverse", []) => Ok(Value::string(text.chars().rev().collect::<String>())),
        ("charAt", [at]) => {
            let at = index(at)?;
            let length = text.chars().count();
            match text.chars().nth(at) {
                Some(c) => Ok(Value::string(c.to_string())),
                None if at == length => Ok(Value::string("")),
                None => Err(Error::runtime(format!("index out of range: {at}"))),
            }
        }
        ("substring", [from]) => substring(text, index(from)?, usize::MAX),
        ("substring", [from, to]) => substring(text, index(from)?, index(to)?),
        ("indexOf", [Value::String(part), from @ ..]) => {
            let from = from.first().map(index).transpose()?.unwrap_or(0);
            let tail: String = text.chars().skip(from).collect();
            let found = tail.find(&**part).map(|at| tail[..at].chars().count() + from);
            Ok(Value::Int(found.map_or(-1, |at| at as i64)))
        }
        ("lastIndexOf", [Value::String(part)]) => {
            let found = text.rfind(&**part).map(|at| text[..at].chars().count());
            Ok(Value::Int(found.map_or(-1, |at| at as i64)))
        }
        ("replace", [Value::String(from), Value::String(to), limit @ ..]) => {
            let limit = match limit {
                [Value::Int(limit)] if *limit >= 0 => index(&Value::Int(*limit))?,
                [] | [Value::Int(_)] => usize::MAX,
                _ => return Err(Error::no_such_overload()),
            };
            replace(text, from, to, limit)
        }
        ("split", [Value::String(separator), limit @ ..]) => {
            let limit = match limit {
                [Value::Int(limit)] if *limit >= 0 => index(&Value::Int(*limit))?,
                [] | [Value::Int(_)] => usize::MAX,
                _ => return Err(Error::no_such_overload()),
            };
            let parts: Vec<String> = match (&**separator, limit) {
                (_, 0) => Vec::new(),
                ("", limit) => text.chars().map(String::from).take(limit).collect(),
                (separator, limit) => text.splitn(limit, separator).map(str::to_owned).collect(),
            };
            Ok(Value::list(parts.into_iter().map(Value::string).collect()))
        }
        _ => Err(Error::no_such_overload()),
    }
}

/// The longest string that an expression may build.
const TEXT_MAX: usize = 1 << 20;

fn replace(text: &str, from: &str, to: &str, limit: usize) -> Result<Value, Error> {
    let occurrences = text.matches(from).take(limit).count();
    if text.len().saturating_add(occurrences.saturating_mul(to.len())) > TEXT_MAX {
        return Err(Error::runtime("operation cancelled: actual cost limit exceeded"));
    }
    Ok(Value::string(text.replacen(from, to, limit)))
}

fn substring(text: &str, from: usize, to: usize) -> Result<Value, Error> {
    let length = text.chars().count();
    let to = if to == usize::MAX { length } else { to };
    if from > to || to > length {
        return Err(Error::runtime(format!("index out of range: {from}")));
    }
    Ok(Value::string(text.chars().skip(from).take(to - from).collect::<String>()))
}
