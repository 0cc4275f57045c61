//! A field that breaks the rules of its kind, as `details.causes` of a 422 carries it.

use std::fmt;

/// One field that is wrong, as `details.causes` carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: &'static str,
    /// The path, `spec.containers[0].name`.
    pub field: String,
    /// What is wrong, offending value included: `Invalid value: -1: must be greater than or equal to 0`.
    pub message: String,
}

impl FieldError {
    /// An error of any reason; `message` must begin with the reason's words.
    pub fn new(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        FieldError { reason, field: field.into(), message: message.into() }
    }

    /// `Forbidden: …`
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {detail}"))
    }

    /// `Invalid value: <value>: …`; the value as JSON shows it.
    pub fn invalid(field: impl Into<String>, value: impl fmt::Display, detail: impl fmt::Display) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {detail}"))
    }

    /// `Required value: …`, or without a detail just `Required value`.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Self::new("FieldValueRequired", field, message)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
