//! APIServices: which server answers for a version of a group. Those without a service are answered here.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::defaulting::{child, default_absent};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Subresource};
use crate::names;
use crate::object::{Object, given, list, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::strategy::{StatusRule, Strategy};
use crate::validation::{MetadataCheck, MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "apiregistration.k8s.io",
    kind: "APIService",
    plural: "apiservices",
    singular: "apiservice",
    categories: &["api-extensions"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("APIService")],
    storage_prefix: "apiregistration.k8s.io/apiservices",
    defaults,
    strategy: Strategy {
        allow_unconditional_update: false,
        status: StatusRule::Owned,
        on_create: available_at_once,
        ..Strategy::PLAIN
    },
    validation: Validation {
        metadata: MetadataCheck::First(names::path_segment),
        any_finalizer: true,
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        status_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("Service"), string("Available"), AGE],
        cells: |object, now| {
            vec![name_of(object), service(object).into(), available(object).into(), age_of(object, now)]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1_000;
const AVAILABLE: &str = "Available";

fn defaults(object: &mut Object) {
    if let Some(service) = child(object, "spec").and_then(|spec| child(spec, "service")) {
        default_absent(service, "port", 443);
    }
}

/// What is answered here is there from the first moment.
fn available_at_once(object: &mut Object, now: Timestamp) {
    if object.get("spec").is_some_and(|spec| given(spec, "service")) {
        return;
    }
    let since = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let condition = json!({
        "type": AVAILABLE, "status": "True", "lastTransitionTime": since.to_string(), "reason": "Local",
        "message": "Local APIServices are always available",
    });
    object.insert("status".into(), json!({"conditions": [condition]}));
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let (spec, path) = (&object["spec"], Path::root("spec"));
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    let (name, wanted) = (text(&object["metadata"], "name"), format!("{version}.{group}"));
    if name != wanted && !name.is_empty() && names::path_segment(name).is_empty() {
        let metadata = Path::root("metadata");
        errors.invalid(metadata.child("name"), name, &format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
    }
    if !group.is_empty() {
        errors.all_invalid(path.child("group"), group, names::dns_subdomain(group));
    }
    errors.all_invalid(path.child("version"), version, names::dns_1035_label(version));
    for (field, max) in [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)] {
        let priority = number(spec, field);
        if priority <= 0 || priority > max {
            errors.invalid(path.child(field), priority, &format!("must be positive and less than {max}"));
        }
    }
    trust(errors, path, spec);
    if given(spec, "service") {
        service_rules(errors, path.child("service"), &spec["service"]);
    }
}

/// How the server of the service is known: by an authority, or not at all.
fn trust(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let bundle = bytes_of(text(spec, "caBundle"));
    let insecure = spec["insecureSkipTLSVerify"] == true;
    let at = path.child("insecureSkipTLSVerify");
    if !given(spec, "service") {
        if bundle != 0 {
            let shown = format!("{bundle} bytes");
            errors.invalid(path.child("caBundle"), shown.as_str(), "local APIServices may not have a caBundle");
        }
        if insecure {
            errors.invalid(at, &Value::Bool(true), "local APIServices may not have insecureSkipTLSVerify");
        }
    } else if insecure && bundle != 0 {
        errors.invalid(at, &Value::Bool(true), "may not be true if caBundle is present");
    }
}

/// How many bytes a canonical base64 text holds.
fn bytes_of(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

fn service_rules(errors: &mut ErrorList, path: Path<'_>, service: &Value) {
    for field in ["namespace", "name"] {
        if text(service, field).is_empty() {
            errors.required(path.child(field), "");
        }
    }
    let port = number(service, "port");
    if let Some(problem) = names::port_number(port) {
        errors.invalid(path.child("port"), port, &format!("port is not valid: {problem}"));
    }
}

fn status_rules(errors: &mut ErrorList, object: &Value, _old: &Value) {
    let root = Path::root("status");
    let path = root.child("conditions");
    for (index, condition) in list(&object["status"], "conditions").iter().enumerate() {
        let status = text(condition, "status");
        if !matches!(status, "True" | "False" | "Unknown") {
            let path = path.index(index);
            errors.not_supported(path.child("status"), status, &["True", "False", "Unknown"]);
        }
    }
}

/// `namespace/name`, or `Local`.
fn service(object: &Value) -> String {
    let spec = &object["spec"];
    if !given(spec, "service") {
        return "Local".to_owned();
    }
    format!("{}/{}", text(&spec["service"], "namespace"), text(&spec["service"], "name"))
}

fn available(object: &Value) -> String {
    let mut conditions = list(&object["status"], "conditions").iter();
    match conditions.find(|condition| text(*condition, "type") == AVAILABLE) {
        None => "Unknown".to_owned(),
        Some(condition) if text(condition, "status") == "True" => "True".to_owned(),
        Some(condition) => format!("{} ({})", text(condition, "status"), text(condition, "reason")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, spec: Value) -> Value {
        let mut object = json!({
            "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
            "metadata": {"name": name, "resourceVersion": "1"}, "spec": spec,
        });
        KIND.default(&mut object);
        object
    }

    fn spec(more: Value) -> Value {
        let mut spec = json!({"group": "x.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        spec
    }

    #[test]
    fn a_name_is_the_version_and_the_group() {
        let service = json!({"namespace": "a", "name": "b"});
        for (name, more, expected) in [
            ("v1.x.io", json!({}), None),
            ("v1.x.io", json!({"service": service, "caBundle": "YWJj"}), None),
            ("v2.x.io", json!({}), Some("metadata.name: Invalid value: \"v2.x.io\": must be `spec.version")),
            ("V1.x.io", json!({"version": "V1"}), Some("spec.version: Invalid value: \"V1\"")),
            ("v1.x.io", json!({"groupPriorityMinimum": 20_001}), Some("must be positive and less than 20000")),
            ("v1.x.io", json!({"versionPriority": 0}), Some("must be positive and less than 1000")),
            ("v1.x.io", json!({"caBundle": "YWI="}), Some("Invalid value: \"2 bytes\": local APIServices may not")),
            ("v1.x.io", json!({"service": {"name": "b"}}), Some("spec.service.namespace: Required value")),
            ("v1.x.io", json!({"service": {"namespace": "a", "name": "b", "port": 0}}), Some("port is not valid: ")),
        ] {
            let found: Vec<String> =
                KIND.validate_create(&object(name, spec(more))).iter().map(ToString::to_string).collect();
            assert_eq!(found.len(), usize::from(expected.is_some()), "{name}: {found:?}");
            assert!(expected.is_none_or(|expected| found[0].contains(expected)), "{name}: {found:?}");
        }
    }

    #[test]
    fn what_is_answered_here_is_available_at_once() {
        let cells = |more: Value| {
            let mut object = object("v1.x.io", spec(more));
            KIND.prepare_for_create(&mut object, Timestamp::UNIX_EPOCH);
            let cells = KIND.row(&object, Timestamp::UNIX_EPOCH).cells;
            [cells[1].clone(), cells[2].clone()]
        };
        assert_eq!(cells(json!({})), ["Local", "True"]);
        assert_eq!(cells(json!({"service": {"namespace": "a", "name": "b"}})), ["a/b", "Unknown"]);
    }
}
