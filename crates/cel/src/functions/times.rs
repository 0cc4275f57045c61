//! Durations and points in time, in UTC.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::Error;
use crate::value::Value;

/// Reads a duration as Go writes it: `1h30m`, `1.5s`, `-2ms`.
pub(crate) fn duration(text: &str) -> Result<i64, Error> {
    let refuse = || Error::runtime(format!("time: invalid duration {text:?}"));
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(refuse());
    }
    let mut total = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refuse)?;
        let number: f64 = rest[..digits].parse().map_err(|_| refuse())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += number
            * match &rest[..unit] {
                "ns" => 1.0,
                "us" | "µs" | "μs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 6e10,
                "h" => 3.6e12,
                _ => return Err(refuse()),
            };
        rest = &rest[unit..];
    }
    if total > i64::MAX as f64 { Err(refuse()) } else { Ok(sign * total.round() as i64) }
}

/// Reads a point in time as RFC 3339 writes it.
pub(crate) fn timestamp(text: &str) -> Result<i128, Error> {
    let refuse = || Error::runtime(format!("parsing time {text:?} as RFC 3339"));
    let has_zone = text.ends_with('Z') || text.get(19..).is_some_and(|rest| rest.contains(['+', '-']));
    let is_strict = text.as_bytes().get(10) == Some(&b'T') && has_zone;
    let read: Timestamp = text.parse().map_err(|_| refuse())?;
    if is_strict { Ok(read.as_nanosecond()) } else { Err(refuse()) }
}

fn overflow() -> Error {
    Error::runtime("integer overflow")
}

/// `duration(…)` and `timestamp(…)`.
pub(crate) fn convert(name: &str, value: &Value) -> Result<Value, Error> {
    const SECOND: i64 = 1_000_000_000;
    match (name, value) {
        ("duration", Value::String(text)) => duration(text).map(Value::Duration),
        ("duration", Value::Int(value)) => Ok(Value::Duration(*value)),
        ("timestamp", Value::String(text)) => timestamp(text).map(Value::Timestamp),
        ("timestamp", Value::Int(value)) => Ok(Value::Timestamp(i128::from(*value) * i128::from(SECOND))),
        _ => Err(Error::no_such_overload()),
    }
}

/// How a time is written as a string.
pub(super) fn shown(value: &Value) -> Result<Value, Error> {
    match value {
        Value::Duration(nanoseconds) => {
            let seconds = *nanoseconds as f64 / 1e9;
            Ok(Value::string(format!("{seconds}s")))
        }
        Value::Timestamp(nanoseconds) => {
            Timestamp::from_nanosecond(*nanoseconds).map(|at| Value::string(at.to_string())).map_err(|_| overflow())
        }
        _ => Err(Error::no_such_overload()),
    }
}

/// Functions whose first argument is a time.
pub(super) fn call(name: &str, args: &[Value]) -> Result<Value, Error> {
    match (name, args) {
        ("duration" | "timestamp", [value]) => Ok(value.clone()),
        ("_<_", [a, b]) => Ok(Value::Bool(a.compare(b).ok_or_else(Error::no_such_overload)?.is_lt())),
        ("_<=_", [a, b]) => Ok(Value::Bool(a.compare(b).ok_or_else(Error::no_such_overload)?.is_le())),
        ("_>_", [a, b]) => Ok(Value::Bool(a.compare(b).ok_or_else(Error::no_such_overload)?.is_gt())),
        ("_>=_", [a, b]) => Ok(Value::Bool(a.compare(b).ok_or_else(Error::no_such_overload)?.is_ge())),
        ("_+_", [Value::Duration(a), Value::Duration(b)]) => {
            a.checked_add(*b).map(Value::Duration).ok_or_else(overflow)
        }
        ("_-_", [Value::Duration(a), Value::Duration(b)]) => {
            a.checked_sub(*b).map(Value::Duration).ok_or_else(overflow)
        }
        ("_+_", [Value::Timestamp(at), Value::Duration(by)] | [Value::Duration(by), Value::Timestamp(at)]) => {
            Ok(Value::Timestamp(at + i128::from(*by)))
        }
        ("_-_", [Value::Timestamp(at), Value::Duration(by)]) => Ok(Value::Timestamp(at - i128::from(*by))),
        ("_-_", [Value::Timestamp(a), Value::Timestamp(b)]) => {
            i64::try_from(a - b).map(Value::Duration).map_err(|_| overflow())
        }
        (name, [Value::Duration(nanoseconds)]) => Ok(Value::Int(match name {
            "getHours" => nanoseconds / 3_600_000_000_000,
            "getMinutes" => nanoseconds / 60_000_000_000,
            "getSeconds" => nanoseconds / 1_000_000_000,
            "getMilliseconds" => nanoseconds / 1_000_000,
            _ => return Err(Error::no_such_overload()),
        })),
        (name, [Value::Timestamp(at)]) => part(name, *at),
        (name, [Value::Timestamp(at), Value::String(zone)]) if &**zone == "UTC" => part(name, *at),
        (_, [Value::Timestamp(_), Value::String(zone)]) => Err(Error::runtime(format!("unknown time zone {zone}"))),
        _ => Err(Error::no_such_overload()),
    }
}

fn part(name: &str, nanoseconds: i128) -> Result<Value, Error> {
    let at = Timestamp::from_nanosecond(nanoseconds).map_err(|_| overflow())?.to_zoned(TimeZone::UTC);
    Ok(Value::Int(match name {
        "getFullYear" => at.year().into(),
        "getMonth" => i64::from(at.month()) - 1,
        "getDate" => at.day().into(),
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDayOfWeek" => at.weekday().to_sunday_zero_offset().into(),
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getHours" => at.hour().into(),
        "getMinutes" => at.minute().into(),
        "getSeconds" => at.second().into(),
        "getMilliseconds" => at.millisecond().into(),
        _ => return Err(Error::no_such_overload()),
    }))
}
