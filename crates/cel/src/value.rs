//! The values of expressions.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bayplan_model::quantity::Quantity;
use semver::Version;

use crate::Error;
use crate::cost::Meter;
use crate::functions::formats::Format;
use crate::functions::networks::Cidr;
use crate::functions::urls::Url;
use crate::types::Type;

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
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
    Url(Arc<Url>),
    Format(&'static Format),
    /// Nanoseconds.
    Duration(i64),
    /// Nanoseconds since 1970.
    Timestamp(i128),
    Optional(Option<Arc<Value>>),
    Type(&'static str),
}

/// A map. Lookups of unknown keys give the default, if there is one; `in` and `has` do not see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    pub(crate) entries: BTreeMap<Key, Value>,
    pub(crate) default: Option<Value>,
}

/// A key of a map. Numbers of different types that are equal are the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Number(i128),
    String(Arc<str>),
}

impl Value {
    pub(crate) fn string(text: impl Into<Arc<str>>) -> Self {
        Value::String(text.into())
    }

    pub(crate) fn list(items: Vec<Value>) -> Self {
        Value::List(Arc::new(items))
    }

    /// The name of the value's type, as messages show it.
    pub(crate) fn type_name(&self) -> &'static str {
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
            Value::Url(_) => "kubernetes.URL",
            Value::Format(_) => "kubernetes.NamedFormat",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Optional(_) => "optional_type",
            Value::Type(_) => "type",
        }
    }

    /// Whether the value is of a type that Kubernetes adds to the language.
    pub(crate) fn is_of_kubernetes(&self) -> bool {
        matches!(
            self,
            Value::Quantity(_) | Value::Semver(_) | Value::Ip(_) | Value::Cidr(_) | Value::Url(_) | Value::Format(_)
        )
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The type of a literal.
    pub(crate) fn literal_type(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            _ => Type::Dyn,
        }
    }

    /// The size that costs are counted by: characters, elements or entries, and 1 for what has none.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Value::String(text) => text.chars().count() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(items) => items.len() as u64,
            Value::Map(map) => map.entries.len() as u64,
            Value::Cidr(network) => network.size(),
            Value::Ip(address) => {
                if address.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Value::Optional(Some(inner)) => inner.size(),
            _ => 1,
        }
    }

    pub(crate) fn key(&self) -> Result<Key, Error> {
        match self {
            Value::Bool(value) => Ok(Key::Bool(*value)),
            Value::Int(value) => Ok(Key::Number((*value).into())),
            Value::Uint(value) => Ok(Key::Number((*value).into())),
            Value::String(value) => Ok(Key::String(value.clone())),
            other => Err(Error::runtime(format!("unsupported key type: {}", other.type_name()))),
        }
    }

    /// CEL's equality: numbers by value, values of different types are different. Values share their parts, so that
    /// there may be far more of them than memory holds; each costs a tenth of a unit, as a character does.
    pub(crate) fn equals(&self, other: &Value, meter: &mut Meter) -> Result<bool, Error> {
        let mut left = meter.left().saturating_mul(10).saturating_add(10);
        let budget = left;
        let equal = self.equal_within(other, &mut left);
        match equal {
            Some(equal) => {
                // What the call itself is charged covers values without parts.
                meter.charge((budget - left).saturating_sub(10) / 10)?;
                Ok(equal)
            }
            None => {
                meter.charge(u64::MAX)?;
                Ok(false)
            }
        }
    }

    /// Whether the values are equal; none when there are too many parts to tell.
    fn equal_within(&self, other: &Value, left: &mut u64) -> Option<bool> {
        *left = left.checked_sub(1)?;
        Some(match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Type(a), Value::Type(b)) => a == b,
            (Value::Quantity(a), Value::Quantity(b)) => a == b,
            (Value::Semver(a), Value::Semver(b)) => a.cmp_precedence(b) == Ordering::Equal,
            (Value::Ip(a), Value::Ip(b)) => a == b,
            (Value::Cidr(a), Value::Cidr(b)) => a == b,
            (Value::Url(a), Value::Url(b)) => a == b,
            (Value::Format(a), Value::Format(b)) => a == b,
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::Optional(None), Value::Optional(None)) => true,
            (Value::Optional(Some(a)), Value::Optional(Some(b))) => a.equal_within(b, left)?,
            (Value::List(a), Value::List(b)) => {
                if a.len() != b.len() {
                    return Some(false);
                }
                for (a, b) in a.iter().zip(b.iter()) {
                    if !a.equal_within(b, left)? {
                        return Some(false);
                    }
                }
                true
            }
            (Value::Map(a), Value::Map(b)) => {
                if a.entries.len() != b.entries.len() {
                    return Some(false);
                }
                for (key, value) in &a.entries {
                    let Some(other) = b.entries.get(key) else { return Some(false) };
                    if !value.equal_within(other, left)? {
                        return Some(false);
                    }
                }
                true
            }
            _ => self.compare_numbers(other) == Some(Ordering::Equal),
        })
    }

    /// The order of two values; none for those that have none.
    pub(crate) fn compare(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
            (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
            (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
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

    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Value::Int(value) => Some(*value as f64),
            Value::Uint(value) => Some(*value as f64),
            Value::Double(value) => Some(*value),
            _ => None,
        }
    }
}

impl Key {
    pub(crate) fn value(&self) -> Value {
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

pub(crate) fn string_key(key: &str) -> Key {
    Key::String(key.into())
}

pub(crate) fn map(entries: impl IntoIterator<Item = (Key, Value)>, default: Option<Value>) -> Value {
    Value::Map(Arc::new(Map { entries: entries.into_iter().collect(), default }))
}
