//! What can be done with a resource, as OpenAPI describes it: a path, a method, parameters, a body and an answer.

use bayplan_model::schema::Schema;
use serde_json::{Value, json};

use crate::resources::{Resource, Subresource};

/// One operation.
pub(super) struct Operation {
    pub(super) path: String,
    pub(super) method: &'static str,
    pub(super) id: String,
    /// `x-kubernetes-action`.
    pub(super) action: &'static str,
    /// Group, version and kind it speaks of.
    pub(super) kind: (String, String, String),
    /// Content types and definition of the request's body.
    pub(super) body: Option<(&'static [&'static str], &'static str)>,
    /// Definition of the answer.
    pub(super) answer: &'static str,
    /// Name and type of the query's parameters.
    pub(super) query: Vec<(&'static str, &'static str)>,
}

const OBJECT_TYPES: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const PATCH_TYPES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

const WRITE: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("pretty", "string")];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("pretty", "string"),
    ("propagationPolicy", "string"),
];
const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("pretty", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];

/// How a verb appears in OpenAPI.
struct Form {
    verb: &'static str,
    method: &'static str,
    action: &'static str,
    /// The verb in operation ids.
    word: &'static str,
    /// On the collection, not on an object of it.
    collection: bool,
}

const FORMS: [Form; 7] = [
    Form { verb: "list", method: "get", action: "list", word: "list", collection: true },
    Form { verb: "create", method: "post", action: "post", word: "create", collection: true },
    Form {
        verb: "deletecollection",
        method: "delete",
        action: "deletecollection",
        word: "deleteCollection",
        collection: true,
    },
    Form { verb: "get", method: "get", action: "get", word: "read", collection: false },
    Form { verb: "update", method: "put", action: "put", word: "replace", collection: false },
    Form { verb: "patch", method: "patch", action: "patch", word: "patch", collection: false },
    Form { verb: "delete", method: "delete", action: "delete", word: "delete", collection: false },
];

/// Every operation of a resource and its subresources.
pub(super) fn of(row: &'static Resource) -> Vec<Operation> {
    let mut operations = Vec::new();
    let root = if row.group.is_empty() {
        format!("/api/{}", row.version)
    } else {
        format!("/apis/{}/{}", row.group, row.version)
    };
    let collection = if row.namespaced() {
        format!("{root}/namespaces/{{namespace}}/{}", row.plural)
    } else {
        format!("{root}/{}", row.plural)
    };
    for form in FORMS.iter().filter(|form| row.verbs.contains(&form.verb)) {
        let path = if form.collection { collection.clone() } else { format!("{collection}/{{name}}") };
        operations.extend(operation(row, form, path, if row.namespaced() { "Namespaced" } else { "" }, ""));
        if form.verb == "list" && row.namespaced() {
            let path = format!("{root}/{}", row.plural);
            operations.extend(operation(row, form, path, "", "ForAllNamespaces"));
        }
    }
    for sub in row.subresources {
        for form in FORMS.iter().filter(|form| sub.verbs.contains(&form.verb)) {
            operations.extend(sub_operation(row, sub, form, format!("{collection}/{{name}}/{}", sub.name)));
        }
    }
    operations
}

fn operation(row: &'static Resource, form: &Form, path: String, scope: &str, suffix: &str) -> Option<Operation> {
    let kind = (row.group.to_owned(), row.version.to_owned(), row.kind.to_owned());
    let object = definition(row.group, row.version, row.kind)?;
    let answer = match form.verb {
        "list" => definition(row.group, row.version, &row.list_kind())?,
        "delete" | "deletecollection" => STATUS,
        _ => object,
    };
    let mut id = id_prefix(form.word, row);
    if form.verb == "deletecollection" {
        id = format!("deleteCollection{}", &id_prefix("", row));
    }
    Some(Operation {
        path,
        method: form.method,
        id: format!("{id}{scope}{}{suffix}", row.kind),
        action: form.action,
        kind,
        body: body(form.verb, object),
        answer,
        query: query(form.verb),
    })
}

fn sub_operation(row: &'static Resource, sub: &'static Subresource, form: &Form, path: String) -> Option<Operation> {
    let (group, version) = if sub.group.is_empty() { (row.group, row.version) } else { (sub.group, sub.version) };
    let object = definition(group, version, sub.kind)?;
    let scope = if row.namespaced() { "Namespaced" } else { "" };
    Some(Operation {
        path,
        method: form.method,
        id: format!("{}{scope}{}{}", id_prefix(form.word, row), row.kind, capitalized(sub.name)),
        action: form.action,
        kind: (group.to_owned(), version.to_owned(), sub.kind.to_owned()),
        body: body(form.verb, object),
        answer: object,
        query: query(form.verb),
    })
}

fn definition(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    Schema::get().definition(group, version, kind).map(|definition| definition.name)
}

fn body(verb: &str, object: &'static str) -> Option<(&'static [&'static str], &'static str)> {
    match verb {
        "create" | "update" => Some((OBJECT_TYPES, object)),
        "patch" => Some((PATCH_TYPES, PATCH)),
        "delete" | "deletecollection" => Some((OBJECT_TYPES, DELETE_OPTIONS)),
        _ => None,
    }
}

fn query(verb: &str) -> Vec<(&'static str, &'static str)> {
    match verb {
        "create" | "update" => WRITE.to_vec(),
        "patch" => [WRITE, &[("force", "boolean")]].concat(),
        "delete" => DELETE.to_vec(),
        "deletecollection" => [&DELETE[..3], LIST].concat(),
        "list" => LIST.to_vec(),
        _ => vec![("pretty", "string")],
    }
}

/// `patchAppsV1`, `readRbacAuthorizationV1`, `listCoreV1`.
fn id_prefix(word: &str, row: &Resource) -> String {
    let group = if row.group.is_empty() { "core" } else { row.group.trim_end_matches(".k8s.io") };
    let group: String = group.split('.').map(capitalized).collect();
    format!("{word}{group}{}", capitalized(row.version))
}

fn capitalized(word: &str) -> String {
    let mut characters = word.chars();
    characters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(characters).collect()
}

impl Operation {
    /// `x-kubernetes-group-version-kind`.
    pub(super) fn group_version_kind(&self) -> Value {
        let (group, version, kind) = &self.kind;
        json!({"group": group, "version": version, "kind": kind})
    }

    /// The names in braces.
    pub(super) fn path_parameters(&self) -> impl Iterator<Item = &str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// The definitions it names.
    pub(super) fn definitions(&self) -> impl Iterator<Item = &'static str> {
        self.body.iter().map(|(_, name)| *name).chain([self.answer])
    }
}
