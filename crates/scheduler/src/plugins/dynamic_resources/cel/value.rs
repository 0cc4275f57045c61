//! The values of expressions.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bayplan_model::quantity::Quantity;
use bayplan_model::resource_slice::{Device, DeviceAttribute};
use semver::Version;

use super::Error;
use super::networks::Cidr;

/// A value.
#[derive(Clone, Debug)]
pub(in super::super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<Vec<Value>>),
    Map(Arc<Map>),
    Quantity(Arc<Quantity>),
    Semver(Arc<Version>),
    Ip(IpAddr),
    Cidr(Cidr),
    Optional(Option<Arc<Value>>),
    Type(&'static str),
}

/// A map. Lookups of unknown keys give the default, if there is one; `in` and `has` do not see it.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Map {
    pub(super) entries: BTreeMap<Key, Value>,
    pub(super) default: Option<Value>,
}

/// A key of a map. Numbers of different types that are equal are the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Key {
    Bool(bool),
    Number(i128),
    String(Arc<str>),
}

impl Value {
    pub(super) fn string(text: impl Into<Arc<str>>) -> Self {
        Value::String(text.into())
    }

    pub(super) fn list(items: Vec<Value>) -> Self {
        Value::List(Arc::new(items))
    }

    /// The name of the value's type, as messages show it.
    pub(in super::super) fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Semver(_) => "kubernetes.Semver",
            Value::Ip(_) => "net.IP",
            Value::Cidr(_) => "net.CIDR",
            Value::Optional(_) => "optional_type",
            Value::Type(_) => "type",
        }
    }

    pub(super) fn key(&self) -> Result<Key, Error> {
        match self {
            Value::Bool(value) => Ok(Key::Bool(*value)),
            Value::Int(value) => Ok(Key::Number((*value).into())),
            Value::Uint(value) => Ok(Key::Number((*value).into())),
            Value::String(value) => Ok(Key::String(value.clone())),
            other => Err(Error::runtime(format!("unsupported key type: {}", other.type_name()))),
        }
    }

    /// CEL's equality: numbers by value, values of different types are different.
    pub(super) fn equals(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Type(a), Value::Type(b)) => a == b,
            (Value::Quantity(a), Value::Quantity(b)) => a == b,
            (Value::Semver(a), Value::Semver(b)) => a.cmp_precedence(b) == Ordering::Equal,
            (Value::Ip(a), Value::Ip(b)) => a == b,
            (Value::Cidr(a), Value::Cidr(b)) => a == b,
            (Value::Optional(None), Value::Optional(None)) => true,
            (Value::Optional(Some(a)), Value::Optional(Some(b))) => a.equals(b),
            (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.equals(b)),
            (Value::Map(a), Value::Map(b)) => {
                let same = |(key, value): (&Key, &Value)| b.entries.get(key).is_some_and(|other| value.equals(other));
                a.entries.len() == b.entries.len() && a.entries.iter().all(same)
            }
            _ => self.compare_numbers(other) == Some(Ordering::Equal),
        }
    }

    /// The order of two values; none for those that have none.
    pub(super) fn compare(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
            _ => self.compare_numbers(other),
        }
    }

    fn compare_numbers(&self, other: &Value) -> Option<Ordering> {
        match (self.integer(), other.integer()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => self.number()?.partial_cmp(&other.number()?),
        }
    }

    fn integer(&self) -> Option<i128> {
        match self {
            Value::Int(value) => Some((*value).into()),
            Value::Uint(value) => Some((*value).into()),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Value::Int(value) => Some(*value as f64),
            Value::Uint(value) => Some(*value as f64),
            Value::Double(value) => Some(*value),
            _ => None,
        }
    }
}

impl Key {
    pub(super) fn value(&self) -> Value {
        match self {
            Key::Bool(value) => Value::Bool(*value),
            Key::Number(value) => match i64::try_from(*value) {
                Ok(value) => Value::Int(value),
                Err(_) => Value::Uint(u64::try_from(*value).unwrap_or(u64::MAX)),
            },
            Key::String(value) => Value::String(value.clone()),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Bool(value) => value.fmt(f),
            Key::Number(value) => value.fmt(f),
            Key::String(value) => f.write_str(value),
        }
    }
}

fn string_key(key: &str) -> Key {
    Key::String(key.into())
}

fn map(entries: impl IntoIterator<Item = (Key, Value)>, default: Option<Value>) -> Value {
    Value::Map(Arc::new(Map { entries: entries.into_iter().collect(), default }))
}

/// The variable `device`: names without a domain are the driver's own, and unknown domains are empty.
pub(super) fn device(driver: &str, device: &Device) -> Value {
    let by_domain = |values: Vec<(&String, Value)>| {
        let mut domains: BTreeMap<Key, BTreeMap<Key, Value>> = BTreeMap::new();
        for (name, value) in values {
            let (domain, id) = name.split_once('/').unwrap_or((driver, name));
            domains.entry(string_key(domain)).or_default().insert(string_key(id), value);
        }
        map(domains.into_iter().map(|(domain, values)| (domain, map(values, None))), Some(map([], None)))
    };
    let attributes = device.attributes.iter().filter_map(|(name, value)| Some((name, attribute(value)?))).collect();
    let quantity = |(name, capacity)| {
        let capacity: &bayplan_model::resource_slice::DeviceCapacity = capacity;
        (name, Value::Quantity(Arc::new(capacity.value.clone())))
    };
    map(
        [
            (string_key("driver"), Value::string(driver)),
            (string_key("allowMultipleAllocations"), Value::Bool(device.allow_multiple_allocations)),
            (string_key("attributes"), by_domain(attributes)),
            (string_key("capacity"), by_domain(device.capacity.iter().map(quantity).collect())),
        ],
        None,
    )
}

fn attribute(value: &DeviceAttribute) -> Option<Value> {
    let version = |text: &String| Version::parse(text).ok().map(|version| Value::Semver(Arc::new(version)));
    None.or(value.int.map(Value::Int))
        .or(value.bool.map(Value::Bool))
        .or(value.string.as_deref().map(Value::string))
        .or(value.version.as_ref().and_then(version))
}
