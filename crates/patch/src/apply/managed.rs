//! The entries of `metadata.managedFields`: who owns what, since when.

use std::collections::BTreeMap;

use bayplan_model::quoted::Quoted;
use serde_json::{Map, Value, json};

use super::fields::{self, Fields};

/// How many entries of updates an object keeps; older ones are merged.
const UPDATE_ENTRIES_MAX: usize = 10;
/// Who owns what the merged entries owned.
const ANCIENT_CHANGES: &str = "ancient-changes";
/// The manager of requests that name none.
const UNKNOWN: &str = "unknown";

/// How a manager came to own its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// What makes two entries the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    /// Empty for appliers, which own their fields in whatever version they applied last.
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

impl Identity {
    pub(crate) fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Identity {
        Identity {
            manager: if manager.is_empty() { UNKNOWN } else { manager }.to_owned(),
            operation,
            api_version: if operation == Operation::Apply { "" } else { api_version }.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// How messages name it.
    pub(crate) fn shown(&self) -> String {
        let mut shown = Quoted(&self.manager).to_string();
        if !self.subresource.is_empty() {
            shown.push_str(&format!(" with subresource {}", Quoted(&self.subresource)));
        }
        if self.operation == Operation::Update {
            shown.push_str(&format!(" using {}", self.api_version));
        }
        shown
    }
}

/// The rest of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Owned {
    pub(crate) api_version: String,
    pub(crate) time: Option<String>,
    pub(crate) fields: Fields,
}

/// All entries of an object.
pub(crate) type Managers = BTreeMap<Identity, Owned>;

/// Whether a list of entries asks to forget all of them: it is empty, or has one empty entry.
pub(crate) fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([entry]) => entry.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Reads entries as the server wrote them, or as somebody sent them; `None` if one is invalid.
pub(crate) fn read(entries: Value, sent: bool) -> Option<Managers> {
    let Value::Array(entries) = entries else { return Some(Managers::new()) };
    entries.into_iter().map(|entry| entry_of(entry, sent)).collect()
}

fn entry_of(entry: Value, sent: bool) -> Option<(Identity, Owned)> {
    let Value::Object(mut entry) = entry else { return None };
    let mut text = |key: &str| match entry.remove(key) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() || text("fieldsType") != "FieldsV1" {
        return None;
    }
    let identity = Identity {
        manager: text("manager"),
        operation,
        api_version: if operation == Operation::Apply { String::new() } else { api_version.clone() },
        subresource: text("subresource"),
    };
    let time = Some(text("time")).filter(|time| !time.is_empty());
    let fields = match entry.remove("fieldsV1") {
        None => Fields::new(),
        Some(fields) if sent => fields::normalized(&fields)?,
        Some(Value::Object(fields)) => fields,
        Some(_) => return None,
    };
    Some((identity, Owned { api_version, time, fields }))
}

/// Writes the entries in upstream's order.
pub(crate) fn write(managers: Managers) -> Value {
    let mut entries: Vec<(Identity, Owned)> = managers.into_iter().collect();
    entries.sort_by(|(a, x), (b, y)| {
        let key = |of: &Identity| of.operation;
        (key(a), &x.time, &a.manager, &x.api_version, &a.subresource).cmp(&(
            key(b),
            &y.time,
            &b.manager,
            &y.api_version,
            &b.subresource,
        ))
    });
    entries.into_iter().map(|(identity, owned)| written(identity, owned)).collect()
}

fn written(identity: Identity, owned: Owned) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, text: String| {
        if !text.is_empty() {
            entry.insert(key.to_owned(), Value::String(text));
        }
    };
    put("manager", identity.manager);
    put("operation", identity.operation.as_str().to_owned());
    put("apiVersion", owned.api_version);
    put("subresource", identity.subresource);
    put("time", owned.time.unwrap_or_default());
    put("fieldsType", "FieldsV1".to_owned());
    entry.insert("fieldsV1".to_owned(), Value::Object(owned.fields));
    Value::Object(entry)
}

/// Merges the oldest entries of updates, by version, until there are no more than ten.
pub(crate) fn cap(managers: &mut Managers) {
    let updates = managers.keys().filter(|identity| identity.operation == Operation::Update);
    let mut length = updates.clone().count();
    if length <= UPDATE_ENTRIES_MAX {
        return;
    }
    let mut updates: Vec<Identity> = updates.cloned().collect();
    updates.sort_by(|a, b| (&managers[a].time, a).cmp(&(&managers[b].time, b)));
    let mut first_of: BTreeMap<String, Identity> = BTreeMap::new();
    for identity in updates {
        if length <= UPDATE_ENTRIES_MAX {
            break;
        }
        let version = managers[&identity].api_version.clone();
        let Some(first) = first_of.get(&version) else {
            first_of.insert(version, identity);
            continue;
        };
        let bucket = Identity::new(ANCIENT_CHANGES, Operation::Update, &version, "");
        if !managers.contains_key(&bucket)
            && let Some(owned) = managers.remove(first)
        {
            managers.insert(bucket.clone(), owned);
        }
        if bucket != identity
            && let Some(newer) = managers.remove(&identity)
            && let Some(owned) = managers.get_mut(&bucket)
        {
            fields::add(&mut owned.fields, newer.fields);
            owned.time = newer.time;
        }
        length -= 1;
    }
}

/// The entries of an object, taken out of its metadata.
pub(crate) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Puts entries into the metadata of an object; none are not written.
pub(crate) fn put(object: &mut Value, entries: Value) {
    if entries.as_array().is_none_or(Vec::is_empty) {
        take(object);
        return;
    }
    if object.get("metadata").is_none_or(|metadata| !metadata.is_object()) {
        object["metadata"] = json!({});
    }
    object["metadata"]["managedFields"] = entries;
}

/// Whether two lists of entries differ, and in nothing but their times.
pub(crate) fn differ_only_in_time(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_array(), new.as_array()) else { return false };
    let timeless = |entry: &Value| -> Vec<(String, Value)> {
        let fields = entry.as_object().into_iter().flatten().filter(|(key, _)| *key != "time");
        fields.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    old.len() == new.len()
        && old.iter().zip(new).any(|(old, new)| old["time"] != new["time"])
        && old.iter().zip(new).all(|(old, new)| timeless(old) == timeless(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, second: usize) -> Value {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1",
            "time": format!("2026-01-01T00:00:{second:02}Z"),
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:{manager}"): {}}},
        })
    }

    #[test]
    fn old_updates_are_merged_beyond_ten_managers() {
        let entries: Value = (0..12).map(|n| entry(&format!("m{n:02}"), n)).collect();
        let mut managers = read(entries, false).unwrap();
        cap(&mut managers);
        assert_eq!(managers.len(), 10);
        let bucket = &managers[&Identity::new(ANCIENT_CHANGES, Operation::Update, "v1", "")];
        assert_eq!(json!(bucket.fields), json!({"f:data": {"f:m00": {}, "f:m01": {}, "f:m02": {}}}));
        assert_eq!(bucket.time.as_deref(), Some("2026-01-01T00:00:02Z"));
    }

    #[test]
    fn entries_are_read_and_written_as_they_are() {
        let entries = json!([entry("a", 1), entry("b", 1), entry("a2", 2)]);
        assert_eq!(write(read(entries.clone(), true).unwrap()), entries);
        for wrong in
            [json!([{"operation": "Delete"}]), json!([{"operation": "Apply", "fieldsType": "FieldsV1"}]), json!([1])]
        {
            assert_eq!(read(wrong, true), None);
        }
        assert!(is_reset(&json!([])) && is_reset(&json!([{}])) && !is_reset(&entries) && !is_reset(&Value::Null));
    }

    #[test]
    fn times_alone_are_no_difference() {
        let (old, new) = (json!([entry("a", 1)]), json!([entry("a", 2)]));
        assert!(differ_only_in_time(&old, &new));
        assert!(!differ_only_in_time(&old, &old));
        assert!(!differ_only_in_time(&old, &json!([entry("b", 2)])));
    }
}
