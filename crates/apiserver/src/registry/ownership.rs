//! Who owns which field of an object, noted in `metadata.managedFields` on every write (`bayplan_patch::apply`).

use bayplan_kinds::codec::{self, Conversion, Empties};
use bayplan_kinds::{Kind, Scheme};
use bayplan_model::schema::{Definition, Schema};
use bayplan_model::status::{Cause, Details, Status, reason};
use bayplan_patch::apply::{self, Applied, Error, Ownership, Request, Versions, put_managed_fields};
use jiff::Timestamp;
use serde_json::Value;

use super::{Call, metadata};
use crate::request::FieldValidation;
use crate::status_errors;

/// Who owns what the server itself writes, as upstream, whose server is a client of itself.
const SERVER: &str = "kube-apiserver";
/// The same for the configuration of priority and fairness.
const FLOW_CONTROL: &str = "api-priority-and-fairness-config-producer-v1";

/// The versions of one kind.
struct KindVersions(&'static Kind);

impl KindVersions {
    fn in_version(&self, version: &str) -> Option<&'static Kind> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = Scheme::built_in().by_kind(group, version, self.0.kind)?;
        std::ptr::eq(kind.storage(), self.0.storage()).then_some(kind)
    }
}

impl Versions for KindVersions {
    fn knows(&self, version: &str) -> bool {
        self.in_version(version).is_some()
    }

    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<(Value, &'static Definition)> {
        let (from, to) = (self.in_version(from)?, self.in_version(to)?);
        let mut object = object.clone();
        from.convert_to_storage(&mut object);
        to.convert_from_storage(&mut object);
        Some((object, definition_of(to)?))
    }
}

fn definition_of(kind: &Kind) -> Option<&'static Definition> {
    Schema::get().definition(kind.group, kind.version, kind.kind)
}

/// Whose write it is: the resource in the version of the request, and the manager.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(super) resource: &'static Kind,
    pub(super) subresource: &'a str,
    pub(super) manager: &'a str,
}

impl<'a> From<Call<'a>> for Writer<'a> {
    fn from(call: Call<'a>) -> Writer<'a> {
        Writer { resource: call.resource, subresource: call.subresource, manager: call.manager }
    }
}

impl Writer<'_> {
    /// The server itself.
    pub(super) fn server(resource: &'static Kind, subresource: &'static str) -> Writer<'static> {
        let of_flow_control = resource.group == "flowcontrol.apiserver.k8s.io";
        Writer { resource, subresource, manager: if of_flow_control { FLOW_CONTROL } else { SERVER } }
    }

    /// Notes who owns the fields of a new object.
    pub(crate) fn track_create(self, object: &mut Value, empties: &Empties, now: Timestamp) {
        self.track_update(&self.resource.empty(), object, empties, now);
    }

    /// Notes who owns the fields of a changed object.
    pub(super) fn track_update(self, old: &Value, new: &mut Value, empties: &Empties, now: Timestamp) {
        if self.resource == self.resource.storage() && empties.is_empty() {
            self.with_request(now, |request| apply::update(old, new, &request));
            return;
        }
        // What counts is the object as its writer sees it: with what they gave empty, and as it will be read in their
        // version.
        let mut seen = empties.as_written(new).into_owned();
        self.resource.convert_to_storage(&mut seen);
        self.resource.convert_from_storage(&mut seen);
        self.with_request(now, |request| apply::update(old, &mut seen, &request));
        put_managed_fields(new, seen["metadata"]["managedFields"].take());
    }

    fn with_request<T>(self, now: Timestamp, run: impl FnOnce(Request<'_>) -> T) -> Option<T> {
        let Writer { resource, subresource, manager } = self;
        let definition = definition_of(resource)?;
        Some(run(Request {
            api_version: &resource.api_version(),
            kind: resource.kind,
            definition,
            subresource,
            manager,
            now: &metadata::time(now),
            ownership: resource.ownership(subresource),
            versions: &KindVersions(resource),
        }))
    }

    /// The live object after the server applied to it, if that changes anything; no other owner can refuse.
    pub(super) fn applied(self, live: &Value, applied: &Value, now: Timestamp) -> Result<Option<Value>, Status> {
        let kind = self.resource.group_version_kind();
        let Applied { object, managed_fields } = self.apply(live, applied, true, now)?;
        let Some(merged) = object else { return Ok(None) };
        let mut object = codec::converted(kind, merged, Conversion::Restored, FieldValidation::Ignore)?.object;
        put_managed_fields(&mut object, managed_fields);
        Ok(Some(object))
    }

    /// Applies an object to the live one.
    pub(super) fn apply(self, live: &Value, applied: &Value, force: bool, now: Timestamp) -> Result<Applied, Status> {
        let empty = self.resource.empty();
        let result = self.with_request(now, |request| apply::apply(live, &empty, applied, force, &request));
        let unknown = || status_errors::internal(format!("the type {} is not in the schema", self.resource.kind));
        result.ok_or_else(unknown)?.map_err(refused)
    }
}

/// A scale has one version and no kind of its own.
struct OneVersion;

impl Versions for OneVersion {
    fn knows(&self, _version: &str) -> bool {
        false
    }

    fn convert(&self, _object: &Value, _from: &str, _to: &str) -> Option<(Value, &'static Definition)> {
        None
    }
}

/// The writes of a scale, whose entries are derived from those of its workload.
pub(crate) struct ScaleWriter<'a> {
    pub(crate) manager: &'a str,
    pub(crate) now: Timestamp,
}

impl ScaleWriter<'_> {
    fn with_request<T>(&self, run: impl FnOnce(Request<'_>) -> T) -> Option<T> {
        Some(run(Request {
            api_version: "autoscaling/v1",
            kind: "Scale",
            definition: Schema::get().definition("autoscaling", "v1", "Scale")?,
            subresource: "scale",
            manager: self.manager,
            now: &metadata::time(self.now),
            ownership: Ownership::AllBut(&[]),
            versions: &OneVersion,
        }))
    }

    /// Notes who owns the replicas of a changed scale.
    pub(crate) fn track_update(&self, old: &Value, new: &mut Value) {
        self.with_request(|request| apply::update(old, new, &request));
    }

    /// Applies a scale to the live one.
    pub(crate) fn apply(&self, live: &Value, applied: &Value, force: bool) -> Result<Applied, Status> {
        let empty = serde_json::json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {}, "spec": {}, "status": {"replicas": 0},
        });
        let result = self.with_request(|request| apply::apply(live, &empty, applied, force, &request));
        result.ok_or_else(|| status_errors::internal("the type Scale is not in the schema"))?.map_err(refused)
    }
}

/// The answer to an object that cannot be applied.
fn refused(error: Error) -> Status {
    let message = error.to_string();
    match error {
        Error::BadRequest(message) => status_errors::bad_request(message),
        Error::Unfit(message) => status_errors::plain(message),
        Error::Conflicts(conflicts) => {
            let causes = conflicts.into_iter().map(|conflict| Cause {
                reason: "FieldManagerConflict".to_owned(),
                message: format!("conflict with {}", conflict.manager),
                field: conflict.field,
            });
            Status::failure(409, reason::CONFLICT, message)
                .with_details(Details { causes: causes.collect(), ..Details::default() })
        }
    }
}

/// The object without managed fields, for one that they make too large to be stored; `None` if it has none, or if
/// somebody applied it, who would lose what they own. Upstream tries again in the same way.
pub(super) fn without_entries(object: &Value) -> Option<Value> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    if entries.is_empty() || entries.iter().any(|entry| entry["operation"] == "Apply") {
        return None;
    }
    let mut smaller = object.clone();
    put_managed_fields(&mut smaller, Value::Null);
    Some(smaller)
}

/// Gives the managed fields their old times when nothing else changed: an object that is written again as it is stays
/// as it is (upstream's `IgnoreManagedFieldsTimestampsTransformer`).
pub(super) fn keep_times(new: &mut Value, old: &Value) {
    let entries = &old["metadata"]["managedFields"];
    let changed = &new["metadata"]["managedFields"];
    if entries == changed || !apply::differ_only_in_time(entries, changed) {
        return;
    }
    let (Some(old), Some(object)) = (old.as_object(), new.as_object()) else { return };
    let equal = old.len() == object.len()
        && old.iter().all(|(key, value)| match (key.as_str(), object.get(key)) {
            (_, None) => false,
            ("metadata", Some(metadata)) => equal_but_entries(value, metadata),
            (_, Some(other)) => other == value,
        });
    if equal {
        put_managed_fields(new, entries.clone());
    }
}

fn equal_but_entries(a: &Value, b: &Value) -> bool {
    let fields = |of: &Value| of.as_object().map_or(0, serde_json::Map::len);
    let same = |(key, value): (&String, &Value)| key == "managedFields" || b.get(key) == Some(value);
    fields(a) == fields(b) && a.as_object().into_iter().flatten().all(same)
}

#[cfg(test)]
mod tests {
    use bayplan_kinds::codec::{self, Encoding, FieldValidation};
    use serde_json::json;

    use super::*;

    #[test]
    fn whoever_gives_a_required_list_empty_owns_it() {
        let resource = bayplan_kinds::find("rbac.authorization.k8s.io", "v1", "roles").unwrap();
        let owned = |body: &[u8]| {
            let kind = resource.group_version_kind();
            let mut decoded = codec::decode(kind, Encoding::Json, body, FieldValidation::Strict).unwrap();
            let writer = Writer { resource, subresource: "", manager: "m" };
            writer.track_create(&mut decoded.object, &decoded.empties, Timestamp::UNIX_EPOCH);
            assert_eq!(decoded.object["rules"], Value::Null);
            decoded.object["metadata"]["managedFields"][0]["fieldsV1"].clone()
        };
        assert_eq!(owned(br#"{"metadata":{"name":"a"},"rules":[]}"#), json!({"f:rules": {}}));
        assert_eq!(owned(br#"{"metadata":{"name":"a","labels":{}}}"#), Value::Null);
    }
}
