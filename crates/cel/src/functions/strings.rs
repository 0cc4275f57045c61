//! Strings and patterns.

use super::{index, int};
use crate::Error;
use crate::cost::{Meter, TRAVERSAL, factor};
use crate::regexes::Regexes;
use crate::value::Value;

/// Functions whose first argument is a string.
pub(super) fn call(
    name: &str,
    text: &str,
    rest: &[Value],
    meter: &mut Meter,
    regexes: &Regexes,
) -> Result<Value, Error> {
    match (name, rest) {
        ("size", []) => Ok(int(text.chars().count())),
        ("contains", [Value::String(part)]) => Ok(Value::Bool(text.contains(&**part))),
        ("startsWith", [Value::String(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        ("endsWith", [Value::String(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        ("matches" | "find" | "findAll", [Value::String(pattern), rest @ ..]) => {
            let pattern = regexes.get(pattern, text.chars().count() as u64, meter)?;
            matched(name, text, &pattern.regex, rest)
        }
        ("lowerAscii", []) => Ok(Value::string(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::string(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::string(text.trim())),
        ("charAt", [at]) => char_at(text, at),
        ("substring", [from]) => substring(text, from, &int(text.chars().count())),
        ("substring", [from, to]) => substring(text, from, to),
        ("indexOf" | "lastIndexOf", [Value::String(part), from @ ..]) => {
            position(text, part, from.first(), name == "lastIndexOf")
        }
        ("replace", [Value::String(from), Value::String(to), limit @ ..]) => {
            let limit = self::limit(limit)?;
            // Upstream counts the text alone, however long the result is.
            let occurrences = text.matches(&**from).take(limit).count() as u64;
            let size = (text.len() as u64).saturating_add(occurrences.saturating_mul(to.len() as u64));
            meter.charge(factor(size, TRAVERSAL).saturating_sub(factor(text.len() as u64, TRAVERSAL)) / 2)?;
            Ok(Value::string(text.replacen(&**from, to, limit)))
        }
        ("split", [Value::String(separator), limit @ ..]) => {
            let parts: Vec<String> = match (&**separator, self::limit(limit)?) {
                (_, 0) => Vec::new(),
                ("", limit) => split_characters(text, limit),
                (separator, limit) => text.splitn(limit, separator).map(str::to_owned).collect(),
            };
            Ok(Value::list(parts.into_iter().map(Value::string).collect()))
        }
        _ => Err(Error::no_such_overload()),
    }
}

fn matched(name: &str, text: &str, regex: &regex::Regex, rest: &[Value]) -> Result<Value, Error> {
    Ok(match (name, rest) {
        ("matches", []) => Value::Bool(regex.is_match(text)),
        ("find", []) => Value::string(regex.find(text).map_or("", |found| found.as_str())),
        ("findAll", rest) => {
            let found = regex.find_iter(text).take(limit(rest)?);
            Value::list(found.map(|found| Value::string(found.as_str())).collect())
        }
        _ => return Err(Error::no_such_overload()),
    })
}

/// A limit on parts; a negative one is none.
fn limit(rest: &[Value]) -> Result<usize, Error> {
    match rest {
        [Value::Int(limit)] if *limit >= 0 => index(&Value::Int(*limit)),
        [] | [Value::Int(_)] => Ok(usize::MAX),
        _ => Err(Error::no_such_overload()),
    }
}

/// The characters of a text; the last part is what a limit leaves over.
fn split_characters(text: &str, limit: usize) -> Vec<String> {
    let count = text.chars().count();
    if count <= limit {
        return text.chars().map(String::from).collect();
    }
    let mut parts: Vec<String> = text.chars().take(limit - 1).map(String::from).collect();
    parts.push(text.chars().skip(limit - 1).collect());
    parts
}

fn char_at(text: &str, at: &Value) -> Result<Value, Error> {
    let at = index(at)?;
    match text.chars().nth(at) {
        Some(c) => Ok(Value::string(c.to_string())),
        None if at == text.chars().count() => Ok(Value::string("")),
        None => Err(Error::runtime(format!("index out of range: {at}"))),
    }
}

/// Where a part of a text is, in characters; none is -1.
fn position(text: &str, part: &str, from: Option<&Value>, last: bool) -> Result<Value, Error> {
    let count = text.chars().count();
    let from = from.map(index).transpose()?;
    if let Some(from) = from.filter(|from| *from > count) {
        return Err(Error::runtime(format!("index out of range: {from}")));
    }
    let byte = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
    let found = if last {
        let end = from.map_or(text.len(), |from| byte(from) + part.len());
        let end = (0..=end.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text[..end].rfind(part)
    } else {
        let start = byte(from.unwrap_or(0));
        text[start..].find(part).map(|at| at + start)
    };
    Ok(Value::Int(found.map_or(-1, |at| text[..at].chars().count() as i64)))
}

fn substring(text: &str, from: &Value, to: &Value) -> Result<Value, Error> {
    let (from, to) = (index(from)?, index(to)?);
    let length = text.chars().count();
    for at in [from, to] {
        if at > length {
            return Err(Error::runtime(format!("index out of range: {at}")));
        }
    }
    if from > to {
        return Err(Error::runtime(format!("invalid substring range. start: {from}, end: {to}")));
    }
    Ok(Value::string(text.chars().skip(from).take(to - from).collect::<String>()))
}
