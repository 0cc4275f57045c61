//! The conditions of both kinds.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::object::{list, text};

/// Checks the conditions of a status: each type once.
pub(super) fn rules(errors: &mut ErrorList, object: &Value) {
    let root = Path::root("status");
    let path = root.child("conditions");
    let mut seen = BTreeSet::new();
    for (index, condition) in list(&object["status"], "conditions").iter().enumerate() {
        let path = path.index(index);
        let kind = text(condition, "type");
        if !seen.insert(kind) {
            errors.duplicate(path.child("type"), kind);
        }
        if kind.is_empty() {
            errors.required(path.child("type"), "");
        }
    }
}
