//! Conversions between types.

use super::times;
use crate::Error;
use crate::value::Value;

/// Converts a value to a type by its name.
pub(crate) fn convert(name: &str, value: &Value) -> Result<Value, Error> {
    let range = || Error::runtime("integer overflow");
    match (name, value) {
        ("int", Value::Int(_)) | ("uint", Value::Uint(_)) | ("double", Value::Double(_)) => Ok(value.clone()),
        ("string", Value::String(_)) | ("bool", Value::Bool(_)) | ("bytes", Value::Bytes(_)) => Ok(value.clone()),
        ("int", Value::Uint(value)) => i64::try_from(*value).map(Value::Int).map_err(|_| range()),
        ("int", Value::Double(value)) if value.abs() < 9.2e18 => Ok(Value::Int(*value as i64)),
        ("uint", Value::Int(value)) => {
            u64::try_from(*value).map(Value::Uint).map_err(|_| Error::runtime("unsigned integer overflow"))
        }
        ("uint", Value::Double(value)) if (0.0..1.8e19).contains(value) => Ok(Value::Uint(*value as u64)),
        ("int" | "uint", Value::Double(_)) => Err(range()),
        ("int", Value::String(text)) => text.parse().map(Value::Int).map_err(|_| unreadable(name)),
        ("uint", Value::String(text)) => text.parse().map(Value::Uint).map_err(|_| unreadable(name)),
        ("double", Value::String(text)) => text.parse().map(Value::Double).map_err(|_| unreadable(name)),
        ("double", value) => value.number().map(Value::Double).ok_or_else(Error::no_such_overload),
        ("bool", Value::String(text)) => match &**text {
            "1" | "t" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(unreadable(name)),
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
        ("string", Value::Ip(value)) => Ok(Value::string(value.to_string())),
        ("string", Value::Cidr(value)) => Ok(Value::string(value.to_string())),
        ("string", value @ (Value::Duration(_) | Value::Timestamp(_))) => times::shown(value),
        ("int", Value::Duration(nanoseconds)) => Ok(Value::Int(*nanoseconds)),
        ("int", Value::Timestamp(nanoseconds)) => {
            i64::try_from(nanoseconds.div_euclid(1_000_000_000)).map(Value::Int).map_err(|_| range())
        }
        _ => Err(Error::no_such_overload()),
    }
}

fn unreadable(type_name: &str) -> Error {
    Error::runtime(format!("type conversion error from 'string' to '{type_name}'"))
}
