//! PriorityLevelConfigurations: shares of the server's seats.

use jiff::Timestamp;
use serde_json::Value;

use super::{bootstrap, conditions};
use crate::defaulting::{child, default_absent, default_nonzero};
use crate::field::{ErrorList, GoValue, Path};
use crate::kind::{Kind, Subresource};
use crate::object::{Object, given, number, text};
use crate::printing::{AGE, Column, NAME, Printer, age_of, name_of, string};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    kind: "PriorityLevelConfiguration",
    plural: "prioritylevelconfigurations",
    singular: "prioritylevelconfiguration",
    subresources: &[Subresource::status("PriorityLevelConfiguration")],
    storage_prefix: "prioritylevelconfigurations",
    defaults,
    validation: Validation { rules, ..super::KIND.validation },
    printer: Printer { columns: COLUMNS, cells, ..Printer::PLAIN },
    ..super::KIND
};

const COLUMNS: &[Column] = &[
    NAME,
    string("Type"),
    string("NominalConcurrencyShares"),
    string("Queues"),
    string("HandSize"),
    string("QueueLengthLimit"),
    AGE,
];
const QUEUES_MAX: i64 = 10_000_000;
/// The bits of the hash from which a flow's hand of queues is dealt.
const HASH_BITS: u32 = 60;
const EXEMPT: &str = "exempt";

fn defaults(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    if let Some(exempt) = child(spec, EXEMPT) {
        default_absent(exempt, "nominalConcurrencyShares", 0);
        default_absent(exempt, "lendablePercent", 0);
    }
    let Some(limited) = child(spec, "limited") else { return };
    default_absent(limited, "nominalConcurrencyShares", 30);
    default_absent(limited, "lendablePercent", 0);
    if let Some(queuing) = child(limited, "limitResponse").and_then(|response| child(response, "queuing")) {
        default_nonzero(queuing, "handSize", 8);
        default_nonzero(queuing, "queues", 64);
        default_nonzero(queuing, "queueLengthLimit", 50);
    }
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let name = text(&object["metadata"], "name");
    let (spec, path) = (&object["spec"], Path::root("spec"));
    let kind = text(spec, "type");
    if (name == EXEMPT) != (kind == "Exempt") {
        errors.invalid(path.child("type"), kind, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    let (exempt, limited) = (path.child(EXEMPT), path.child("limited"));
    match kind {
        "Exempt" => {
            if given(spec, "limited") {
                errors.forbidden(limited, "must be nil if the type is not Limited");
            }
            if given(spec, EXEMPT) {
                shares(errors, exempt, &spec[EXEMPT]);
            }
        }
        "Limited" => {
            if given(spec, EXEMPT) {
                errors.forbidden(exempt, "must be nil if the type is Limited");
            }
            if given(spec, "limited") {
                limited_rules(errors, limited, &spec["limited"]);
            } else {
                errors.required(limited, "must not be empty when type is Limited");
            }
        }
        "" => errors.required(path.child("type"), ""),
        other => errors.not_supported(path.child("type"), other, &["Exempt", "Limited"]),
    }
    fixed(errors, path, name, spec);
    conditions::rules(errors, object);
}

/// The mandatory levels stay as they are; of `exempt`, the shares may change.
fn fixed(errors: &mut ErrorList, path: Path<'_>, name: &str, spec: &Value) {
    let Some(mut fixed) = bootstrap::mandatory(bootstrap::priority_levels(), name) else { return };
    let mut detail = format!("spec of '{name}' must equal the fixed value");
    if name == EXEMPT {
        fixed[EXEMPT] = spec[EXEMPT].clone();
        detail = format!("spec of '{name}' except the 'spec.{EXEMPT}' field must equal the fixed value");
    }
    // Null stands for what is not there.
    let same = ["type", "limited", EXEMPT].into_iter().all(|field| fixed[field] == spec[field]);
    if !same {
        errors.invalid(path, GoValue("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec", spec), &detail);
    }
}

fn shares(errors: &mut ErrorList, path: Path<'_>, shares: &Value) {
    let nominal = number(shares, "nominalConcurrencyShares");
    if nominal < 0 {
        errors.invalid(path.child("nominalConcurrencyShares"), nominal, "must be a non-negative integer");
    }
    let lendable = number(shares, "lendablePercent");
    if !(0..=100).contains(&lendable) {
        errors.invalid(path.child("lendablePercent"), lendable, "must be between 0 and 100, inclusive");
    }
}

fn limited_rules(errors: &mut ErrorList, path: Path<'_>, limited: &Value) {
    shares(errors, path, limited);
    let borrowing = number(limited, "borrowingLimitPercent");
    if borrowing < 0 {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(path.child("borrowingLimitPercent"), borrowing, detail);
    }
    let (path, response) = (path.child("limitResponse"), &limited["limitResponse"]);
    let queuing = path.child("queuing");
    match text(response, "type") {
        "Reject" => {
            if given(response, "queuing") {
                errors.forbidden(queuing, "must be nil if limited.limitResponse.type is not Limited");
            }
        }
        "Queue" if given(response, "queuing") => queuing_rules(errors, queuing, &response["queuing"]),
        "Queue" => errors.required(queuing, "must not be empty if limited.limitResponse.type is Limited"),
        "" => errors.required(path.child("type"), ""),
        other => errors.not_supported(path.child("type"), other, &["Queue", "Reject"]),
    }
}

fn queuing_rules(errors: &mut ErrorList, path: Path<'_>, queuing: &Value) {
    let length = number(queuing, "queueLengthLimit");
    if length <= 0 {
        errors.invalid(path.child("queueLengthLimit"), length, "must be positive");
    }
    let (queues, hand) = (number(queuing, "queues"), number(queuing, "handSize"));
    if queues <= 0 {
        errors.invalid(path.child("queues"), queues, "must be positive");
    } else if queues > QUEUES_MAX {
        errors.invalid(path.child("queues"), queues, &format!("must not be greater than {QUEUES_MAX}"));
    }
    let path = path.child("handSize");
    if hand <= 0 {
        errors.invalid(path, hand, "must be positive");
    } else if hand > queues {
        errors.invalid(path, hand, &format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > f64::from(HASH_BITS) {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        errors.invalid(path, hand, &detail);
    }
}

/// How many random bits deal a hand. Upstream: `shufflesharding.RequiredEntropyBits`.
fn entropy_bits(queues: i64, hand: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "both are 32-bit numbers")]
    let (queues, hand) = (queues as f64, hand as f64);
    (queues.log2() * hand).ceil()
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let queuing = &spec["limited"]["limitResponse"]["queuing"];
    let or_none = |object: &Value, name: &str| match &object[name] {
        Value::Null => Value::from("<none>"),
        value => value.clone(),
    };
    vec![
        name_of(object),
        text(spec, "type").into(),
        or_none(&spec["limited"], "nominalConcurrencyShares"),
        or_none(queuing, "queues"),
        or_none(queuing, "handSize"),
        or_none(queuing, "queueLengthLimit"),
        age_of(object, now),
    ]
}
