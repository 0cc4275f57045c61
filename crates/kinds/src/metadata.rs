//! The rules of `metadata`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{ErrorList, GoValue, Path};
use crate::names;
use crate::object::{list, text};

/// The limit for all annotations of an object together.
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// The type of owner references.
const OWNER_REFERENCE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";

/// Checks a name; returns what is wrong with it.
pub(crate) type NameRule = fn(&str) -> Vec<String>;

/// Checks the metadata of a new object, whose generated name is complete by then.
pub(crate) fn create(errors: &mut ErrorList, metadata: &Value, namespaced: bool, rule: NameRule) {
    create_with_any_finalizer(errors, metadata, namespaced, rule);
    qualified_finalizers(errors, metadata);
}

/// Checks the metadata of a new object of a kind that accepts any finalizer.
pub(crate) fn create_with_any_finalizer(errors: &mut ErrorList, metadata: &Value, namespaced: bool, rule: NameRule) {
    let path = Path::root("metadata");
    let generate = text(metadata, "generateName");
    if !generate.is_empty() {
        // A prefix may end in a dash, because a suffix follows.
        let probe = generate.strip_suffix('-').map_or_else(|| generate.to_owned(), |head| format!("{head}a"));
        errors.all_invalid(path.child("generateName"), generate, rule(&probe));
    }
    match text(metadata, "name") {
        "" => errors.required(path.child("name"), "name or generateName is required"),
        name => errors.all_invalid(path.child("name"), name, rule(name)),
    }
    match (namespaced, text(metadata, "namespace")) {
        (true, "") => errors.required(path.child("namespace"), ""),
        (true, namespace) => errors.all_invalid(path.child("namespace"), namespace, names::dns_label(namespace)),
        (false, "") => {}
        (false, _) => errors.forbidden(path.child("namespace"), "not allowed on this type"),
    }
    errors.non_negative(path.child("generation"), metadata["generation"].as_i64().unwrap_or(0));
    both(errors, metadata);
    finalizers(errors, metadata);
}

/// Checks the metadata of a changed object.
pub(crate) fn update(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("metadata");
    if !old["deletionTimestamp"].is_null() {
        let extra: Vec<&str> = {
            let known: BTreeSet<&str> = list(old, "finalizers").iter().filter_map(Value::as_str).collect();
            let given = list(new, "finalizers").iter().filter_map(Value::as_str);
            let mut extra: Vec<&str> = given.filter(|finalizer| !known.contains(finalizer)).collect();
            extra.sort_unstable();
            extra
        };
        if !extra.is_empty() {
            let shown: Vec<String> = extra.iter().map(|name| format!("{name:?}")).collect();
            errors.forbidden(
                path.child("finalizers"),
                &format!(
                    "no new finalizers can be added if the object is being deleted, \
                     found new finalizers []string{{{}}}",
                    shown.join(", ")
                ),
            );
        }
    }
    if text(new, "resourceVersion").is_empty() {
        errors.invalid(path.child("resourceVersion"), "", "must be specified for an update");
    }
    for field in ["name", "namespace", "uid"] {
        if text(new, field) != text(old, field) {
            errors.invalid(path.child(field), text(new, field), "field is immutable");
        }
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        errors.immutable(path.child(field), &new[field], &old[field]);
    }
    both(errors, new);
}

fn both(errors: &mut ErrorList, metadata: &Value) {
    let path = Path::root("metadata");
    labels(errors, path.child("labels"), &metadata["labels"]);
    annotations(errors, path.child("annotations"), &metadata["annotations"]);
    owner_references(errors, path.child("ownerReferences"), metadata);
    managed_fields(errors, path.child("managedFields"), metadata);
}

pub(crate) fn labels(errors: &mut ErrorList, path: Path<'_>, labels: &Value) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.all_invalid(path, key, names::qualified_name(key));
        let value = value.as_str().unwrap_or("");
        errors.all_invalid(path, value, names::label_value(value));
    }
}

pub(crate) fn annotations(errors: &mut ErrorList, path: Path<'_>, annotations: &Value) {
    let mut bytes = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        errors.all_invalid(path, key, names::qualified_name(&key.to_lowercase()));
        bytes += key.len() + value.as_str().unwrap_or("").len();
    }
    if bytes > ANNOTATIONS_MAX_BYTES {
        errors.too_long(path, ANNOTATIONS_MAX_BYTES);
    }
}

/// Checks the metadata of what is made of a template: labels and annotations alone. Upstream:
/// `ValidateTemplateObjectMeta`.
pub(crate) fn template(errors: &mut ErrorList, path: Path<'_>, metadata: &Value) {
    labels(errors, path.child("labels"), &metadata["labels"]);
    annotations(errors, path.child("annotations"), &metadata["annotations"]);
    for field in metadata.as_object().into_iter().flatten().map(|(field, _)| field.as_str()) {
        if !matches!(field, "labels" | "annotations") && !metadata[field].is_null() {
            errors.forbidden(path.child(field), "cannot be set");
        }
    }
}

fn owner_references(errors: &mut ErrorList, path: Path<'_>, metadata: &Value) {
    let owners = list(metadata, "ownerReferences");
    let mut controller: Option<String> = None;
    for owner in owners {
        let api_version = text(owner, "apiVersion");
        if api_version.rsplit('/').next().unwrap_or("").is_empty() {
            errors.invalid(path.child("apiVersion"), api_version, "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                errors.invalid(path.child(field), "", "must not be empty");
            }
        }
        if (api_version, text(owner, "kind")) == ("v1", "Event") {
            errors.invalid(path, GoValue(OWNER_REFERENCE, owner), "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner["controller"] == true {
            let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            match &controller {
                Some(first) => {
                    errors.invalid_because(path, GoValue(OWNER_REFERENCE, &metadata["ownerReferences"]), || {
                        format!(
                            "Only one reference can have Controller set to true. \
                             Found \"true\" in references for {first} and {this}"
                        )
                    });
                }
                None => controller = Some(this),
            }
        }
    }
}

fn managed_fields(errors: &mut ErrorList, path: Path<'_>, metadata: &Value) {
    for (index, entry) in list(metadata, "managedFields").iter().enumerate() {
        let path = path.index(index);
        if !matches!(text(entry, "operation"), "Apply" | "Update") {
            errors.invalid(path.child("operation"), text(entry, "operation"), "must be `Apply` or `Update`");
        }
        if !matches!(text(entry, "fieldsType"), "" | "FieldsV1") {
            errors.invalid(path.child("fieldsType"), text(entry, "fieldsType"), "must be `FieldsV1`");
        }
    }
}

fn finalizers(errors: &mut ErrorList, metadata: &Value) {
    let path = Path::root("metadata");
    let path = path.child("finalizers");
    let all = list(metadata, "finalizers");
    for finalizer in all.iter().filter_map(Value::as_str) {
        errors.all_invalid(path, finalizer, names::qualified_name(finalizer));
    }
    let has = |name: &str| all.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        errors.invalid(path, &metadata["finalizers"], "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

/// Finalizers other than the three of Kubernetes itself must be qualified by a domain.
pub(crate) fn qualified_finalizers(errors: &mut ErrorList, metadata: &Value) {
    let path = Path::root("metadata");
    let path = path.child("finalizers");
    for (index, finalizer) in list(metadata, "finalizers").iter().filter_map(Value::as_str).enumerate() {
        if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.invalid(path.index(index), finalizer, detail);
        }
    }
}
