//! IngressClasses.

use serde_json::Value;

use crate::defaulting::{child, default_absent};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::names;
use crate::object::{Object, given, text};
use crate::printing::{AGE, NAME, Printer, age_of, string};
use crate::strategy::{Generation, Strategy};
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "IngressClass",
    plural: "ingressclasses",
    singular: "ingressclass",
    verbs: STANDARD_VERBS,
    storage_prefix: "ingressclasses",
    defaults,
    strategy: Strategy { generation: Generation::Spec, ..Strategy::PLAIN },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        change_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("Controller"), string("Parameters"), AGE],
        cells: |object, now| {
            let controller = text(&object["spec"], "controller").into();
            vec![shown_name(object).into(), controller, parameters(&object["spec"]).into(), age_of(object, now)]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

/// The annotation of the class that ingresses get when they name none.
pub(crate) const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
const CONTROLLER_MAX: usize = 250;

fn defaults(object: &mut Object) {
    if let Some(parameters) = child(object, "spec").and_then(|spec| child(spec, "parameters")) {
        default_absent(parameters, "scope", "Cluster");
    }
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let spec = &object["spec"];
    let root = Path::root("spec");
    let (path, controller) = (root.child("controller"), text(spec, "controller"));
    if controller.is_empty() {
        errors.required(path, "");
    } else {
        if controller.len() > CONTROLLER_MAX {
            errors.too_long(path, CONTROLLER_MAX);
        }
        for (part, problem) in names::domain_prefixed_path(controller) {
            errors.invalid(path, part, &problem);
        }
    }
    if given(spec, "parameters") {
        parameter_rules(errors, root.child("parameters"), &spec["parameters"]);
    }
}

fn parameter_rules(errors: &mut ErrorList, path: Path<'_>, parameters: &Value) {
    reference_rules(errors, path, parameters);
    let (scope, namespace) = (text(parameters, "scope"), text(parameters, "namespace"));
    let named = given(parameters, "namespace");
    let path_of_namespace = path.child("namespace");
    match scope {
        "Namespace" if named => {
            errors.all_invalid(path_of_namespace, namespace, names::dns_label(namespace));
        }
        "Namespace" => errors.required(path_of_namespace, "`parameters.scope` is set to 'Namespace'"),
        "Cluster" if named => errors.forbidden(path_of_namespace, "`parameters.scope` is set to 'Cluster'"),
        "Cluster" => {}
        other => errors.not_supported(path.child("scope"), other, &["Cluster", "Namespace"]),
    }
}

/// Checks a reference to an object of any kind.
pub(super) fn reference_rules(errors: &mut ErrorList, path: Path<'_>, reference: &Value) {
    if given(reference, "apiGroup") {
        let group = text(reference, "apiGroup");
        errors.all_invalid(path.child("apiGroup"), group, names::dns_subdomain(group));
    }
    for field in ["kind", "name"] {
        match text(reference, field) {
            "" => errors.required(path.child(field), ""),
            value => errors.all_invalid(path.child(field), value, names::path_segment(value)),
        }
    }
}

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let root = Path::root("spec");
    errors.immutable(root.child("controller"), &new["spec"]["controller"], &old["spec"]["controller"]);
}

fn shown_name(object: &Value) -> String {
    let is_default = object["metadata"]["annotations"][DEFAULT_CLASS] == "true";
    let suffix = if is_default { " (default)" } else { "" };
    format!("{}{suffix}", text(&object["metadata"], "name"))
}

/// `Kind.group/name`.
fn parameters(spec: &Value) -> String {
    if !given(spec, "parameters") {
        return "<none>".to_owned();
    }
    let parameters = &spec["parameters"];
    let group =
        if given(parameters, "apiGroup") { format!(".{}", text(parameters, "apiGroup")) } else { String::new() };
    format!("{}{group}/{}", text(parameters, "kind"), text(parameters, "name"))
}
