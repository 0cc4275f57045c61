//! The functions that expressions may call.

mod conversions;
mod costs;
pub(crate) mod formats;
mod ip_literals;
mod lists;
pub(crate) mod networks;
mod quantities;
mod strings;
pub(crate) mod times;
pub(crate) mod urls;

use std::sync::Arc;

use crate::Error;
use crate::cost::Meter;
use crate::regexes::Regexes;
use crate::types::Type;
use crate::value::{Map, Value};

pub(crate) use conversions::convert;
pub(crate) use times::convert as times_convert;

/// Functions that check and are estimated, but do not run yet. No attribute of a device needs them, and an expression
/// with one is refused before it runs.
pub(crate) const NOT_RUN: [&str; 2] = ["format", "strings.quote"];

/// A call with its arguments; the target comes first.
pub(crate) struct Call<'c> {
    pub(crate) name: &'c str,
    pub(crate) args: &'c [Value],
    pub(crate) has_target: bool,
    /// The list that `in` looks into is written out.
    pub(crate) is_set: bool,
}

/// The name of a type, as `type` gives it.
pub(crate) fn type_name(of: &Type) -> &'static str {
    match of {
        Type::Bool => "bool",
        Type::Int => "int",
        Type::Uint => "uint",
        Type::Double => "double",
        Type::String => "string",
        Type::Bytes => "bytes",
        Type::List(_) => "list",
        Type::Map(..) => "map",
        Type::Null => "null_type",
        Type::Timestamp => "google.protobuf.Timestamp",
        Type::Duration => "google.protobuf.Duration",
        _ => "type",
    }
}

/// A number as messages show it.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        other => other.type_name().to_owned(),
    }
}

pub(super) fn int(value: usize) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

pub(super) fn index(value: &Value) -> Result<usize, Error> {
    match value {
        Value::Int(value) => {
            usize::try_from(*value).map_err(|_| Error::runtime(format!("index out of range: {value}")))
        }
        _ => Err(Error::no_such_overload()),
    }
}

/// The error of a call: that a function is not there for these types is said with their names, except by operators and
/// the oldest functions.
pub(crate) fn of_call(error: Error, name: &str, args: &[Value]) -> Error {
    let is_plain = name.starts_with(['_', '!', '-', '@']) && name != "_%_";
    if error != Error::no_such_overload() || is_plain {
        return error;
    }
    let types: Vec<&str> = args.iter().map(Value::type_name).collect();
    match name {
        "matches" | "contains" | "startsWith" | "endsWith" => error,
        "size" | "sort" | "_%_" => Error::runtime(format!("no such overload: {name}")),
        _ => Error::runtime(format!("no such overload: {name}({})", types.join(", "))),
    }
}

impl Call<'_> {
    /// Charges for the call and carries it out.
    pub(crate) fn run(&self, meter: &mut Meter, regexes: &Regexes) -> Result<Value, Error> {
        meter.charge(self.unseen_cost())?;
        meter.charge(self.cost(meter)?)?;
        self.answer(meter, regexes).map_err(|error| of_call(error, self.name, self.args))
    }

    fn answer(&self, meter: &mut Meter, regexes: &Regexes) -> Result<Value, Error> {
        match self.args {
            [value] if matches!(self.name, "type" | "dyn" | "optional.of" | "optional.ofNonZeroValue") => {
                Ok(of_any(self.name, value))
            }
            // Kubernetes' own types are equal to no other, but cannot be asked.
            [a, b] if self.name == "_==_" && a.is_of_kubernetes() && a.type_name() != b.type_name() => {
                Err(Error::no_such_overload())
            }
            [a, b] if matches!(self.name, "_==_" | "_!=_") => {
                Ok(Value::Bool(a.equals(b, meter)? == (self.name == "_==_")))
            }
            [value] if matches!(self.name, "int" | "uint" | "double" | "string" | "bool" | "bytes") => {
                convert(self.name, value)
            }
            [Value::Quantity(_), ..] => quantities::quantity(self.name, self.args),
            [Value::Semver(_), ..] => quantities::semver(self.name, self.args),
            [Value::Ip(address), rest @ ..] => networks::of_address(self.name, *address, rest),
            [Value::Cidr(network), rest @ ..] => networks::of_network(self.name, *network, rest),
            [Value::Url(url)] => urls::of_url(self.name, url),
            [Value::Format(format), Value::String(text)] if self.name == "validate" => Ok(format.validate(text)),
            [Value::Duration(_) | Value::Timestamp(_), ..] => times::call(self.name, self.args),
            [Value::Optional(inner), rest @ ..] if self.has_target && self.name != "includes" => {
                optional(self.name, inner, rest)
            }
            _ if self.name.starts_with('_') || matches!(self.name, "!_" | "-_" | "@in") => self.operator(meter),
            [Value::List(items), rest @ ..] => lists::call(self.name, items, rest, meter),
            _ => self.other(meter, regexes),
        }
    }

    fn other(&self, meter: &mut Meter, regexes: &Regexes) -> Result<Value, Error> {
        match (self.name, self.args) {
            ("size", [Value::Map(map)]) => Ok(int(map.entries.len())),
            ("size", [Value::Bytes(bytes)]) => Ok(int(bytes.len())),
            ("optional.none", []) => Ok(Value::Optional(None)),
            ("includes", [value, wanted]) => Ok(Value::Bool(value.equals(wanted, meter)?)),
            ("lists.range", [Value::Int(count)]) => Ok(Value::list((0..*count).map(Value::Int).collect())),
            ("cel.@mapInsert", [Value::Map(map), rest @ ..]) => insert(map, rest),
            ("quantity" | "isQuantity" | "semver" | "isSemver", [Value::String(text), rest @ ..]) => {
                quantities::of_text(self.name, text, rest)
            }
            ("ip" | "isIP" | "ip.isCanonical" | "cidr" | "isCIDR", [Value::String(text)]) => {
                networks::of_text(self.name, text)
            }
            ("url" | "isURL", [Value::String(text)]) => urls::of_text(self.name, text),
            ("format.named", [Value::String(name)]) => Ok(formats::of_name(name)),
            (function, []) => formats::of_function(function),
            ("duration" | "timestamp", [value]) => times::convert(self.name, value),
            (name, [Value::String(text), rest @ ..]) => strings::call(name, text, rest, meter, regexes),
            _ => Err(Error::no_such_overload()),
        }
    }

    fn operator(&self, meter: &mut Meter) -> Result<Value, Error> {
        match (self.name, self.args) {
            ("!_", [Value::Bool(value)]) => Ok(Value::Bool(!value)),
            ("-_", [Value::Int(value)]) => {
                value.checked_neg().map(Value::Int).ok_or_else(|| Error::runtime("integer overflow"))
            }
            ("-_", [Value::Double(value)]) => Ok(Value::Double(-value)),
            ("@in", [wanted, Value::List(items)]) => {
                for item in items.iter() {
                    if item.equals(wanted, meter)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            ("@in", [wanted, Value::Map(map)]) => {
                Ok(Value::Bool(wanted.key().is_ok_and(|key| map.entries.contains_key(&key))))
            }
            ("@in", _) => Err(Error::no_such_overload()),
            ("_<_" | "_<=_" | "_>_" | "_>=_", [left, right]) => {
                let order = left.compare(right).ok_or_else(Error::no_such_overload)?;
                Ok(Value::Bool(match self.name {
                    "_<_" => order.is_lt(),
                    "_<=_" => order.is_le(),
                    "_>_" => order.is_gt(),
                    _ => order.is_ge(),
                }))
            }
            ("_+_", [Value::List(a), Value::List(b)]) => {
                // Upstream links the two in no time; here they are copied.
                meter.charge((a.len() + b.len()) as u64 / 4)?;
                Ok(Value::list(a.iter().chain(b.iter()).cloned().collect()))
            }
            (_, [left, right]) => arithmetic(self.name, left, right),
            _ => Err(Error::no_such_overload()),
        }
    }
}

fn of_any(name: &str, value: &Value) -> Value {
    match name {
        "type" => Value::Type(value.type_name()),
        "optional.of" => Value::Optional(Some(Arc::new(value.clone()))),
        "optional.ofNonZeroValue" => Value::Optional((!is_zero(value)).then(|| Arc::new(value.clone()))),
        _ => value.clone(),
    }
}

fn insert(map: &Map, rest: &[Value]) -> Result<Value, Error> {
    let mut map = map.clone();
    match rest {
        [key, value] => {
            map.entries.insert(key.key()?, value.clone());
        }
        [Value::Map(more)] => {
            map.entries.extend(more.entries.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        _ => return Err(Error::no_such_overload()),
    }
    Ok(Value::Map(Arc::new(map)))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(map) => map.entries.is_empty(),
        Value::Duration(nanoseconds) => *nanoseconds == 0,
        other => other.number() == Some(0.0),
    }
}

fn optional(name: &str, inner: &Option<Arc<Value>>, rest: &[Value]) -> Result<Value, Error> {
    match (name, inner, rest) {
        ("hasValue", inner, []) => Ok(Value::Bool(inner.is_some())),
        ("value", Some(value), []) => Ok((**value).clone()),
        ("value", None, []) => Err(Error::runtime("optional.none() dereference")),
        _ => Err(Error::no_such_overload()),
    }
}

macro_rules! integers {
    ($operator:expr, $a:expr, $b:expr) => {
        match $operator {
            "_+_" => $a.checked_add(*$b),
            "_-_" => $a.checked_sub(*$b),
            "_*_" => $a.checked_mul(*$b),
            "_/_" => $a.checked_div(*$b),
            _ => $a.checked_rem(*$b),
        }
    };
}

fn arithmetic(operator: &str, left: &Value, right: &Value) -> Result<Value, Error> {
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) if operator == "_/_" => {
            Err(Error::runtime("division by zero"))
        }
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) if operator == "_%_" => {
            Err(Error::runtime("modulus by zero"))
        }
        (Value::Int(a), Value::Int(b)) => {
            integers!(operator, a, b).map(Value::Int).ok_or_else(|| Error::runtime("integer overflow"))
        }
        (Value::Uint(a), Value::Uint(b)) => {
            integers!(operator, a, b).map(Value::Uint).ok_or_else(|| Error::runtime("unsigned integer overflow"))
        }
        (Value::Double(a), Value::Double(b)) => match operator {
            "_+_" => Ok(Value::Double(a + b)),
            "_-_" => Ok(Value::Double(a - b)),
            "_*_" => Ok(Value::Double(a * b)),
            "_/_" => Ok(Value::Double(a / b)),
            _ => Err(Error::no_such_overload()),
        },
        (Value::String(a), Value::String(b)) if operator == "_+_" => Ok(Value::string(format!("{a}{b}"))),
        (Value::Bytes(a), Value::Bytes(b)) if operator == "_+_" => Ok(Value::Bytes([&**a, &**b].concat().into())),
        _ => Err(Error::no_such_overload()),
    }
}
