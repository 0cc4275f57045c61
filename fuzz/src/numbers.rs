//! Quantities, durations, times and numbers that may be text.

use bayplan_kinds::codec::{self, Encoding, FieldValidation};
use bayplan_kinds::find;
use bayplan_model::int_or_string::IntOrString;
use bayplan_model::quantity::{Format, Quantity, scale};
use bayplan_scheduler::config::GoDuration;
use serde_json::json;

use crate::bounded;

/// Bytes allocated for each byte of a number. A quantity keeps at most a few hundred digits; the rest is its text.
const FACTOR: u64 = 4096;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    bounded::work(text.len(), FACTOR, "a number", || {
        quantity(text);
        sums(text);
        duration(text);
        time(text);
        share(text);
    });
}

fn quantity(text: &str) {
    let quantity = match Quantity::parse(text) {
        Ok(quantity) => quantity,
        Err(error) => return bounded::text(text.len(), "a quantity", &error.to_string()),
    };
    let written = quantity.to_string();
    let again = Quantity::parse(&written).unwrap_or_else(|error| panic!("{text:?} is written {written:?}: {error}"));
    assert_eq!(again, quantity, "{text:?} is written {written:?}");
    // A number in Ki that is no multiple of 1,024 is written without a suffix and then read as a decimal one, which may
    // be written shorter, as upstream: `2184864437.5Ki`, `2237301184000`, `2237301184k`. It stays at that.
    let shortest = again.to_string();
    let third = Quantity::parse(&shortest).unwrap_or_else(|error| panic!("{text:?} is written {shortest:?}: {error}"));
    assert_eq!(third, quantity, "{text:?} is written {shortest:?}");
    assert_eq!(third.to_string(), shortest, "{text:?}: a third writing differs");
    let _ = (quantity.value(), quantity.milli_value(), quantity.as_i64(), quantity.approximate_f64());
    // Below zero upstream rounds towards it, beyond 64 bits of precision; what is there is never counted as nothing.
    assert_eq!(quantity.sign() > 0, quantity.value() > 0 && quantity.sign() >= 0, "{text:?}");
    for to in [scale::NANO, scale::MILLI, scale::UNIT, scale::GIGA] {
        let mut rounded = quantity.clone();
        let exact = rounded.round_up(to);
        assert_eq!(exact, rounded == quantity, "{text:?} rounded to 10^{to}");
    }
}

/// What is added can be taken away again.
fn sums(text: &str) {
    let Some((a, b)) = text.split_once(' ') else { return };
    let (Ok(a), Ok(b)) = (Quantity::parse(a), Quantity::parse(b)) else { return };
    let mut sum = a.clone();
    sum.add(&b);
    let mut back = sum.clone();
    back.sub(&b);
    assert_eq!(back, a, "{a} + {b} - {b}");
    assert_eq!(sum > a, b.sign() > 0, "{a} + {b}");
    let mut negated = sum.clone();
    negated.neg();
    negated.add(&sum);
    assert!(negated.is_zero(), "{sum} and its negative");
    let mut product = a.clone();
    product.mul(-3);
    assert_eq!(product.sign(), -a.sign(), "{a} × -3");
    let _ = (a.cmp_i64(i64::MIN), Quantity::new(i64::MIN, Format::DecimalSI).cmp(&a));
}

fn duration(text: &str) {
    match GoDuration::parse(text) {
        Ok(duration) => {
            let written = duration.to_string();
            assert_eq!(GoDuration::parse(&written), Ok(duration), "{text:?} is written {written:?}");
            let _ = duration.unsigned();
        }
        Err(error) => bounded::text(text.len(), "a duration", &error),
    }
}

/// Times go through the body of a lease, which has both kinds.
fn time(text: &str) {
    let lease = find("coordination.k8s.io", "v1", "leases").expect("a row of the table").group_version_kind();
    let body = json!({"metadata": {"creationTimestamp": text}, "spec": {"renewTime": text}});
    for (field, other) in [("metadata", "spec"), ("spec", "metadata")] {
        let mut body = body.clone();
        body[other] = json!({});
        let bytes = body.to_string().into_bytes();
        match codec::decode(lease, Encoding::Json, &bytes, FieldValidation::Strict) {
            Ok(decoded) => {
                let written = decoded.object.to_string().into_bytes();
                let again = codec::decode(lease, Encoding::Json, &written, FieldValidation::Strict);
                assert_eq!(again.as_ref().ok(), Some(&decoded), "{field} {text:?}: {again:?}");
            }
            Err(status) => bounded::refusal(bytes.len(), "a time", &status),
        }
    }
}

fn share(text: &str) {
    let value = IntOrString::String(text.to_owned());
    let _ = value.int_value();
    for total in [0, 1, 7, i64::MAX] {
        match (value.scaled(total, true), value.scaled(total, false)) {
            (Ok(up), Ok(down)) => assert!(down <= up, "{text:?} of {total}"),
            (Err(error), Err(_)) => bounded::text(text.len(), "a percentage", &error.to_string()),
            (up, down) => panic!("{text:?} of {total}: {up:?} up, {down:?} down"),
        }
    }
}
