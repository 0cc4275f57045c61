//! Roles.

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::names;
use crate::object::list;
use crate::strategy::Strategy;
use crate::validation::{MetadataCheck, MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    kind: "Role",
    plural: "roles",
    singular: "role",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "roles",
    strategy: Strategy { allow_create_on_update: true, ..Strategy::PLAIN },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        metadata: MetadataCheck::First(names::path_segment),
        rules: |errors, role, _| policy_rules(errors, true, role),
        ..Validation::PLAIN
    },
    ..Kind::PLAIN
};

/// Checks the policy rules of a role; a namespaced role cannot grant URLs.
pub(super) fn policy_rules(errors: &mut ErrorList, namespaced: bool, object: &Value) {
    let path = Path::root("rules");
    for (index, rule) in list(object, "rules").iter().enumerate() {
        let path = path.index(index);
        if list(rule, "verbs").is_empty() {
            errors.required(path.child("verbs"), "verbs must contain at least one value");
        }
        let urls = !list(rule, "nonResourceURLs").is_empty();
        if urls {
            if namespaced {
                let value = &rule["nonResourceURLs"];
                errors.invalid(
                    path.child("nonResourceURLs"),
                    value,
                    "namespaced rules cannot apply to non-resource URLs",
                );
            }
            let resources =
                ["apiGroups", "resources", "resourceNames"].iter().any(|field| !list(rule, field).is_empty());
            if resources {
                let value = &rule["nonResourceURLs"];
                errors.invalid(
                    path.child("nonResourceURLs"),
                    value,
                    "rules cannot apply to both regular resources and non-resource URLs",
                );
            }
            continue;
        }
        if list(rule, "apiGroups").is_empty() {
            errors.required(path.child("apiGroups"), "resource rules must supply at least one api group");
        }
        if list(rule, "resources").is_empty() {
            errors.required(path.child("resources"), "resource rules must supply at least one resource");
        }
    }
}
