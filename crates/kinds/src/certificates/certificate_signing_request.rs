//! CertificateSigningRequests. Who sent one is written into it by the server, and only its subresources change it.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bayplan_model::certificate_request::{CertificateRequest, certificates_error};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::defaulting::child_or_new;
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, STATUS_VERBS, Subresource};
use crate::names;
use crate::object::{Object, given, list, put, text};
use crate::printing::{AGE, NAME, Printer, age, age_of, name_of, or, string};
use crate::selectable_fields::SelectableFields;
use crate::strategy::{Strategy, restore};
use crate::validation::{MetadataCheck, MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "certificates.k8s.io",
    kind: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    singular: "certificatesigningrequest",
    short_names: &["csr"],
    verbs: STANDARD_VERBS,
    subresources: &[
        Subresource {
            name: "approval",
            group: "",
            version: "",
            kind: "CertificateSigningRequest",
            verbs: STATUS_VERBS,
        },
        Subresource::status("CertificateSigningRequest"),
    ],
    storage_prefix: "certificatesigningrequests",
    strategy: Strategy {
        selectable: SelectableFields { by_namespace: false, ..SelectableFields::texts(&["spec.signerName"]) },
        on_create: |object, _| {
            object.insert("status".into(), json!({}));
        },
        on_update,
        ..Strategy::PLAIN
    },
    validation: Validation {
        status_metadata: MetadataRecheck::AsNewAndChanged,
        metadata: MetadataCheck::First(|_| Vec::new()),
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        change_rules: |errors, new, old| changes(errors, new, old, Through::Object),
        status_rules: |errors, new, old| {
            rules(errors, new, Some(old));
            changes(errors, new, old, Through::Status);
        },
        subresource_rules: &[("approval", |errors, new, old| changes(errors, new, old, Through::Approval))],
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[
            NAME,
            AGE,
            string("SignerName"),
            string("Requestor"),
            string("RequestedDuration"),
            string("Condition"),
        ],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

/// The signer that only requests of before certificates.k8s.io/v1 may name.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";

/// The shortest life that may be asked for, in seconds.
const EXPIRATION_SECONDS_MIN: i64 = 600;

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Conditions that are there or not, and never False.
const TRUE_ONLY: [&str; 3] = ["Approved", "Denied", "Failed"];

/// Through what a request is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    Object,
    Approval,
    Status,
}

fn on_update(object: &mut Object, old: &Value, subresource: &str, now: Timestamp) {
    restore(object, old, "spec");
    match subresource {
        "status" => {
            keep_conditions(object, old, "Approved");
            keep_conditions(object, old, "Denied");
            set_times(object, old, now);
        }
        "approval" => {
            set_times(object, old, now);
            let conditions = object.get("status").and_then(|status| status.get("conditions")).cloned();
            restore(object, old, "status");
            if let Some(status) = child_or_new(object, "status") {
                put(status, "conditions", conditions.as_ref());
            }
        }
        _ => restore(object, old, "status"),
    }
}

fn conditions(object: &mut Object) -> impl Iterator<Item = &mut Object> {
    let conditions = object.get_mut("status").and_then(|status| status.get_mut("conditions"));
    conditions.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn of_type<'v>(object: &'v Value, kind: &str) -> Vec<&'v Value> {
    list(&object["status"], "conditions").iter().filter(|condition| text(condition, "type") == kind).collect()
}

/// Gives the conditions of a type the values they had, unless some were added or removed, which is refused later.
fn keep_conditions(object: &mut Object, old: &Value, kind: &str) {
    let old = of_type(old, kind);
    let mut new: Vec<&mut Object> = conditions(object).filter(|condition| text(&**condition, "type") == kind).collect();
    if new.len() == old.len() {
        for (new, old) in new.iter_mut().zip(old) {
            **new = old.as_object().cloned().unwrap_or_default();
        }
    }
}

/// Fills in the times that are missing.
fn set_times(object: &mut Object, old: &Value, now: Timestamp) {
    let now = Value::from(Timestamp::from_second(now.as_second()).unwrap_or(now).to_string());
    for condition in conditions(object) {
        if !given(condition, "lastUpdateTime") {
            condition.insert("lastUpdateTime".into(), now.clone());
        }
        if !given(condition, "lastTransitionTime") {
            let same = |known: &&Value| {
                text(known, "type") == text(condition, "type")
                    && text(known, "status") == text(condition, "status")
                    && given(known, "lastTransitionTime")
            };
            let known = list(&old["status"], "conditions").iter().find(same);
            let time = known.map_or(&now, |known| &known["lastTransitionTime"]).clone();
            condition.insert("lastTransitionTime".into(), time);
        }
    }
}

fn decoded(text: &str) -> Vec<u8> {
    // The codec has refused anything else.
    STANDARD.decode(text).unwrap_or_default()
}

fn rules(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    let (spec, path) = (&object["spec"], Path::root("spec"));
    let request = text(spec, "request");
    let read = CertificateRequest::parse(&decoded(request));
    let wrong = read.and_then(|request| request.unproven.map_or(Ok(()), |why| Err(why.to_owned())));
    if let Err(why) = wrong {
        errors.invalid(path.child("request"), request, &why);
    }
    usages(errors, path.child("usages"), list(spec, "usages"), old.map(|old| list(&old["spec"], "usages")));
    let signer = text(spec, "signerName");
    let was_legacy = old.is_some_and(|old| text(&old["spec"], "signerName") == LEGACY_SIGNER);
    if signer == LEGACY_SIGNER && !was_legacy {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.invalid(path.child("signerName"), signer, detail);
    } else {
        signer_name(errors, path.child("signerName"), signer);
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds < EXPIRATION_SECONDS_MIN) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(path.child("expirationSeconds"), seconds, detail);
    }
    condition_rules(errors, object, old);
    let certificate = |object: &Value| decoded(text(&object["status"], "certificate"));
    let (new, was) = (certificate(object), old.map(certificate));
    // What was there before may stay.
    let tolerated = was.is_some_and(|was| was == new || (!was.is_empty() && certificates_error(&was).is_some()));
    if let Some(why) = certificates_error(&new).filter(|_| !tolerated && !new.is_empty()) {
        errors.invalid(Path::root("status").child("certificate"), "<certificate data>", &why);
    }
}

fn usages(errors: &mut ErrorList, path: Path<'_>, usages: &[Value], old: Option<&[Value]>) {
    if usages.is_empty() {
        errors.required(path, "");
    }
    let name = |usage: &Value| usage.as_str().unwrap_or_default().to_owned();
    let is_known = |usage: &Value| USAGES.contains(&name(usage).as_str());
    let old = old.unwrap_or_default();
    if old.iter().all(is_known) {
        for (index, usage) in usages.iter().enumerate().filter(|(_, usage)| !is_known(usage)) {
            errors.not_supported(path.index(index), name(usage).as_str(), USAGES);
        }
    }
    let mut seen = BTreeSet::new();
    if old.iter().all(|usage| seen.insert(name(usage))) {
        seen.clear();
        for (index, usage) in usages.iter().enumerate() {
            if !seen.insert(name(usage)) {
                errors.duplicate(path.index(index), name(usage).as_str());
            }
        }
    }
}

/// A domain and a path below it, `example.com/signer`.
fn signer_name(errors: &mut ErrorList, path: Path<'_>, signer: &str) {
    const DOMAIN_MAX: usize = 253;
    /// A domain, a slash, a label, a dot and a subdomain.
    const SIGNER_MAX: usize = DOMAIN_MAX + 1 + 253 + 63 + 1;
    if signer.is_empty() {
        return errors.required(path, "");
    }
    let [domain, rest] = signer.split('/').collect::<Vec<_>>()[..] else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, signer, detail);
    };
    if domain.len() > DOMAIN_MAX {
        errors.too_long(path, DOMAIN_MAX);
    }
    first_wrong_label(errors, path, domain, names::dns_label);
    if !domain.contains('.') {
        errors.invalid(path, domain, "should be a domain with at least two segments separated by dots");
    }
    first_wrong_label(errors, path, rest, names::dns_subdomain);
    if signer.len() > SIGNER_MAX {
        errors.too_long(path, SIGNER_MAX);
    }
}

/// Reports the first of the labels between dots that breaks the rule.
fn first_wrong_label(errors: &mut ErrorList, path: Path<'_>, value: &str, rule: fn(&str) -> Vec<String>) {
    let mut labels = value.split('.').map(|label| (label, rule(label)));
    if let Some((label, problems)) = labels.find(|(_, problems)| !problems.is_empty()) {
        for problem in problems {
            errors.invalid(path, value, &format!("validating label {label:?}: {problem}"));
        }
    }
}

fn condition_rules(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    let path = Path::root("status");
    let path = path.child("conditions");
    let types = |object: &Value| -> Vec<String> {
        list(&object["status"], "conditions").iter().map(|condition| text(condition, "type").to_owned()).collect()
    };
    // What was wrong before is no reason to refuse a change.
    let before = old.map(types).unwrap_or_default();
    let had = |kind: &str| before.iter().any(|known| known == kind);
    let both_allowed = had("Approved") && had("Denied");
    let unique: BTreeSet<&String> = before.iter().collect();
    let repeats_allowed = unique.len() < before.len();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (index, condition) in list(&object["status"], "conditions").iter().enumerate() {
        let (path_of_one, kind, status) = (path.index(index), text(condition, "type"), text(condition, "status"));
        if kind.is_empty() && !had("") {
            errors.required(path_of_one.child("type"), "");
        }
        let allowed: &[&str] = if TRUE_ONLY.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        errors.one_of(path_of_one.child("status"), status, allowed);
        let other = match kind {
            "Approved" => Some("Denied"),
            "Denied" => Some("Approved"),
            _ => None,
        };
        if !both_allowed && other.is_some_and(|other| seen.contains(other)) {
            errors.invalid(path, kind, "Approved and Denied conditions are mutually exclusive");
        }
        if !seen.insert(kind) && !repeats_allowed {
            errors.duplicate(path_of_one.child("type"), kind);
        }
    }
}

/// What may change: conditions of approval through `approval`, the certificate once through `status`.
fn changes(errors: &mut ErrorList, new: &Value, old: &Value, through: Through) {
    let path = Path::root("status");
    for kind in TRUE_ONLY {
        if of_type(new, kind).len() < of_type(old, kind).len() {
            let detail = format!("updates may not remove a condition of type {kind:?}");
            errors.forbidden(path.child("conditions"), &detail);
        }
    }
    if through != Through::Approval {
        for kind in ["Approved", "Denied"] {
            let (now, before) = (of_type(new, kind), of_type(old, kind));
            if now.len() > before.len() {
                let detail = format!("updates may not add a condition of type {kind:?}");
                errors.forbidden(path.child("conditions"), &detail);
            } else if now.len() == before.len() && now != before {
                let detail = format!("updates may not modify a condition of type {kind:?}");
                errors.forbidden(path.child("conditions"), &detail);
            }
        }
    }
    let certificate = |object: &Value| text(&object["status"], "certificate").to_owned();
    if certificate(new) != certificate(old) {
        if through != Through::Status {
            errors.forbidden(path.child("certificate"), "updates may not set certificate content");
        } else if !certificate(old).is_empty() {
            errors.forbidden(path.child("certificate"), "updates may not modify existing certificate content");
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let duration = spec["expirationSeconds"].as_i64().and_then(|seconds| u64::try_from(seconds).ok());
    let duration = duration.map_or("<none>".to_owned(), |seconds| {
        age::human(Timestamp::UNIX_EPOCH + Duration::from_secs(seconds), Timestamp::UNIX_EPOCH)
    });
    let has = |kind: &str| !of_type(object, kind).is_empty();
    let mut condition = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !text(&object["status"], "certificate").is_empty() {
        condition.push_str(",Issued");
    }
    vec![
        name_of(object),
        age_of(object, now),
        or(text(spec, "signerName"), "<none>").into(),
        text(spec, "username").into(),
        duration.into(),
        condition.into(),
    ]
}
