//! Collects field errors, in upstream's words. Upstream: `field.ErrorList`.

use serde_json::Value;

use super::{FieldError, Path};

/// The errors found so far.
#[derive(Default)]
pub(crate) struct ErrorList(Vec<FieldError>);

impl ErrorList {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_vec(self) -> Vec<FieldError> {
        self.0
    }

    /// Removes repeated errors.
    pub(crate) fn drop_repeated(&mut self) {
        let mut kept: Vec<FieldError> = Vec::with_capacity(self.0.len());
        for error in self.0.drain(..) {
            if !kept.contains(&error) {
                kept.push(error);
            }
        }
        self.0 = kept;
    }

    fn add(&mut self, reason: &'static str, path: Path<'_>, message: String) {
        self.0.push(FieldError::new(reason, path.to_string(), message));
    }

    fn with_value(&mut self, reason: &'static str, words: &str, path: Path<'_>, value: Shown, detail: &str) {
        let Shown(shown) = value;
        let message =
            if detail.is_empty() { format!("{words}: {shown}") } else { format!("{words}: {shown}: {detail}") };
        self.add(reason, path, message);
    }

    pub(crate) fn invalid(&mut self, path: Path<'_>, value: impl Into<Shown>, detail: &str) {
        self.with_value("FieldValueInvalid", "Invalid value", path, value.into(), detail);
    }

    /// Reports the value as invalid once for each detail.
    pub(crate) fn all_invalid(&mut self, path: Path<'_>, value: &str, details: Vec<String>) {
        for detail in details {
            self.invalid(path, value, &detail);
        }
    }

    pub(crate) fn required(&mut self, path: Path<'_>, detail: &str) {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        self.add("FieldValueRequired", path, message);
    }

    pub(crate) fn forbidden(&mut self, path: Path<'_>, detail: &str) {
        self.add("FieldValueForbidden", path, format!("Forbidden: {detail}"));
    }

    pub(crate) fn duplicate(&mut self, path: Path<'_>, value: impl Into<Shown>) {
        self.with_value("FieldValueDuplicate", "Duplicate value", path, value.into(), "");
    }

    pub(crate) fn duplicate_with(&mut self, path: Path<'_>, value: impl Into<Shown>, detail: &str) {
        self.with_value("FieldValueDuplicate", "Duplicate value", path, value.into(), detail);
    }

    pub(crate) fn not_found(&mut self, path: Path<'_>, value: &str) {
        self.with_value("FieldValueNotFound", "Not found", path, value.into(), "");
    }

    pub(crate) fn not_supported(&mut self, path: Path<'_>, value: impl Into<Shown>, supported: &[&str]) {
        let list: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let detail = format!("supported values: {}", list.join(", "));
        self.with_value("FieldValueNotSupported", "Unsupported value", path, value.into(), &detail);
    }

    pub(crate) fn too_long(&mut self, path: Path<'_>, max: usize) {
        self.add("FieldValueTooLong", path, format!("Too long: may not be more than {max} bytes"));
    }

    pub(crate) fn non_negative(&mut self, path: Path<'_>, number: i64) {
        if number < 0 {
            self.invalid(path, number, "must be greater than or equal to 0");
        }
    }

    /// Requires one of the supported values.
    pub(crate) fn one_of(&mut self, path: Path<'_>, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(path, "");
        } else if !supported.contains(&value) {
            self.not_supported(path, value, supported);
        }
    }

    pub(crate) fn immutable(&mut self, path: Path<'_>, new: &Value, old: &Value) {
        if new != old {
            self.invalid(path, new, "field is immutable");
        }
    }
}

/// A value as messages show it: text quoted, the rest as JSON.
pub(crate) struct Shown(String);

impl From<&str> for Shown {
    fn from(text: &str) -> Self {
        Shown(format!("{text:?}"))
    }
}

impl From<i64> for Shown {
    fn from(number: i64) -> Self {
        Shown(number.to_string())
    }
}

impl From<&Value> for Shown {
    fn from(value: &Value) -> Self {
        match value {
            Value::String(text) => text.as_str().into(),
            other => Shown(other.to_string()),
        }
    }
}

/// Text that is JSON already, for objects that messages show in Go's field order.
pub(crate) struct Json(pub(crate) String);

impl From<Json> for Shown {
    fn from(json: Json) -> Self {
        Shown(json.0)
    }
}
