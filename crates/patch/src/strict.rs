//! What a patch says twice, or says that no patch has: the findings of upstream's strict JSON decoder.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The most findings; upstream's decoder stops there, too.
const FOUND_MAX: usize = 100;

/// How many bytes of paths are compared to find out whether a finding is a new one.
const BYTES_MAX: usize = 1024 * 1024;

/// The fields of an operation of a JSON patch.
const OPERATION: [&str; 4] = ["op", "path", "from", "value"];

/// Repeated fields of a merge patch or a strategic merge patch.
pub fn of_object(body: &[u8]) -> Vec<String> {
    found(body, false)
}

/// Repeated and unknown fields of a JSON patch.
pub fn of_operations(body: &[u8]) -> Vec<String> {
    found(body, true).into_iter().map(|finding| format!("json patch {finding}")).collect()
}

/// A body that cannot be read has no findings: it is refused for a better reason.
fn found(body: &[u8], operations: bool) -> Vec<String> {
    let mut findings = Findings { operations, ..Findings::default() };
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    match (Walk { findings: &mut findings }).deserialize(&mut deserializer) {
        Ok(()) => findings.found,
        Err(_) => Vec::new(),
    }
}

#[derive(Default)]
struct Findings {
    operations: bool,
    path: Vec<Step>,
    found: Vec<String>,
    bytes: usize,
}

enum Step {
    Key(String),
    Index(usize),
}

impl Findings {
    fn note(&mut self, what: &str, name: &str) {
        if self.found.len() >= FOUND_MAX || self.bytes > BYTES_MAX {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Key(key) => dotted(&mut path, key),
            }
        }
        dotted(&mut path, name);
        let finding = format!("{what} field {path:?}");
        self.bytes += finding.len();
        if !self.found.contains(&finding) {
            self.found.push(finding);
        }
    }

    /// Whether the current object is an operation.
    fn is_operation(&self) -> bool {
        self.operations && matches!(&*self.path, [Step::Index(_)])
    }
}

fn dotted(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

struct Walk<'f> {
    findings: &'f mut Findings,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = std::collections::BTreeSet::new();
        let is_operation = self.findings.is_operation();
        while let Some(key) = map.next_key::<String>()? {
            if is_operation && !OPERATION.contains(&key.as_str()) {
                self.findings.note("unknown", &key);
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if !seen.insert(key.clone()) {
                self.findings.note("duplicate", &key);
            }
            self.findings.path.push(Step::Key(key));
            let value = map.next_value_seed(Walk { findings: self.findings });
            self.findings.path.pop();
            value?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        for index in 0.. {
            self.findings.path.push(Step::Index(index));
            let element = list.next_element_seed(Walk { findings: self.findings });
            self.findings.path.pop();
            if element?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_fields_are_named_by_their_path() {
        let cases: [(&str, &[&str]); 4] = [
            (r#"{"spec":{"a":1,"a":2,"b":[{"c":1,"c":2}]}}"#, &["spec.a", "spec.b[0].c"]),
            (r#"{"a":[{"b":1},{"b":2}],"c":{"a":null}}"#, &[]),
            (r#"{"a":1,"a":2,"a":3}"#, &["a"]),
            (r#"{"a":1,"a":2"#, &[]),
        ];
        for (body, paths) in cases {
            let expected: Vec<String> = paths.iter().map(|path| format!("duplicate field {path:?}")).collect();
            assert_eq!(of_object(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn operations_have_four_fields() {
        let body = br#"[{"op":"add","value":{"foo":1},"value":{"a":1,"a":2},"foo":1},{"foo":{"b":1,"b":2}}]"#;
        let expected = [
            "json patch duplicate field \"[0].value\"",
            "json patch duplicate field \"[0].value.a\"",
            "json patch unknown field \"[0].foo\"",
            "json patch unknown field \"[1].foo\"",
        ];
        assert_eq!(of_operations(body), expected);
    }
}
