//! What chance or the clock decides, as recordings write it: `$NS`, `$TIME`, `$UID(Pod/web-0)`, `work-$R` and
//! `tick-$MIN1`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::cluster::{Cluster, Created};

/// How many characters a generated name ends in.
const GENERATED_CHARS: usize = 5;

/// Characters of a UID.
const UID_CHARS: usize = 36;

/// Replaces what differs between two runs by placeholders.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Texts and what stands for them, longest first.
    texts: Vec<(String, String)>,
    /// Recorded objects by UID, those that are gone included.
    uids: BTreeMap<String, String>,
}

impl Shown {
    /// The placeholders of a cluster, when objects of these kinds are recorded.
    pub(super) fn of(cluster: &Cluster, recorded: &[&str]) -> Shown {
        let mut texts: Vec<(String, String)> = Vec::new();
        let mut minutes: Vec<&str> = Vec::new();
        for created in &cluster.created {
            let name = created.metadata["name"].as_str().unwrap_or_default();
            let generated = created.metadata["generateName"].as_str().and_then(|prefix| {
                let suffix = name.strip_prefix(prefix)?;
                (suffix.len() == GENERATED_CHARS && !prefix.is_empty()).then(|| format!("{prefix}$R"))
            });
            if let Some(generated) = generated {
                texts.push((name.to_owned(), generated));
            }
            if let Some(minute) = scheduled_minute(&created.metadata).filter(|minute| !minutes.contains(minute)) {
                minutes.push(minute);
            }
        }
        texts.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (at, minute) in minutes.iter().enumerate() {
            texts.push((format!("-{minute}"), format!("-$MIN{}", at + 1)));
        }
        texts.push((cluster.namespace.to_owned(), "$NS".into()));
        let mut shown = Shown { texts, uids: BTreeMap::new() };
        let known = cluster.created.iter().filter(|created| recorded.contains(&created.kind.as_str()));
        let uid = |created: &Created| {
            let text = |field: &str| created.metadata[field].as_str().map(ToOwned::to_owned);
            Some((text("uid")?, format!("$UID({}/{})", created.kind, shown.text(&text("name")?))))
        };
        shown.uids = known.filter_map(uid).collect();
        shown
    }

    /// A text with its placeholders.
    pub(super) fn text(&self, text: &str) -> String {
        if is_time(text) {
            return "$TIME".into();
        }
        let mut shown = text.to_owned();
        for (real, placeholder) in &self.texts {
            if shown.contains(real.as_str()) {
                shown = shown.replace(real.as_str(), placeholder);
            }
        }
        self.without_uids(&shown)
    }

    /// A value with placeholders in all its texts.
    pub(super) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(map) => {
                for (field, value) in map {
                    match field.as_str() {
                        "resourceVersion" if value.is_string() => *value = "$RV".into(),
                        _ => self.value(value),
                    }
                }
            }
            _ => {}
        }
    }

    fn without_uids(&self, text: &str) -> String {
        let mut shown = String::new();
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            match rest.get(..UID_CHARS).filter(|word| is_uid(word)) {
                Some(uid) => {
                    shown.push_str(self.uids.get(uid).map_or("$UID", String::as_str));
                    rest = &rest[UID_CHARS..];
                }
                None => {
                    shown.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        shown
    }
}

/// An action with the real texts in place of its placeholders.
pub(super) fn resolve(cluster: &Cluster, value: &mut Value) {
    match value {
        Value::String(text) if text.contains('$') => *text = resolved(cluster, text),
        Value::Array(items) => items.iter_mut().for_each(|item| resolve(cluster, item)),
        Value::Object(map) => map.values_mut().for_each(|value| resolve(cluster, value)),
        _ => {}
    }
}

fn resolved(cluster: &Cluster, text: &str) -> String {
    let mut text = text.replace("$NS", cluster.namespace);
    let mut minutes: Vec<&str> = Vec::new();
    for created in &cluster.created {
        let metadata = &created.metadata;
        if let Some(minute) = scheduled_minute(metadata).filter(|minute| !minutes.contains(minute)) {
            minutes.push(minute);
            text = text.replace(&format!("$MIN{}", minutes.len()), minute);
        }
        if let (Some(name), Some(uid)) = (metadata["name"].as_str(), metadata["uid"].as_str()) {
            text = text.replace(&format!("$UID({}/{name})", created.kind), uid);
        }
    }
    text
}

/// The minute in the name of a Job that a CronJob has created.
fn scheduled_minute(metadata: &Value) -> Option<&str> {
    let mut owners = metadata["ownerReferences"].as_array()?.iter();
    let cron_job = owners.find(|owner| owner["kind"] == "CronJob")?;
    metadata["name"].as_str()?.strip_prefix(cron_job["name"].as_str()?)?.strip_prefix('-')
}

fn is_time(text: &str) -> bool {
    text.len() >= "2026-01-01T00:00:00Z".len() && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok()
}

fn is_uid(word: &str) -> bool {
    word.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}
