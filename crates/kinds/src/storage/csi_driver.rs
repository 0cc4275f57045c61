//! CSIDrivers.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::defaulting::{child, child_or_new, default, default_absent};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::{Object, given, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, boolean, name_of, or, string};
use crate::strategy::{Generation, Strategy};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSIDriver",
    plural: "csidrivers",
    singular: "csidriver",
    verbs: STANDARD_VERBS,
    storage_prefix: "csidrivers",
    defaults,
    strategy: Strategy {
        allow_unconditional_update: false,
        returns_object_on_delete: true,
        generation: Generation::SpecOnUpdate,
        on_create: |object, _now| drop_disabled(object, &Value::Null),
        on_update: |object, old, _subresource, _now| drop_disabled(object, old),
        warnings,
        ..Strategy::PLAIN
    },
    validation: Validation { rules, change_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[
            NAME,
            boolean("AttachRequired"),
            boolean("PodInfoOnMount"),
            boolean("StorageCapacity"),
            string("TokenRequests"),
            boolean("RequiresRepublish"),
            string("Modes"),
            AGE,
        ],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    let Some(spec) = child_or_new(object, "spec") else { return };
    default(spec, "attachRequired", true);
    default(spec, "podInfoOnMount", false);
    default(spec, "storageCapacity", false);
    default_absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
    }
    default(spec, "requiresRepublish", false);
    default(spec, "seLinuxMount", false);
}

/// The feature gate VolumeLimitScaling is off: its field is dropped unless the stored object has it.
fn drop_disabled(object: &mut Object, old: &Value) {
    const FIELD: &str = "preventPodSchedulingIfMissing";
    if !given(&old["spec"], FIELD)
        && let Some(spec) = child(object, "spec")
    {
        spec.remove(FIELD);
    }
}

/// Tokens that are no secrets end in logs.
fn warnings(driver: &Value, old: Option<&Value>) -> Vec<String> {
    let spec = &driver["spec"];
    let requests = list(spec, "tokenRequests");
    let is_new = old.is_none_or(|old| list(&old["spec"], "tokenRequests") != requests);
    if !is_new || requests.is_empty() || given(spec, "serviceAccountTokenInSecrets") {
        return Vec::new();
    }
    let warning = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                   possible logging of tokens in volume attributes";
    vec![warning.to_owned()]
}

const GROUP_POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
const UPDATE_PERIOD_MIN: i64 = 10;

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let (path, spec) = (Path::root("spec"), &object["spec"]);
    let policy = text(spec, "fsGroupPolicy");
    if given(spec, "fsGroupPolicy") && !GROUP_POLICIES.contains(&policy) {
        errors.not_supported(path.child("fsGroupPolicy"), policy, &GROUP_POLICIES);
    }
    token_requests(errors, path.child("tokenRequests"), list(spec, "tokenRequests"));
    for mode in list(spec, "volumeLifecycleModes").iter().filter_map(Value::as_str) {
        if !matches!(mode, "Persistent" | "Ephemeral") {
            errors.not_supported(path.child("volumeLifecycleModes"), mode, &["Persistent", "Ephemeral"]);
        }
    }
    if let Some(seconds) = spec["nodeAllocatableUpdatePeriodSeconds"].as_i64().filter(|s| *s < UPDATE_PERIOD_MIN) {
        let path = path.child("nodeAllocatableUpdatePeriodSeconds");
        errors.invalid(path, seconds, "must be greater than or equal to 10 seconds");
    }
    let in_secrets = &spec["serviceAccountTokenInSecrets"];
    if !in_secrets.is_null() && list(spec, "tokenRequests").is_empty() {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid(path.child("serviceAccountTokenInSecrets"), in_secrets, detail);
    }
}

/// Tokens are for different audiences, one of them may be the API server's own.
fn token_requests(errors: &mut ErrorList, path: Path<'_>, requests: &[Value]) {
    const SECONDS_MIN: i64 = 600;
    const SECONDS_MAX: i64 = 1 << 32;
    let mut audiences = BTreeSet::new();
    for (index, request) in requests.iter().enumerate() {
        let path = path.index(index);
        let audience = text(request, "audience");
        if !audiences.insert(audience) {
            errors.duplicate(path.child("audience"), audience);
            continue;
        }
        let Some(seconds) = request["expirationSeconds"].as_i64() else { continue };
        let path = path.child("expirationSeconds");
        if seconds < SECONDS_MIN {
            errors.invalid(path, seconds, "may not specify a duration less than 10 minutes");
        }
        if seconds > SECONDS_MAX {
            errors.invalid(path, seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }
}

/// Attachment and lifecycle modes of a driver are immutable.
fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("spec");
    for (field, shown) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")] {
        errors.immutable(path.child(shown), &new["spec"][field], &old["spec"][field]);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let modes: Vec<&str> = list(spec, "volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
    let tokens = if given(spec, "tokenRequests") {
        list(spec, "tokenRequests").iter().map(|request| text(request, "audience")).collect::<Vec<_>>().join(",")
    } else {
        "<unset>".to_owned()
    };
    vec![
        name_of(object),
        (spec["attachRequired"] != false).into(),
        (spec["podInfoOnMount"] == true).into(),
        (spec["storageCapacity"] == true).into(),
        tokens.into(),
        (spec["requiresRepublish"] == true).into(),
        or(&modes.join(","), "<none>").into(),
        age_of(object, now),
    ]
}
