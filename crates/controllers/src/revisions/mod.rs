//! ControllerRevisions: the templates that a StatefulSet or DaemonSet has had, each kept under a number and a name
//! with its hash.
//!
//! ```text
//!   template ──data──▶ {"spec":{"template":{…,"$patch":"replace"}}} ──hash──▶ <owner>-<hash>
//! ```

mod history;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bayplan_model::meta::{HasMeta, ObjectMeta, OwnerReference};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::pod_template_hash::{FNV_OFFSET, FNV_PRIME, safe_encode};
use crate::workload::{APPS_V1, template_map};
pub use history::{create, next_revision, renumber, sort, truncate};

/// The label with a StatefulSet revision's hash.
pub const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// The label by which pods, and the revisions of DaemonSets, name a revision.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// The most of an owner's name that its revisions' names keep: names have at most 253 characters, and this leaves 30
/// for the hash.
const OWNER_NAME_MAX: usize = 223;

/// An `apps/v1` ControllerRevision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerRevision {
    /// Always `apps/v1`.
    pub api_version: String,
    /// Always `ControllerRevision`.
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What the revision keeps: a patch that restores it.
    pub data: Arc<Value>,
    /// Its number: the newest has the highest.
    pub revision: i64,
}

impl Default for ControllerRevision {
    fn default() -> Self {
        ControllerRevision {
            api_version: APPS_V1.into(),
            kind: "ControllerRevision".into(),
            metadata: ObjectMeta::default(),
            data: Arc::new(Value::Null),
            revision: 0,
        }
    }
}

impl HasMeta for ControllerRevision {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl ControllerRevision {
    /// Whether both keep the same template.
    pub fn same_data(&self, other: &ControllerRevision) -> bool {
        self.data == other.data
    }

    /// The template it keeps.
    pub fn template(&self) -> Value {
        let mut template = self.data.pointer("/spec/template").cloned().unwrap_or_default();
        if let Value::Object(fields) = &mut template {
            fields.remove("$patch");
        }
        template
    }
}

/// What a revision keeps of a template: the patch that puts it back.
pub fn data(template: &Value) -> Value {
    let mut template = template.clone();
    // Servers before 1.34 write the time that a template never has.
    if let Some(Value::Object(metadata)) = template.get_mut("metadata")
        && metadata.get("creationTimestamp").is_some_and(Value::is_null)
    {
        metadata.remove("creationTimestamp");
    }
    template["$patch"] = "replace".into();
    json!({"spec": {"template": template}})
}

/// The bytes of a revision's data that are hashed: fields in order of their names, and what HTML gives a meaning to
/// escaped, as Go writes JSON.
pub fn raw(data: &Value) -> String {
    let plain = data.to_string();
    let mut escaped = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The hash of a StatefulSet's revision: 32-bit FNV-1 over its bytes and the number of collisions.
pub fn hash(data: &Value, collision_count: i32) -> String {
    let fnv_1 = |hash: u32, byte: u8| hash.wrapping_mul(FNV_PRIME) ^ u32::from(byte);
    let bytes = raw(data);
    let hash = bytes.bytes().chain(collision_count.to_string().into_bytes()).fold(FNV_OFFSET, fnv_1);
    safe_encode(&hash.to_string())
}

/// `<owner>-<hash>`, the owner's name cut where that would be too long.
pub fn name(owner: &str, hash: &str) -> String {
    format!("{}-{hash}", owner.get(..OWNER_NAME_MAX).unwrap_or(owner))
}

/// A revision of an owner's template before it is created. `label` is the one that carries the hash.
pub fn new(
    owner: &ObjectMeta,
    reference: OwnerReference,
    template: &Value,
    (label, hash): (&str, &str),
    revision: i64,
) -> ControllerRevision {
    let mut labels = template_map(template, "/metadata/labels");
    labels.insert(label.into(), hash.into());
    let metadata = ObjectMeta {
        name: name(&owner.name, hash),
        namespace: owner.namespace.clone(),
        labels,
        annotations: owner.annotations.clone(),
        owner_references: vec![reference],
        ..ObjectMeta::default()
    };
    ControllerRevision { metadata, data: Arc::new(data(template)), revision, ..ControllerRevision::default() }
}
