//! Lists and sets.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{index, int};
use crate::Error;
use crate::cost::{Meter, TRAVERSAL, factor};
use crate::value::Value;

/// The longest list that `includes` goes through; upstream's limit for the values of an attribute.
const INCLUDES_MAX: usize = 48;

fn find(items: &[Value], wanted: &Value, meter: &mut Meter) -> Result<Option<usize>, Error> {
    for (at, item) in items.iter().enumerate() {
        if item.equals(wanted, meter)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn contains_all(items: &[Value], wanted: &[Value], meter: &mut Meter) -> Result<bool, Error> {
    for item in wanted {
        if find(items, item, meter)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Functions whose first argument is a list.
pub(super) fn call(name: &str, items: &[Value], rest: &[Value], meter: &mut Meter) -> Result<Value, Error> {
    let position = |at: Option<usize>| Value::Int(at.map_or(-1, |at| at as i64));
    match (name, rest) {
        ("size", []) => Ok(int(items.len())),
        ("isSorted", []) => is_sorted(items),
        ("min" | "max", []) if items.is_empty() => Err(Error::runtime(format!("{name} called on empty list"))),
        ("min" | "max", []) => extreme(items, name == "max"),
        ("sum", []) => sum(items),
        ("indexOf", [wanted]) => Ok(position(find(items, wanted, meter)?)),
        ("lastIndexOf", [wanted]) => {
            let reversed: Vec<Value> = items.iter().rev().cloned().collect();
            Ok(position(find(&reversed, wanted, meter)?.map(|at| items.len() - 1 - at)))
        }
        ("includes", _) if items.len() > INCLUDES_MAX => Err(Error::runtime(format!(
            "'includes' function cannot be applied to lists longer than {INCLUDES_MAX} values"
        ))),
        ("includes", [wanted]) => Ok(Value::Bool(find(items, wanted, meter)?.is_some())),
        ("first", []) => Ok(Value::Optional(items.first().cloned().map(Arc::new))),
        ("last", []) => Ok(Value::Optional(items.last().cloned().map(Arc::new))),
        ("reverse", []) => Ok(Value::list(items.iter().rev().cloned().collect())),
        ("distinct", []) => {
            let mut kept: Vec<Value> = Vec::new();
            for item in items {
                if find(&kept, item, meter)?.is_none() {
                    kept.push(item.clone());
                }
            }
            Ok(Value::list(kept))
        }
        ("slice", [from, to]) => slice(items, from, to),
        ("flatten", []) => flatten(items, 1, meter).map(Value::list),
        ("flatten", [Value::Int(depth)]) if *depth < 0 => Err(Error::runtime("level must be non-negative")),
        ("flatten", [Value::Int(depth)]) => flatten(items, *depth, meter).map(Value::list),
        ("sort", []) => sorted(items, items),
        ("@sortByAssociatedKeys", [Value::List(keys)]) => sorted(items, keys),
        ("optional.unwrap" | "unwrapOpt", []) => {
            let values = items.iter().filter_map(|item| match item {
                Value::Optional(inner) => inner.as_ref().map(|inner| Ok((**inner).clone())),
                _ => Some(Err(Error::no_such_overload())),
            });
            Ok(Value::list(values.collect::<Result<_, _>>()?))
        }
        ("sets.contains", [Value::List(wanted)]) => Ok(Value::Bool(contains_all(items, wanted, meter)?)),
        ("sets.equivalent", [Value::List(other)]) => {
            Ok(Value::Bool(contains_all(items, other, meter)? && contains_all(other, items, meter)?))
        }
        ("sets.intersects", [Value::List(other)]) => {
            for item in items {
                if find(other, item, meter)?.is_some() {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        ("join", rest) => join(items, rest, meter),
        _ => Err(Error::no_such_overload()),
    }
}

fn is_sorted(items: &[Value]) -> Result<Value, Error> {
    for pair in items.windows(2) {
        if pair[0].compare(&pair[1]).ok_or_else(Error::no_such_overload)?.is_gt() {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn slice(items: &[Value], from: &Value, to: &Value) -> Result<Value, Error> {
    let (from, to) = (index(from)?, index(to)?);
    let part = items.get(from..to).ok_or_else(|| {
        Error::runtime(if from > to {
            format!("cannot slice({from}, {to}), start index must be less than or equal to end index")
        } else {
            format!("cannot slice({from}, {to}), list is length {}", items.len())
        })
    })?;
    Ok(Value::list(part.to_vec()))
}

/// The elements of lists in place of the lists, so many levels deep. Each element costs what a copy costs.
fn flatten(items: &[Value], depth: i64, meter: &mut Meter) -> Result<Vec<Value>, Error> {
    let mut flat = Vec::new();
    for item in items {
        match item {
            Value::List(inner) if depth > 0 => {
                meter.charge(inner.len() as u64 / 4)?;
                flat.extend(flatten(inner, depth - 1, meter)?);
            }
            other => flat.push(other.clone()),
        }
    }
    Ok(flat)
}

/// The items in the order of their keys.
fn sorted(items: &[Value], keys: &[Value]) -> Result<Value, Error> {
    if items.len() != keys.len() {
        return Err(Error::no_such_overload());
    }
    let mut order: Vec<usize> = (0..items.len()).collect();
    let mut comparable = true;
    order.sort_by(|a, b| {
        keys[*a].compare(&keys[*b]).unwrap_or_else(|| {
            comparable = false;
            Ordering::Equal
        })
    });
    if !comparable {
        return Err(Error::no_such_overload());
    }
    Ok(Value::list(order.into_iter().map(|at| items[at].clone()).collect()))
}

fn join(items: &[Value], rest: &[Value], meter: &mut Meter) -> Result<Value, Error> {
    let separator = match rest {
        [] => "",
        [Value::String(separator)] => separator,
        _ => return Err(Error::no_such_overload()),
    };
    let texts: Vec<&str> =
        items.iter().map(|item| item.as_str().ok_or_else(Error::no_such_overload)).collect::<Result<_, _>>()?;
    let bytes = texts.iter().map(|text| text.len() as u64).sum::<u64>();
    let bytes = bytes + separator.len() as u64 * (texts.len() as u64).saturating_sub(1);
    meter.charge(factor(bytes, 2.0 * TRAVERSAL))?;
    Ok(Value::string(texts.join(separator)))
}

/// The greatest or least of some values.
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

fn sum(items: &[Value]) -> Result<Value, Error> {
    let mut total: Option<Value> = None;
    for item in items {
        total = Some(match (total, item) {
            (None, first) => first.clone(),
            (Some(Value::Int(a)), Value::Int(b)) => {
                Value::Int(a.checked_add(*b).ok_or_else(|| Error::runtime("integer overflow"))?)
            }
            (Some(Value::Uint(a)), Value::Uint(b)) => {
                Value::Uint(a.checked_add(*b).ok_or_else(|| Error::runtime("unsigned integer overflow"))?)
            }
            (Some(Value::Double(a)), Value::Double(b)) => Value::Double(a + b),
            (Some(Value::Duration(a)), Value::Duration(b)) => {
                Value::Duration(a.checked_add(*b).ok_or_else(|| Error::runtime("integer overflow"))?)
            }
            _ => return Err(Error::no_such_overload()),
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}
