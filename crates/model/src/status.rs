//! `metav1.Status`: the answer of an API server to a request that failed (or, rarely, succeeded).

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a request failed, as machine-readable text. Clients branch on these strings, so they are exact.
pub mod reason {
    #![allow(missing_docs)]
    pub const BAD_REQUEST: &str = "BadRequest";
    pub const UNAUTHORIZED: &str = "Unauthorized";
    pub const FORBIDDEN: &str = "Forbidden";
    pub const NOT_FOUND: &str = "NotFound";
    pub const ALREADY_EXISTS: &str = "AlreadyExists";
    pub const CONFLICT: &str = "Conflict";
    pub const GONE: &str = "Gone";
    pub const EXPIRED: &str = "Expired";
    pub const INVALID: &str = "Invalid";
    pub const METHOD_NOT_ALLOWED: &str = "MethodNotAllowed";
    pub const NOT_ACCEPTABLE: &str = "NotAcceptable";
    pub const REQUEST_ENTITY_TOO_LARGE: &str = "RequestEntityTooLarge";
    pub const UNSUPPORTED_MEDIA_TYPE: &str = "UnsupportedMediaType";
    pub const TOO_MANY_REQUESTS: &str = "TooManyRequests";
    pub const TIMEOUT: &str = "Timeout";
    pub const INTERNAL_ERROR: &str = "InternalError";
    pub const SERVICE_UNAVAILABLE: &str = "ServiceUnavailable";
}

/// A `metav1.Status` object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`.
    #[serde(default)]
    pub kind: StatusKind,
    /// Always `v1`.
    #[serde(default)]
    pub api_version: V1,
    /// List metadata; only an expired continue token uses it.
    #[serde(default)]
    pub metadata: StatusMeta,
    /// `Success` or `Failure`.
    #[serde(default)]
    pub status: Outcome,
    /// What went wrong, for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What went wrong, for a program (see [`reason`]).
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    /// Which object, and which of its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
    /// The HTTP status code.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub code: u16,
}

/// Whether the request took effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It did.
    Success,
    /// It did not.
    #[default]
    Failure,
}

/// The constant `kind` of a [`Status`]; it takes no room in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatusKind {
    /// The only value.
    #[default]
    Status,
}

/// The constant `apiVersion` of a [`Status`]; it takes no room in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum V1 {
    /// The only value.
    #[default]
    #[serde(rename = "v1")]
    V1,
}

/// The list metadata of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusMeta {
    /// A fresh token, inside the answer to an expired one.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
}

/// The object of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its API group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its resource (plural), or its kind when the object was invalid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Each single reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// How long to wait before trying again.
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub retry_after_seconds: u32,
}

/// One reason of a failure, usually one field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// The machine-readable reason, `FieldValueInvalid` for example.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The same for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the field.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Status {
    /// A failure with neither details nor causes.
    pub fn failure(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Status {
            kind: StatusKind::Status,
            api_version: V1::V1,
            metadata: StatusMeta::default(),
            status: Outcome::Failure,
            message: message.into(),
            reason: Cow::Borrowed(reason),
            details: None,
            code,
        }
    }

    /// Adds the object of the status.
    #[must_use]
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// True when the failure carries this [`reason`].
    pub fn is(&self, reason: &str) -> bool {
        self.reason == reason
    }

    /// True when one of the causes carries this reason, `NamespaceTerminating` for example.
    pub fn has_cause(&self, reason: &str) -> bool {
        self.details.as_ref().is_some_and(|d| d.causes.iter().any(|c| c.reason == reason))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

fn is_zero(code: &u16) -> bool {
    *code == 0
}

fn is_zero_u32(seconds: &u32) -> bool {
    *seconds == 0
}
