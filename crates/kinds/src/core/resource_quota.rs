//! ResourceQuotas.

use jiff::Timestamp;
use serde_json::Value;

use crate::defaulting::{child, round_resource_list};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::Object;
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::strategy::{StatusRule, Strategy};

pub(crate) static KIND: Kind = Kind {
    kind: "ResourceQuota",
    plural: "resourcequotas",
    singular: "resourcequota",
    scope: Scope::Namespaced,
    short_names: &["quota"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("ResourceQuota")],
    storage_prefix: "resourcequotas",
    defaults,
    strategy: Strategy { returns_object_on_delete: true, status: StatusRule::Owned, ..Strategy::PLAIN },
    printer: Printer { columns: &[NAME, string("Request"), string("Limit"), AGE], cells, ..Printer::PLAIN },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        round_resource_list(spec, "hard");
    }
    if let Some(status) = child(object, "status") {
        round_resource_list(status, "hard");
        round_resource_list(status, "used");
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in status["hard"].as_object().into_iter().flatten() {
        let used = status["used"][resource].as_str().unwrap_or("0");
        let entry = format!("{resource}: {used}/{}", hard.as_str().unwrap_or("0"));
        if resource.starts_with("limits.") { limits.push(entry) } else { requests.push(entry) }
    }
    vec![name_of(object), requests.join(", ").into(), limits.join(", ").into(), age_of(object, now)]
}
