//! Fields that hold a count or a percentage, as `maxUnavailable` does.

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::names;

/// Checks a count or a percentage.
pub(crate) fn int_or_percent(errors: &mut ErrorList, path: Path<'_>, value: &Value) {
    match value {
        Value::String(text) => {
            if let Some(problem) = names::percent(text) {
                errors.invalid(path, text.as_str(), &problem);
            }
        }
        value => errors.non_negative(path, value.as_i64().unwrap_or(0)),
    }
}

fn percentage(value: &Value) -> Option<i64> {
    value.as_str().filter(|text| names::percent(text).is_none())?.strip_suffix('%')?.parse().ok()
}

/// The count, or the percentage as a number.
pub(crate) fn amount(value: &Value) -> i64 {
    value.as_i64().or_else(|| percentage(value)).unwrap_or(0)
}

/// Checks that a percentage is at most 100%.
pub(crate) fn at_most_all(errors: &mut ErrorList, path: Path<'_>, value: &Value) {
    if percentage(value).is_some_and(|percent| percent > 100) {
        errors.invalid(path, value, "must not be greater than 100%");
    }
}
