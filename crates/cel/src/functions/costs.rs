//! What a call costs when it runs: upstream's numbers, on actual sizes.

use super::Call;
use crate::Error;
use crate::cost::{LIST, Meter, TRAVERSAL, factor};
use crate::value::Value;

fn text(of: &Value) -> u64 {
    factor(of.size(), TRAVERSAL)
}

/// A list of this size is made.
fn making_list(size: u64, by: f64) -> u64 {
    ((size as f64 * by) as u64).saturating_add(1 + LIST)
}

/// The cost of comparing all elements with each other.
fn squared(items: &Value) -> u64 {
    let Value::List(items) = items else { return 1 };
    let is_text = matches!(items.first(), Some(Value::String(_) | Value::Bytes(_)));
    let count = items.len() as u64;
    making_list(count.saturating_mul(count), if is_text { 2.0 + TRAVERSAL } else { 2.0 })
}

/// The cost of going through a value and all its parts; none when it is more than is left.
fn traversal(of: &Value, left: &mut u64) -> Option<u64> {
    *left = left.checked_sub(1)?;
    Some(match of {
        Value::String(text) => (text.len() as f64 * TRAVERSAL) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL) as u64,
        Value::List(items) => {
            let mut sum = 0u64;
            for item in items.iter() {
                sum = sum.saturating_add(traversal(item, left)?);
            }
            sum
        }
        Value::Map(map) => {
            let mut sum = 0u64;
            for (key, value) in &map.entries {
                sum = sum.saturating_add(traversal(&key.value(), left)?).saturating_add(traversal(value, left)?);
            }
            sum
        }
        _ => 1,
    })
}

/// What a quantity costs that 64 bits do not hold: numbers of a thousand digits are made of it.
const LARGE_QUANTITY: u64 = 200;

/// What it takes to go through a URL byte by byte, beyond the length that hardly any has.
fn reading_url(bytes: u64) -> u64 {
    bytes.saturating_sub(512) / 16
}

impl Call<'_> {
    /// What upstream takes to cost nothing, but takes time all the same: long texts are counted, converted and compared
    /// with short ones, and quantities may be very large. It is nothing for what selectors really read.
    pub(super) fn unseen_cost(&self) -> u64 {
        let bytes_of_a_unit = match self.name {
            "size" | "charAt" | "int" | "uint" | "double" | "bool" | "duration" | "timestamp" => 32,
            _ => 512,
        };
        let of = |value: &Value| match value {
            Value::String(text) => text.len() as u64 / bytes_of_a_unit,
            Value::Bytes(bytes) => bytes.len() as u64 / bytes_of_a_unit,
            Value::Url(url) => url.len() / bytes_of_a_unit,
            Value::Quantity(quantity) if quantity.as_i64().is_none() => LARGE_QUANTITY,
            _ => 0,
        };
        let of_text = match (self.name, self.args) {
            ("isURL", [Value::String(text)]) => reading_url(text.len() as u64),
            ("getQuery", [Value::Url(url)]) => reading_url(url.len()),
            // An exponent makes a short text a long number.
            ("quantity" | "isQuantity", [Value::String(text)])
                if text.starts_with(|c: char| !c.is_ascii_alphabetic()) && text.contains(['e', 'E']) =>
            {
                LARGE_QUANTITY
            }
            _ => 0,
        };
        self.args.iter().map(of).sum::<u64>() + of_text
    }

    /// The cost of the call without its arguments. Patterns are charged where they are used.
    pub(super) fn cost(&self, meter: &Meter) -> Result<u64, Error> {
        let args = self.args;
        Ok(match (self.name, args) {
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", [of, ..]) => {
                let mut left = meter.left().saturating_mul(10).saturating_add(10);
                traversal(of, &mut left).unwrap_or(u64::MAX)
            }
            ("url" | "lowerAscii" | "upperAscii" | "substring" | "trim", [of, ..]) => text(of),
            ("replace" | "split", [of, ..]) => factor(of.size(), 2.0 * TRAVERSAL),
            ("ip", [Value::Cidr(_)]) => 1,
            ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", [of, ..]) => {
                text(of)
            }
            ("ip.isCanonical", [of]) => factor(of.size(), 2.0 * TRAVERSAL),
            ("containsIP" | "containsCIDR", [network, other]) => {
                let mut cost = factor(network.size() * 2, TRAVERSAL);
                if self.name == "containsCIDR" {
                    cost += text(network) + 1;
                }
                cost + if matches!(other, Value::String(_)) { text(other) } else { 0 }
            }
            ("find" | "findAll" | "matches" | "join", _) => 0,
            ("validate", [Value::Format(format), of]) => format.cost(of.size()),
            ("_==_", [Value::Quantity(_) | Value::Ip(_) | Value::Cidr(_) | Value::Semver(_), _]) => 1,
            ("slice", [Value::List(items), Value::Int(from), Value::Int(to)]) => {
                let to = (*to).min(items.len() as i64);
                making_list(u64::try_from(to.saturating_sub(*from)).unwrap_or(0), 1.0)
            }
            ("lists.range", [Value::Int(count)]) => making_list(u64::try_from(*count).unwrap_or(0), 1.0),
            ("reverse", [of]) => making_list(of.size(), 1.0),
            ("flatten", [of, depth @ ..]) => {
                let depth = match depth {
                    [Value::Int(depth)] => *depth as f64,
                    _ => 1.0,
                };
                making_list(of.size(), depth)
            }
            ("distinct" | "sort", [of]) | ("@sortByAssociatedKeys", [_, of]) => squared(of),
            ("sets.contains" | "sets.intersects", [a, b]) => a.size().saturating_mul(b.size()).saturating_add(1),
            ("sets.equivalent", [a, b]) => a.size().saturating_mul(b.size()).saturating_mul(2).saturating_add(1),
            ("startsWith" | "endsWith", [of, _]) => text(of),
            ("bytes", [of @ Value::String(_)]) | ("string", [of @ Value::Bytes(_)]) => text(of),
            ("@in", [_, Value::List(_)]) if self.is_set => 0,
            ("@in", [_, list @ Value::List(_)]) => list.size(),
            ("_==_" | "_!=_", [a, b]) => factor(a.size().min(b.size()), TRAVERSAL),
            ("_<_" | "_<=_" | "_>_" | "_>=_", [a @ (Value::String(_) | Value::Bytes(_)), b]) => {
                factor(a.size().min(b.size()), TRAVERSAL)
            }
            ("_+_", [a @ (Value::String(_) | Value::Bytes(_)), b]) => {
                factor(a.size().saturating_add(b.size()), TRAVERSAL)
            }
            ("contains", [a, b]) => text(a).saturating_mul(text(b)),
            _ => 1,
        })
    }
}
