//! Placeholders of recorded answers: `$UID1`, `$RV`, `$TIME`, … alone or inside longer texts.

use std::collections::HashMap;

use serde_json::Value;

/// What the numbered placeholders stand for in this run.
#[derive(Clone, Debug, Default)]
pub(super) struct Bindings(HashMap<String, String>);

const KINDS: [&str; 10] = ["UID", "RV", "IP", "NODEPORT", "GEN", "LRV", "CONT", "TIME", "AGE", "SERVER"];

/// One part of a text with placeholders.
enum Part<'a> {
    Literal(&'a str),
    Placeholder(&'a str),
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut rest, mut literal_from, mut at) = (text, 0, 0);
    while let Some(dollar) = rest.find('$') {
        at += dollar;
        let after = &text[at + 1..];
        let letters = after.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(after.len());
        let Some(kind) = KINDS.iter().filter(|k| after[..letters].starts_with(**k)).max_by_key(|k| k.len()) else {
            at += 1;
            rest = &text[at..];
            continue;
        };
        let tail = &after[kind.len()..];
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let end = at + 1 + kind.len() + digits;
        if at > literal_from {
            parts.push(Part::Literal(&text[literal_from..at]));
        }
        parts.push(Part::Placeholder(&text[at..end]));
        (at, literal_from) = (end, end);
        rest = &text[at..];
    }
    if literal_from < text.len() {
        parts.push(Part::Literal(&text[literal_from..]));
    }
    parts
}

fn rebinds(name: &str) -> bool {
    name.starts_with("$LRV") || name.starts_with("$CONT")
}

fn binds(name: &str) -> bool {
    name.ends_with(|c: char| c.is_ascii_digit())
}

/// True if the text may stand where the recording has a placeholder.
fn fits(name: &str, text: &str) -> bool {
    let all = |accepted: fn(char) -> bool| text.chars().all(accepted);
    match name[1..].trim_end_matches(|c: char| c.is_ascii_digit()) {
        "RV" | "LRV" | "NODEPORT" => all(|c| c.is_ascii_digit()),
        "UID" => text.len() == 36 && all(|c| c.is_ascii_hexdigit() || c == '-'),
        "GEN" => all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()),
        "IP" => all(|c| c.is_ascii_hexdigit() || matches!(c, '.' | ':')),
        "TIME" => text.len() >= 20 && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok(),
        "AGE" => text == "<unknown>" || all(|c| c.is_ascii_digit() || matches!(c, 'y' | 'd' | 'h' | 'm' | 's')),
        _ => true,
    }
}

/// True for what was different wherever it was recorded under different names.
fn is_distinct(name: &str) -> bool {
    name.starts_with("$UID") || name.starts_with("$RV")
}

impl Bindings {
    /// True if another placeholder of the kind stands for the value already.
    fn taken(&self, name: &str, value: &str, bound: &[(String, String)]) -> bool {
        let mut known = self.0.iter().chain(bound.iter().map(|(n, v)| (n, v)));
        is_distinct(name) && known.any(|(n, v)| n != name && v == value && n[..3] == name[..3])
    }

    /// The text with every known placeholder replaced.
    pub(super) fn fill(&self, text: &str) -> String {
        parts(text)
            .iter()
            .map(|part| match part {
                Part::Literal(literal) => *literal,
                Part::Placeholder(name) => self.0.get(*name).map_or(*name, String::as_str),
            })
            .collect()
    }

    /// The value with every known placeholder replaced.
    pub(super) fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let filled = self.fill(text);
                match filled.parse::<i64>() {
                    Ok(number) if text.starts_with("$NODEPORT") => Value::from(number),
                    _ => Value::String(filled),
                }
            }
            Value::Array(list) => list.iter().map(|v| self.fill_value(v)).collect(),
            Value::Object(map) => map.iter().map(|(k, v)| (self.fill(k), self.fill_value(v))).collect(),
            other => other.clone(),
        }
    }

    /// True when the text is what was recorded; placeholders met for the first time are bound.
    pub(super) fn matches(&mut self, expected: &str, actual: &str) -> bool {
        let parts = parts(expected);
        let mut bound = Vec::new();
        let Some(()) = self.walk(&parts, actual, &mut bound) else { return false };
        self.0.extend(bound);
        true
    }

    fn walk(&self, parts: &[Part<'_>], actual: &str, bound: &mut Vec<(String, String)>) -> Option<()> {
        let Some((first, rest)) = parts.split_first() else { return actual.is_empty().then_some(()) };
        match first {
            Part::Literal(literal) => self.walk(rest, actual.strip_prefix(literal)?, bound),
            Part::Placeholder(name) => {
                let known = self.0.get(*name).filter(|_| !rebinds(name));
                let known = known.or_else(|| bound.iter().find(|(n, _)| n == name).map(|(_, value)| value)).cloned();
                if let Some(known) = known {
                    return self.walk(rest, actual.strip_prefix(known.as_str())?, bound);
                }
                for (end, _) in actual.char_indices().skip(1).chain([(actual.len(), ' ')]) {
                    if end == 0 {
                        continue;
                    }
                    if !fits(name, &actual[..end]) || binds(name) && self.taken(name, &actual[..end], bound) {
                        continue;
                    }
                    let before = bound.len();
                    if binds(name) {
                        bound.push(((*name).to_owned(), actual[..end].to_owned()));
                    }
                    if self.walk(rest, &actual[end..], bound).is_some() {
                        return Some(());
                    }
                    bound.truncate(before);
                }
                None
            }
        }
    }
}
