//! Named formats of text: what Kubernetes and OpenAPI demand of names, times and the like.

use std::sync::Arc;

use bayplan_model::{dns_name, label};

use super::urls;
use crate::Error;
use crate::cost::{REGEX, TRAVERSAL, factor};
use crate::value::Value;

/// A format.
#[derive(Debug)]
pub(crate) struct Format {
    name: &'static str,
    /// The length of upstream's pattern, by which it charges.
    pattern: u64,
    /// What is wrong with a text.
    errors: fn(&str) -> Vec<String>,
}

impl PartialEq for Format {
    fn eq(&self, other: &Format) -> bool {
        self.name == other.name
    }
}

static FORMATS: [Format; 13] = [
    Format { name: "dns1123Label", pattern: 30, errors: dns_name::label_errors },
    Format { name: "dns1123Subdomain", pattern: 60, errors: dns_name::subdomain_errors },
    Format { name: "dns1035Label", pattern: 30, errors: dns_name::label_1035_errors },
    Format { name: "qualifiedName", pattern: 60, errors: label::key_errors },
    Format { name: "dns1123LabelPrefix", pattern: 30, errors: |text| dns_name::label_errors(&completed(text)) },
    Format { name: "dns1123SubdomainPrefix", pattern: 60, errors: |text| dns_name::subdomain_errors(&completed(text)) },
    Format { name: "dns1035LabelPrefix", pattern: 30, errors: |text| dns_name::label_1035_errors(&completed(text)) },
    Format { name: "labelValue", pattern: 40, errors: label::value_errors },
    Format { name: "uri", pattern: 1103, errors: |text| urls::fault(text).into_iter().collect() },
    Format { name: "uuid", pattern: 70, errors: |text| unless(is_uuid(text), "does not match the UUID format") },
    Format { name: "byte", pattern: 84, errors: |text| unless(is_base64(text), "invalid base64") },
    Format { name: "date", pattern: 71, errors: |text| unless(is_date(text), "invalid date") },
    Format { name: "datetime", pattern: 71, errors: |text| unless(is_date_time(text), "invalid datetime") },
];

fn unless(valid: bool, error: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![error.to_owned()] }
}

/// A prefix as if a name followed its dash. Upstream puts a letter in the place of the last two bytes.
fn completed(prefix: &str) -> String {
    match prefix.strip_suffix('-').and_then(|before| before.char_indices().next_back()) {
        // A character of which it leaves some bytes is no name, and nor is a question mark.
        Some((at, cut)) => format!("{}{}a", &prefix[..at], "?".repeat(cut.len_utf8() - 1)),
        None => prefix.to_owned(),
    }
}

/// 32 hexadecimal digits; there may be a dash after the eighth, twelfth, sixteenth and twentieth.
fn is_uuid(text: &str) -> bool {
    let mut rest = text.as_bytes();
    for group in [8, 4, 4, 4, 12] {
        match rest.split_at_checked(group) {
            Some((digits, after)) if digits.iter().all(u8::is_ascii_hexdigit) => rest = after,
            _ => return false,
        }
        if group != 12 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
    }
    rest.is_empty()
}

/// Base64 with padding; not nothing.
fn is_base64(text: &str) -> bool {
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !digits.is_empty() && text.len().is_multiple_of(4) && digits.bytes().all(is_digit)
}

/// A number of so many digits.
fn number(text: &[u8], digits: usize) -> Option<i16> {
    let fits = text.len() == digits && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| fits)?.parse().ok()
}

/// A day of the calendar as RFC 3339 writes it.
fn is_date(text: &str) -> bool {
    let mut parts = text.as_bytes().split(|byte| *byte == b'-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let read = || {
        let (month, day) = (i8::try_from(number(month, 2)?).ok()?, i8::try_from(number(day, 2)?).ok()?);
        jiff::civil::Date::new(number(year, 4)?, month, day).ok()
    };
    read().is_some()
}

/// A date and a time as OpenAPI's own check takes them: anything may stand before the fraction of a second, and another
/// `t` ends what is looked at.
fn is_date_time(text: &str) -> bool {
    let mut parts = text.split(['t', 'T']);
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

fn is_time(text: &str) -> bool {
    // Two digits each: hours, minutes and seconds.
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let part = |part: &[u8], max| number(part, 2).is_some_and(|part| part <= max);
    let is_clock = match clock.as_bytes() {
        [h0, h1, b':', m0, m1, b':', s0, s1] => part(&[*h0, *h1], 23) && part(&[*m0, *m1], 59) && part(&[*s0, *s1], 59),
        _ => false,
    };
    let zone = |rest: &str| match rest.as_bytes() {
        [b'+' | b'-', h0, h1, b':', m0, m1] => [h0, h1, m0, m1].into_iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let fraction = match rest.strip_suffix(['z', 'Z']) {
        Some(fraction) => fraction,
        None => match rest.len().checked_sub(6).and_then(|at| rest.split_at_checked(at)) {
            Some((fraction, offset)) if zone(offset) => fraction,
            _ => return false,
        },
    };
    let mut characters = fraction.chars();
    let is_fraction = match characters.next() {
        None => true,
        Some('\n') => false,
        Some(_) => !characters.as_str().is_empty() && characters.all(|c| c.is_ascii_digit()),
    };
    is_clock && is_fraction
}

fn named(name: &str) -> Option<Value> {
    FORMATS.iter().find(|format| format.name == name).map(Value::Format)
}

/// `format.named(…)`.
pub(super) fn of_name(name: &str) -> Value {
    Value::Optional(named(name).map(Arc::new))
}

/// `format.dns1123Label()` and the others.
pub(super) fn of_function(function: &str) -> Result<Value, Error> {
    function.strip_prefix("format.").and_then(named).ok_or_else(Error::no_such_overload)
}

impl Format {
    /// What looking at a text of this size costs.
    pub(super) fn cost(&self, size: u64) -> u64 {
        factor(size.saturating_add(1), TRAVERSAL).saturating_mul(factor(self.pattern, REGEX))
    }

    /// The errors of a text; none when it is valid.
    pub(super) fn validate(&self, text: &str) -> Value {
        let errors = (self.errors)(text);
        let list = (!errors.is_empty()).then(|| Value::list(errors.into_iter().map(Value::string).collect()));
        Value::Optional(list.map(Arc::new))
    }
}
