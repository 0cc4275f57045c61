//! LimitRanges.

use serde_json::Value;

use crate::defaulting::{child, child_or_new, children, round_resource_list};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::object::{Object, text};
use crate::strategy::Strategy;

pub(crate) static KIND: Kind = Kind {
    kind: "LimitRange",
    plural: "limitranges",
    singular: "limitrange",
    scope: Scope::Namespaced,
    short_names: &["limits"],
    verbs: STANDARD_VERBS,
    storage_prefix: "limitranges",
    defaults,
    strategy: Strategy { allow_create_on_update: true, ..Strategy::PLAIN },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    for item in children(spec, "limits") {
        if text(item, "type") == "Container" {
            fill(item, "default", "max");
            fill(item, "defaultRequest", "default");
            fill(item, "defaultRequest", "min");
        }
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            round_resource_list(item, list);
        }
    }
}

/// Copies what `to` lacks from `from`.
fn fill(item: &mut Object, to: &str, from: &str) {
    let Some(Value::Object(from)) = item.get(from).cloned() else { return };
    let Some(to) = child_or_new(item, to) else { return };
    for (name, quantity) in from {
        to.entry(name).or_insert(quantity);
    }
}
