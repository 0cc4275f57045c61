//! ResourceClaims.

use serde_json::Value;

use super::{claim_rules, claim_status};
use crate::defaulting::{child, children, default, default_nonzero};
use crate::field::{GoValue, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::{Object, given, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::strategy::{StatusRule, Strategy, status_keeps_metadata};
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    kind: "ResourceClaim",
    plural: "resourceclaims",
    singular: "resourceclaim",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("ResourceClaim")],
    storage_prefix: "resourceclaims",
    defaults: |object| spec_defaults(object.get_mut("spec")),
    strategy: Strategy {
        returns_object_on_delete: true,
        status: StatusRule::Owned,
        on_update: status_keeps_metadata,
        ..Strategy::PLAIN
    },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        create_rules: |errors, object| claim_rules::spec(errors, Path::root("spec"), &object["spec"]),
        // What cannot change is not checked again.
        change_rules: |errors, new, old| {
            if new["spec"] != old["spec"] {
                let shown = GoValue("io.k8s.api.resource.v1.ResourceClaimSpec", &new["spec"]);
                errors.invalid(Path::root("spec"), shown, "field is immutable");
            }
        },
        status_rules: claim_status::rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("State"), AGE],
        cells: |object, now| vec![name_of(object), state(object).into(), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

pub(super) fn spec_defaults(spec: Option<&mut Value>) {
    let Some(spec) = spec.and_then(Value::as_object_mut) else { return };
    let Some(devices) = child(spec, "devices") else { return };
    for request in children(devices, "requests") {
        if let Some(exactly) = child(request, "exactly") {
            device_request(exactly);
        }
        children(request, "firstAvailable").for_each(device_request);
    }
}

fn device_request(request: &mut Object) {
    default(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        default_nonzero(request, "count", 1);
    }
    children(request, "tolerations").for_each(|toleration| default(toleration, "operator", "Equal"));
}

/// `pending`, or the list of what has happened to the claim.
fn state(object: &Value) -> String {
    let deleting = given(&object["metadata"], "deletionTimestamp");
    let status = &object["status"];
    let mut states = Vec::new();
    if deleting {
        states.push("deleted");
    }
    if given(status, "allocation") {
        states.push("allocated");
        if !list(status, "reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if !deleting {
        states.push("pending");
    }
    states.join(",")
}
