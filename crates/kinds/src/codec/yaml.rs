//! YAML bodies: read as upstream's YAML 1.1 reader does, with the keys that stand twice.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Options, Spanned};

/// What upstream's reader calls an error of several lines.
const REPEATED: &str = "yaml: unmarshal errors:";

/// The most repeated keys that are told.
const REPEATED_MAX: usize = 100;

fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! { duplicate_keys: duplicate_keys, with_snippet: false }
}

/// The value of a document, of which the last of several equal keys counts.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::LastWins)).map_err(|error| explain(&error))
}

/// What upstream's strict reader says about keys that stand twice: one error of a line for each.
pub(super) fn repeated_keys(text: &str) -> Option<String> {
    let strict: Result<Value, _> = serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::Error));
    if strict.is_ok() {
        return None;
    }
    let Keys(found) = serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::LastWins)).ok()?;
    if found.is_empty() {
        return None;
    }
    let lines: Vec<String> = found
        .iter()
        .take(REPEATED_MAX)
        .map(|(line, key)| format!("\n  line {line}: key {key:?} already set in map"))
        .collect();
    Some(format!("{REPEATED}{}", lines.concat()))
}

/// The lines of an error of upstream's strict reader, each of which is a warning.
pub(super) fn warnings_of(error: &str) -> Vec<String> {
    match error.strip_prefix(REPEATED) {
        Some(lines) => lines.trim_start().lines().map(|line| line.trim().to_owned()).collect(),
        None => vec![error.to_owned()],
    }
}

/// The parser's words in the form of upstream's reader, which does not name the first line.
fn explain(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let (what, place) = first.rsplit_once(" at line ").unwrap_or((first, ""));
    let line: u64 = place.split(',').next().and_then(|line| line.parse().ok()).unwrap_or(0);
    if line > 1 { format!("yaml: line {line}: {what}") } else { format!("yaml: {what}") }
}

/// The keys of a document that stand twice in their map, with their lines.
struct Keys(Vec<(u64, String)>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Keys, D::Error> {
        deserializer.deserialize_any(KeysVisitor)
    }
}

struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Keys;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if !seen.insert(key.value.clone()) {
                found.push((key.referenced.line(), key.value));
            }
            found.extend(map.next_value::<Keys>()?.0);
        }
        Ok(Keys(found))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Keys, A::Error> {
        let mut found = Vec::new();
        while let Some(element) = list.next_element::<Keys>()? {
            found.extend(element.0);
        }
        Ok(Keys(found))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Keys, E> {
        Ok(Keys(Vec::new()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Keys, E> {
        Ok(Keys(Vec::new()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Keys, E> {
        Ok(Keys(Vec::new()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Keys, E> {
        Ok(Keys(Vec::new()))
    }

    fn visit_str<E>(self, _: &str) -> Result<Keys, E> {
        Ok(Keys(Vec::new()))
    }

    fn visit_unit<E>(self) -> Result<Keys, E> {
        Ok(Keys(Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_stand_twice_are_told_with_their_lines_and_the_last_one_counts() {
        let text = "a: 1\nb:\n  c: 1\n  c: 2\na: {d: 3, d: 4}\n";
        assert_eq!(parse(text).unwrap(), serde_json::json!({"a": {"d": 4}, "b": {"c": 2}}));
        let error = repeated_keys(text).unwrap();
        assert_eq!(
            warnings_of(&error),
            [
                "line 4: key \"c\" already set in map",
                "line 5: key \"a\" already set in map",
                "line 5: key \"d\" already set in map",
            ]
        );
        assert_eq!(repeated_keys("a: 1\nb: {a: 1}\n"), None);
    }

    #[test]
    fn broken_documents_are_refused_without_the_parsers_own_pictures() {
        for (text, expected) in [
            ("a: b: c", "yaml: mapping values are not allowed in this context"),
            ("a: b\nb: c: d", "yaml: line 2: mapping values are not allowed in this context"),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }
}
