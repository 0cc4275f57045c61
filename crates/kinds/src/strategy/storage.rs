//! Persistent volumes and claims.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(super) fn volume_on_create(object: &mut Map<String, Value>, now: Timestamp) {
    let status = json!({ "phase": "Pending", "lastPhaseTransitionTime": crate::codec::write_time(now) });
    object.insert("status".into(), status);
}

pub(super) fn volume_on_update(object: &mut Map<String, Value>, old: &Value, subresource: &str, now: Timestamp) {
    const TRANSITION: &str = "lastPhaseTransitionTime";
    if subresource != "status" {
        return;
    }
    let Some(Value::Object(status)) = object.get_mut("status") else { return };
    let same_phase = status.get("phase") == old["status"].get("phase");
    let (given, before) = (status.get(TRANSITION).cloned(), old["status"].get(TRANSITION).cloned());
    if same_phase && given.is_none() {
        if let Some(before) = before {
            status.insert(TRANSITION.into(), before);
        }
    } else if !same_phase && (given.is_none() || given == before) {
        status.insert(TRANSITION.into(), crate::codec::write_time(now).into());
    }
}

pub(super) fn claim_on_create(object: &mut Map<String, Value>, _now: Timestamp) {
    object.insert("status".into(), json!({ "phase": "Pending" }));
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        data_sources(spec, None);
    }
}

pub(super) fn claim_on_update(object: &mut Map<String, Value>, old: &Value, subresource: &str, _now: Timestamp) {
    if subresource.is_empty()
        && let Some(Value::Object(spec)) = object.get_mut("spec")
    {
        data_sources(spec, Some(&old["spec"]));
    }
}

/// Keeps the two spellings of a data source in step (KEP-1495); what only the older one could say is dropped.
fn data_sources(spec: &mut Map<String, Value>, old: Option<&Value>) {
    let in_use = old.is_some_and(|old| old.get("dataSource").is_some() || old.get("dataSourceRef").is_some());
    if !in_use && !spec.contains_key("dataSourceRef") {
        let known = spec.get("dataSource").is_some_and(|source| {
            let group = source["apiGroup"].as_str().unwrap_or("");
            matches!(
                (group, source["kind"].as_str().unwrap_or("")),
                ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
            )
        });
        if !known {
            spec.remove("dataSource");
        }
    }
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".into(), source);
        }
        (None, Some(Value::Object(mut reference)))
            if reference.get("namespace").is_none_or(|namespace| namespace == "") =>
        {
            reference.remove("namespace");
            spec.insert("dataSource".into(), Value::Object(reference));
        }
        _ => {}
    }
}
