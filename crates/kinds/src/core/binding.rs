//! Bindings, the bodies of `pods/binding`: they place a pod on a node.

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::kind::{CREATE_ONLY, Kind, Scope};
use crate::object::text;
use crate::validation::{MetadataCheck, Validation};

pub(crate) static KIND: Kind = Kind {
    kind: "Binding",
    plural: "bindings",
    singular: "binding",
    scope: Scope::Namespaced,
    verbs: CREATE_ONLY,
    validation: Validation { metadata: MetadataCheck::Never, rules, ..Validation::PLAIN },
    ..Kind::PLAIN
};

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let path = Path::root("target");
    let kind = text(&object["target"], "kind");
    if !matches!(kind, "" | "Node") {
        errors.not_supported(path.child("kind"), kind, &["Node", "<empty>"]);
    }
    if text(&object["target"], "name").is_empty() {
        errors.required(path.child("name"), "");
    }
}
