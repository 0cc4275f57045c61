//! Generated names, as recordings write them: `$RS1`, `$HASH1`, `$RS1-$POD`.

use serde_json::Value;

use super::super::cluster::Cluster;

/// How many characters a generated name ends in.
const GENERATED_CHARS: usize = 5;

/// The ReplicaSets in the order of their creation.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Name and hash of those that a Deployment created.
    hashed: Vec<(String, String)>,
    /// Names of the others.
    given: Vec<String>,
}

impl Names {
    /// The names in a cluster.
    pub(super) fn of(cluster: &Cluster) -> Names {
        let mut names = Names::default();
        for set in cluster.created.iter().filter(|created| created.kind == "ReplicaSet") {
            names.observe(&set.metadata);
        }
        names
    }

    /// Notes a ReplicaSet.
    fn observe(&mut self, metadata: &Value) {
        let Some(name) = metadata["name"].as_str() else { return };
        match metadata["labels"]["pod-template-hash"].as_str() {
            Some(hash) if name.ends_with(&format!("-{hash}")) => {
                if !self.hashed.iter().any(|(known, _)| known == name) {
                    self.hashed.push((name.into(), hash.into()));
                }
            }
            _ if self.given.iter().any(|known| known == name) => {}
            _ => self.given.push(name.into()),
        }
    }

    /// The name behind a placeholder, or the text itself.
    pub(super) fn real(&self, text: &str) -> String {
        let number = text.strip_prefix("$RS").and_then(|number| number.parse::<usize>().ok());
        number.and_then(|number| self.hashed.get(number.checked_sub(1)?)).map_or(text, |(name, _)| name).to_owned()
    }

    /// A text with placeholders for names and hashes.
    pub(super) fn shown(&self, text: &str) -> String {
        for (at, (_, hash)) in self.hashed.iter().enumerate() {
            if text == hash {
                return format!("$HASH{}", at + 1);
            }
        }
        let mut text = text.to_owned();
        for (at, (name, _)) in self.hashed.iter().enumerate() {
            text = text.replace(name.as_str(), &format!("$RS{}", at + 1));
        }
        let placeholders = (1..=self.hashed.len()).rev().map(|number| format!("$RS{number}"));
        for set in placeholders.chain(self.given.iter().cloned()) {
            text = without_generated(&text, &set);
        }
        text
    }

    /// A value with placeholders in all its strings.
    pub(super) fn shown_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.shown(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.shown_in(item)),
            Value::Object(map) => map.values_mut().for_each(|value| self.shown_in(value)),
            _ => {}
        }
    }
}

/// `<set>-x1y2z` becomes `<set>-$POD`.
fn without_generated(text: &str, set: &str) -> String {
    let prefix = format!("{set}-");
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(&prefix) {
        shown.push_str(before);
        shown.push_str(&prefix);
        let word = after.chars().take_while(char::is_ascii_alphanumeric).count();
        rest = after;
        if word == GENERATED_CHARS {
            shown.push_str("$POD");
            rest = &after[word..];
        }
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn generated_names_become_placeholders_and_given_ones_stay() {
        let mut names = Names::default();
        names.observe(&json!({"name": "web-6b5", "labels": {"pod-template-hash": "6b5"}}));
        names.observe(&json!({"name": "pre", "labels": {"app": "web"}}));
        for (text, shown) in [
            ("web-6b5", "$RS1"),
            ("6b5", "$HASH1"),
            ("Created pod: web-6b5-x1y2z", "Created pod: $RS1-$POD"),
            ("pods \"pre-x1y2z\" is forbidden", "pods \"pre-$POD\" is forbidden"),
            ("Scaled up replica set web-6b5 from 0 to 4", "Scaled up replica set $RS1 from 0 to 4"),
            ("Deleted pod: orphan-2", "Deleted pod: orphan-2"),
        ] {
            assert_eq!(names.shown(text), shown);
        }
        assert_eq!(["$RS1", "$RS2", "pre"].map(|name| names.real(name)), ["web-6b5", "$RS2", "pre"]);
    }
}
