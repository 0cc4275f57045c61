//! FlowSchemas: which requests go to which priority level.

use std::cmp::Ordering;

use jiff::Timestamp;
use serde_json::Value;

use super::{bootstrap, conditions};
use crate::defaulting::{child, default_nonzero};
use crate::field::{ErrorList, GoValue, Path};
use crate::kind::{Kind, Subresource};
use crate::names;
use crate::object::{Object, given, list, number, text};
use crate::printing::{AGE, Column, NAME, Printer, age_of, name_of, or, string};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    kind: "FlowSchema",
    plural: "flowschemas",
    singular: "flowschema",
    subresources: &[Subresource::status("FlowSchema")],
    storage_prefix: "flowschemas",
    defaults,
    validation: Validation { rules, ..super::KIND.validation },
    printer: Printer { columns: COLUMNS, cells, order: Some(by_precedence), ..Printer::PLAIN },
    ..super::KIND
};

const COLUMNS: &[Column] = &[
    NAME,
    string("PriorityLevel"),
    string("MatchingPrecedence"),
    string("DistinguisherMethod"),
    AGE,
    string("MissingPL"),
];
const PRECEDENCE_MAX: i64 = 10_000;
const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
/// The kinds of subjects, each with the field that describes it.
const SUBJECTS: [(&str, &str); 3] = [("Group", "group"), ("ServiceAccount", "serviceAccount"), ("User", "user")];
const ANY: &str = "*";

fn defaults(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        default_nonzero(spec, "matchingPrecedence", 1000);
    }
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let name = text(&object["metadata"], "name");
    let (spec, path) = (&object["spec"], Path::root("spec"));
    let precedence = number(spec, "matchingPrecedence");
    let at = path.child("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(at, precedence, "must be a positive value");
    } else if precedence > PRECEDENCE_MAX {
        errors.invalid(at, precedence, &format!("must not be greater than {PRECEDENCE_MAX}"));
    } else if precedence == 1 && name != "exempt" {
        errors.invalid(at, precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
    if given(spec, "distinguisherMethod") {
        let at = path.child("distinguisherMethod");
        match text(&spec["distinguisherMethod"], "type") {
            "" => errors.required(at.child("type"), ""),
            "ByNamespace" | "ByUser" => {}
            _ => {
                let shown = GoValue("io.k8s.api.flowcontrol.v1.FlowDistinguisherMethod", &spec["distinguisherMethod"]);
                errors.not_supported(at.child("type"), shown, &["ByNamespace", "ByUser"]);
            }
        }
    }
    let at = path.child("priorityLevelConfiguration");
    match text(&spec["priorityLevelConfiguration"], "name") {
        "" => errors.required(at.child("name"), "must reference a priority level"),
        level => errors.all_invalid(at.child("name"), level, names::dns_subdomain(level)),
    }
    let at = path.child("rules");
    for (index, rule) in list(spec, "rules").iter().enumerate() {
        policy(errors, at.index(index), rule);
    }
    if bootstrap::mandatory(bootstrap::flow_schemas(), name).is_some_and(|fixed| fixed != *spec) {
        let detail = format!("spec of '{name}' must equal the fixed value");
        errors.invalid(path, GoValue("io.k8s.api.flowcontrol.v1.FlowSchemaSpec", spec), &detail);
    }
    conditions::rules(errors, object);
}

fn policy(errors: &mut ErrorList, path: Path<'_>, rule: &Value) {
    let (subjects, at) = (list(rule, "subjects"), path.child("subjects"));
    if subjects.is_empty() {
        errors.required(at, "subjects must contain at least one value");
    }
    for (index, subject) in subjects.iter().enumerate() {
        subject_rules(errors, at.index(index), subject);
    }
    let (resources, urls) = (list(rule, "resourceRules"), list(rule, "nonResourceRules"));
    if resources.is_empty() && urls.is_empty() {
        errors.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    let at = path.child("resourceRules");
    for (index, rule) in resources.iter().enumerate() {
        resource_rule(errors, at.index(index), rule);
    }
    let at = path.child("nonResourceRules");
    for (index, rule) in urls.iter().enumerate() {
        non_resource_rule(errors, at.index(index), rule);
    }
}

fn subject_rules(errors: &mut ErrorList, path: Path<'_>, subject: &Value) {
    let kind = text(subject, "kind");
    let Some((_, own)) = SUBJECTS.into_iter().find(|(of_kind, _)| *of_kind == kind) else {
        return errors.not_supported(path.child("kind"), kind, &SUBJECTS.map(|(kind, _)| kind));
    };
    for (of_kind, field) in SUBJECTS {
        if field != own && given(subject, field) {
            errors.forbidden(path.child(field), &format!("{field} is forbidden when subject kind is not '{of_kind}'"));
        }
    }
    let path = path.child(own);
    if !given(subject, own) {
        return errors.required(path, &format!("{own} is required when subject kind is '{kind}'"));
    }
    let name = text(&subject[own], "name");
    if name.is_empty() {
        errors.required(path.child("name"), "");
    }
    if kind != "ServiceAccount" {
        return;
    }
    if !name.is_empty() && name != ANY {
        errors.all_invalid(path.child("name"), name, names::dns_subdomain(name));
    }
    match text(&subject[own], "namespace") {
        "" => errors.required(path.child("namespace"), "must specify namespace for service account"),
        namespace => errors.all_invalid(path.child("namespace"), namespace, names::dns_label(namespace)),
    }
}

fn texts<'v>(object: &'v Value, name: &str) -> Vec<&'v str> {
    list(object, name).iter().map(|value| value.as_str().unwrap_or_default()).collect()
}

fn verbs(errors: &mut ErrorList, path: Path<'_>, rule: &Value) {
    let (path, verbs) = (path.child("verbs"), texts(rule, "verbs"));
    if verbs.is_empty() {
        errors.required(path, "verbs must contain at least one value");
    } else if verbs.contains(&ANY) {
        if verbs.len() > 1 {
            errors.invalid(path, &rule["verbs"], "if '*' is present, must not specify other verbs");
        }
    } else if !verbs.iter().all(|verb| VERBS.contains(verb)) {
        errors.not_supported(path, &rule["verbs"], VERBS);
    }
}

fn resource_rule(errors: &mut ErrorList, path: Path<'_>, rule: &Value) {
    verbs(errors, path, rule);
    for (field, one, many) in [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")] {
        let values = texts(rule, field);
        if values.is_empty() {
            errors.required(path.child(field), &format!("resource rules must supply at least one {one}"));
        } else if values.len() > 1 && values.contains(&ANY) {
            let detail = format!("if '*' is present, must not specify other {many}");
            errors.invalid(path.child(field), &rule[field], &detail);
        }
    }
    let (path, namespaces) = (path.child("namespaces"), texts(rule, "namespaces"));
    if namespaces.is_empty() && rule["clusterScope"] != true {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(path, detail);
    } else if namespaces.contains(&ANY) {
        if namespaces.len() > 1 {
            errors.invalid(path, &rule["namespaces"], "if '*' is present, must not specify other namespaces");
        }
    } else {
        for (index, namespace) in namespaces.into_iter().enumerate() {
            for problem in names::dns_label(namespace) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
                errors.invalid(path.index(index), namespace, &detail);
            }
        }
    }
}

fn non_resource_rule(errors: &mut ErrorList, path: Path<'_>, rule: &Value) {
    verbs(errors, path, rule);
    let (path, urls) = (path.child("nonResourceURLs"), texts(rule, "nonResourceURLs"));
    if urls.is_empty() {
        errors.required(path, "nonResourceURLs must contain at least one value");
    } else if urls.contains(&ANY) {
        if urls.len() > 1 {
            let detail = "if '*' is present, must not specify other non-resource URLs";
            errors.invalid(path, &rule["nonResourceURLs"], detail);
        }
    } else {
        for (index, url) in urls.into_iter().enumerate() {
            if let Some(problem) = url_problem(url) {
                errors.invalid(path.index(index), url, problem);
            }
        }
    }
}

/// What is wrong with a path of the server; a wildcard stands only for all below a path.
fn url_problem(url: &str) -> Option<&'static str> {
    let wildcards = url.matches('*').count();
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ if wildcards > 1 || (wildcards == 1 && !url.ends_with("/*")) => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let conditions = list(&object["status"], "conditions").iter();
    let dangling =
        conditions.filter(|condition| text(*condition, "type") == "Dangling").map(|c| text(c, "status")).next();
    vec![
        name_of(object),
        text(&spec["priorityLevelConfiguration"], "name").into(),
        number(spec, "matchingPrecedence").into(),
        or(text(&spec["distinguisherMethod"], "type"), "<none>").into(),
        age_of(object, now),
        dangling.unwrap_or("?").into(),
    ]
}

/// Tables show schemas in the order in which they are asked.
fn by_precedence(a: &Value, b: &Value) -> Ordering {
    let key = |object: &Value| number(&object["spec"], "matchingPrecedence");
    key(a).cmp(&key(b)).then_with(|| text(&a["metadata"], "name").cmp(text(&b["metadata"], "name")))
}
