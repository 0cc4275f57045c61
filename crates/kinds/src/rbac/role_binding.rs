//! RoleBindings.

use jiff::Timestamp;
use serde_json::Value;

use crate::defaulting::{child_or_new, children, default};
use crate::field::{ErrorList, GoValue, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::names;
use crate::object::{Object, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string, wide};
use crate::strategy::Strategy;
use crate::validation::{MetadataCheck, MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    kind: "RoleBinding",
    plural: "rolebindings",
    singular: "rolebinding",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "rolebindings",
    defaults,
    strategy: Strategy { allow_create_on_update: true, ..Strategy::PLAIN },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        metadata: MetadataCheck::First(names::path_segment),
        rules: |errors, binding, _| reference_rules(errors, &["Role", "ClusterRole"], binding),
        change_rules,
        ..Validation::PLAIN
    },
    printer: PRINTER,
    ..Kind::PLAIN
};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

pub(super) const PRINTER: Printer = Printer {
    columns: &[NAME, string("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")],
    cells,
    ..Printer::PLAIN
};

pub(super) fn defaults(object: &mut Object) {
    if let Some(role) = child_or_new(object, "roleRef") {
        default(role, "apiGroup", RBAC_GROUP);
    }
    for subject in children(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default(subject, "apiGroup", RBAC_GROUP);
        }
    }
}

/// Checks a binding's role, which must be of one of `kinds`, and its subjects.
pub(super) fn reference_rules(errors: &mut ErrorList, kinds: &[&str], object: &Value) {
    let role = &object["roleRef"];
    let path = Path::root("roleRef");
    if text(role, "apiGroup") != RBAC_GROUP {
        errors.not_supported(path.child("apiGroup"), text(role, "apiGroup"), &[RBAC_GROUP]);
    }
    if !kinds.contains(&text(role, "kind")) {
        errors.not_supported(path.child("kind"), text(role, "kind"), kinds);
    }
    match text(role, "name") {
        "" => errors.required(path.child("name"), ""),
        name => errors.all_invalid(path.child("name"), name, names::path_segment(name)),
    }
    let path = Path::root("subjects");
    for (index, subject) in list(object, "subjects").iter().enumerate() {
        let path = path.index(index);
        let (group, name) = (text(subject, "apiGroup"), text(subject, "name"));
        if name.is_empty() {
            errors.required(path.child("name"), "");
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    errors.all_invalid(path.child("name"), name, names::dns_subdomain(name));
                }
                if !group.is_empty() {
                    errors.not_supported(path.child("apiGroup"), group, &[""]);
                }
                // A binding in a namespace gives it to the accounts that name none.
                if !kinds.contains(&"Role") && text(subject, "namespace").is_empty() {
                    errors.required(path.child("namespace"), "");
                }
            }
            "User" | "Group" => {
                if group != RBAC_GROUP {
                    errors.not_supported(path.child("apiGroup"), group, &[RBAC_GROUP]);
                }
            }
            other => errors.not_supported(path.child("kind"), other, &["ServiceAccount", "User", "Group"]),
        }
    }
}

pub(super) fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    if new["roleRef"] != old["roleRef"] {
        let shown = GoValue("io.k8s.api.rbac.v1.RoleRef", &new["roleRef"]);
        errors.invalid(Path::root("roleRef"), shown, "cannot change roleRef");
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let role = &object["roleRef"];
    let of_kind = |kind: &str| {
        let subjects = list(object, "subjects").iter().filter(|subject| text(subject, "kind") == kind);
        let names = subjects.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
            _ => text(subject, "name").to_owned(),
        });
        Value::from(names.collect::<Vec<_>>().join(", "))
    };
    let role = format!("{}/{}", text(role, "kind"), text(role, "name"));
    vec![
        name_of(object),
        role.into(),
        age_of(object, now),
        of_kind("User"),
        of_kind("Group"),
        of_kind("ServiceAccount"),
    ]
}
