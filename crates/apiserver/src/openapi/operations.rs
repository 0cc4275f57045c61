//! The operations of a resource: path, method, parameters, body and answer.

use bayplan_kinds::{Kind, Subresource};
use bayplan_model::schema::Schema;
use serde_json::{Value, json};

use super::passed_on;
use crate::request::Verb;

/// One operation.
pub(super) struct Operation {
    pub(super) path: String,
    pub(super) method: &'static str,
    pub(super) id: String,
    /// `x-kubernetes-action`.
    pub(super) action: &'static str,
    /// Group, version and kind of its object.
    pub(super) kind: (String, String, String),
    /// Content types and definition of the request's body.
    pub(super) body: Option<(&'static [&'static str], &'static str)>,
    /// Definition of the answer; none for text.
    pub(super) answer: Option<&'static str>,
    /// Content types of the answer.
    pub(super) produces: &'static [&'static str],
    /// Name and type of the query's parameters.
    pub(super) query: Vec<(&'static str, &'static str)>,
}

const OBJECT_TYPES: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const STREAM_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
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
struct VerbDescription {
    verb: Verb,
    method: &'static str,
    action: &'static str,
    /// The verb in operation ids.
    word: &'static str,
    /// Applies to the collection, not to one object.
    collection: bool,
}

const DESCRIPTIONS: [VerbDescription; 7] = [
    VerbDescription { verb: Verb::List, method: "get", action: "list", word: "list", collection: true },
    VerbDescription { verb: Verb::Create, method: "post", action: "post", word: "create", collection: true },
    VerbDescription {
        verb: Verb::DeleteCollection,
        method: "delete",
        action: "deletecollection",
        word: "deleteCollection",
        collection: true,
    },
    VerbDescription { verb: Verb::Get, method: "get", action: "get", word: "read", collection: false },
    VerbDescription { verb: Verb::Update, method: "put", action: "put", word: "replace", collection: false },
    VerbDescription { verb: Verb::Patch, method: "patch", action: "patch", word: "patch", collection: false },
    VerbDescription { verb: Verb::Delete, method: "delete", action: "delete", word: "delete", collection: false },
];

/// Every operation of a resource and its subresources.
pub(super) fn of(row: &'static Kind) -> Vec<Operation> {
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
    for form in DESCRIPTIONS.iter().filter(|form| row.verbs.contains(&form.verb)) {
        let path = if form.collection { collection.clone() } else { format!("{collection}/{{name}}") };
        operations.extend(operation(row, form, path, if row.namespaced() { "Namespaced" } else { "" }, ""));
        if form.verb == Verb::List && row.namespaced() {
            let path = format!("{root}/{}", row.plural);
            operations.extend(operation(row, form, path, "", "ForAllNamespaces"));
        }
    }
    for sub in row.subresources {
        let path = format!("{collection}/{{name}}/{}", sub.name);
        let passed_on = passed_on::of(row, sub, &path);
        if !passed_on.is_empty() {
            operations.extend(passed_on);
            continue;
        }
        for form in DESCRIPTIONS.iter().filter(|form| sub.verbs.contains(&form.verb)) {
            operations.extend(sub_operation(row, sub, form, path.clone()));
        }
    }
    operations
}

fn operation(row: &'static Kind, form: &VerbDescription, path: String, scope: &str, suffix: &str) -> Option<Operation> {
    let kind = (row.group.to_owned(), row.version.to_owned(), row.kind.to_owned());
    let object = definition(row.group, row.version, row.kind)?;
    let answer = match form.verb {
        Verb::List => definition(row.group, row.version, &row.list_kind())?,
        Verb::Delete | Verb::DeleteCollection => STATUS,
        _ => object,
    };
    let mut id = id_prefix(form.word, row);
    if form.verb == Verb::DeleteCollection {
        id = format!("deleteCollection{}", &id_prefix("", row));
    }
    Some(Operation {
        path,
        method: form.method,
        id: format!("{id}{scope}{}{suffix}", row.kind),
        action: form.action,
        kind,
        body: body(&form.verb, object),
        answer: Some(answer),
        produces: if form.verb == Verb::List { STREAM_TYPES } else { OBJECT_TYPES },
        query: query(&form.verb),
    })
}

fn sub_operation(
    row: &'static Kind,
    sub: &'static Subresource,
    form: &VerbDescription,
    path: String,
) -> Option<Operation> {
    let (group, version) = if sub.group.is_empty() { (row.group, row.version) } else { (sub.group, sub.version) };
    let object = definition(group, version, sub.kind)?;
    let scope = if row.namespaced() { "Namespaced" } else { "" };
    Some(Operation {
        path,
        method: form.method,
        id: format!("{}{scope}{}{}", id_prefix(form.word, row), row.kind, capitalized(sub.name)),
        action: form.action,
        kind: (group.to_owned(), version.to_owned(), sub.kind.to_owned()),
        body: body(&form.verb, object),
        answer: Some(object),
        produces: OBJECT_TYPES,
        query: query(&form.verb),
    })
}

fn definition(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    Schema::get().definition(group, version, kind).map(|definition| definition.name)
}

fn body(verb: &Verb, object: &'static str) -> Option<(&'static [&'static str], &'static str)> {
    match verb {
        Verb::Create | Verb::Update => Some((OBJECT_TYPES, object)),
        Verb::Patch => Some((PATCH_TYPES, PATCH)),
        Verb::Delete | Verb::DeleteCollection => Some((OBJECT_TYPES, DELETE_OPTIONS)),
        _ => None,
    }
}

fn query(verb: &Verb) -> Vec<(&'static str, &'static str)> {
    match verb {
        Verb::Create | Verb::Update => WRITE.to_vec(),
        Verb::Patch => [WRITE, &[("force", "boolean")]].concat(),
        Verb::Delete => DELETE.to_vec(),
        Verb::DeleteCollection => [&DELETE[..3], LIST].concat(),
        Verb::List => LIST.to_vec(),
        _ => vec![("pretty", "string")],
    }
}

/// `patchAppsV1`, `readRbacAuthorizationV1`, `listCoreV1`.
pub(super) fn id_prefix(word: &str, row: &Kind) -> String {
    let group = if row.group.is_empty() { "core" } else { row.group.trim_end_matches(".k8s.io") };
    let group: String = group.split('.').map(capitalized).collect();
    format!("{word}{group}{}", capitalized(row.version))
}

pub(super) fn capitalized(word: &str) -> String {
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

    /// The definitions it refers to.
    pub(super) fn definitions(&self) -> impl Iterator<Item = &'static str> {
        self.body.iter().map(|(_, name)| *name).chain(self.answer)
    }
}
