//! The failures an API server answers with, each as upstream words it.

use std::fmt;

use bayplan_model::status::{Cause, Details, Outcome, Status, StatusKind, StatusMeta, V1, reason};
use bayplan_store::{ReadError, Revision, WriteError};

pub use bayplan_kinds::field_error::FieldError;

use crate::resources::Resource;

fn of(resource: &Resource, name: &str) -> Details {
    Details {
        name: name.to_owned(),
        group: resource.group.to_owned(),
        kind: resource.plural.to_owned(),
        ..Details::default()
    }
}

/// 400 with free text.
pub fn bad_request(message: impl Into<String>) -> Status {
    Status::failure(400, reason::BAD_REQUEST, message)
}

/// 401.
pub fn unauthorized() -> Status {
    Status::failure(401, reason::UNAUTHORIZED, "Unauthorized")
}

/// 403: `pods "x" is forbidden: <why>`, without the name when there is none.
pub fn forbidden(resource: &Resource, name: &str, why: impl fmt::Display) -> Status {
    let message = if name.is_empty() {
        format!("{} is forbidden: {why}", resource.qualified())
    } else {
        format!("{} {name:?} is forbidden: {why}", resource.qualified())
    };
    Status::failure(403, reason::FORBIDDEN, message).with_details(of(resource, name))
}

/// 404 for an object.
pub fn not_found(resource: &Resource, name: &str) -> Status {
    Status::failure(404, reason::NOT_FOUND, format!("{} {name:?} not found", resource.qualified()))
        .with_details(of(resource, name))
}

/// 404 for a path.
pub fn path_not_found() -> Status {
    Status::failure(404, reason::NOT_FOUND, "the server could not find the requested resource")
        .with_details(Details::default())
}

/// 405.
pub fn method_not_allowed() -> Status {
    Status::failure(405, reason::METHOD_NOT_ALLOWED, "the server does not allow this method on the requested resource")
        .with_details(Details::default())
}

/// 405 for a verb the resource does not have.
pub fn method_not_supported(resource: &Resource, verb: &str) -> Status {
    Status::failure(
        405,
        reason::METHOD_NOT_ALLOWED,
        format!("{verb} is not supported on resources of kind \"{}\"", resource.qualified()),
    )
    .with_details(Details {
        group: resource.group.to_owned(),
        kind: resource.plural.to_owned(),
        ..Details::default()
    })
}

/// 409 for a create.
pub fn already_exists(resource: &Resource, name: &str, terminating: bool) -> Status {
    let prefix = if terminating { "object is being deleted: " } else { "" };
    Status::failure(409, reason::ALREADY_EXISTS, format!("{prefix}{} {name:?} already exists", resource.qualified()))
        .with_details(of(resource, name))
}

/// 409 when every generated name was taken.
pub fn generated_name_exhausted(resource: &Resource, name: &str) -> Status {
    let mut details = of(resource, name);
    details.retry_after_seconds = 1;
    Status::failure(
        409,
        reason::ALREADY_EXISTS,
        format!(
            "{} {name:?} already exists, the server was not able to generate a unique name for the object",
            resource.qualified()
        ),
    )
    .with_details(details)
}

/// 409: `Operation cannot be fulfilled on pods "x": <why>`.
pub fn conflict(resource: &Resource, name: &str, why: impl fmt::Display) -> Status {
    Status::failure(
        409,
        reason::CONFLICT,
        format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified()),
    )
    .with_details(of(resource, name))
}

/// 409 for a resource version that has moved on.
pub fn modified(resource: &Resource, name: &str) -> Status {
    conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

/// 422: the object breaks the rules of its kind.
pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Status {
    let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    // Each is said once, but listed as often as it was found.
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for text in errors.iter().map(ToString::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let text = match &*texts {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    Status::failure(422, reason::INVALID, format!("{qualified} {name:?} is invalid: {text}")).with_details(Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        causes: errors
            .iter()
            .map(|e| Cause { reason: e.reason.to_owned(), message: e.message.clone(), field: e.field.clone() })
            .collect(),
        ..Details::default()
    })
}

/// 422 for an object of a served kind.
pub fn invalid_object(resource: &Resource, name: &str, errors: &[FieldError]) -> Status {
    // Events of either group are the same kind within.
    let group = if resource.kind == "Event" { "" } else { resource.group };
    invalid(group, resource.kind, name, errors)
}

/// 406: nothing the client accepts can be produced.
pub fn not_acceptable() -> Status {
    Status::failure(
        406,
        reason::NOT_ACCEPTABLE,
        "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
    )
}

/// 413.
pub fn too_large(limit: usize) -> Status {
    Status::failure(413, reason::REQUEST_ENTITY_TOO_LARGE, format!("Request entity too large: limit is {limit}"))
}

/// 410: the history asked for is gone.
pub fn expired(message: impl Into<String>) -> Status {
    Status::failure(410, reason::EXPIRED, message)
}

/// 504: the resource version lies in the future.
pub fn version_too_large(requested: Revision, current: Revision) -> Status {
    Status::failure(
        504,
        reason::TIMEOUT,
        format!("Timeout: Too large resource version: {requested}, current: {current}"),
    )
    .with_details(Details {
        causes: vec![Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }],
        retry_after_seconds: 1,
        ..Details::default()
    })
}

/// 500 with upstream's prefix and a cause.
pub fn internal(message: impl fmt::Display) -> Status {
    let message = message.to_string();
    Status::failure(500, reason::INTERNAL_ERROR, format!("Internal error occurred: {message}")).with_details(Details {
        causes: vec![Cause { reason: String::new(), message, field: String::new() }],
        ..Details::default()
    })
}

/// 500 without a reason: how upstream reports errors that are no `Status`.
pub fn plain(message: impl Into<String>) -> Status {
    Status::failure(500, "", message)
}

/// 429: the server has more to do than it can.
pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Status {
    Status::failure(429, reason::TOO_MANY_REQUESTS, message)
        .with_details(Details { retry_after_seconds, ..Details::default() })
}

/// 504: the request took longer than it may.
pub fn timeout(message: impl fmt::Display) -> Status {
    Status::failure(504, reason::TIMEOUT, format!("Timeout: {message}")).with_details(Details::default())
}

/// A success that carries no object: deletions and bindings.
pub fn success(code: u16, details: Option<Details>) -> Status {
    Status {
        kind: StatusKind::Status,
        api_version: V1::V1,
        metadata: StatusMeta::default(),
        status: Outcome::Success,
        message: String::new(),
        reason: "".into(),
        details: details.map(Box::new),
        code,
    }
}

/// How a failed read of the store is answered.
pub fn read(error: ReadError) -> Status {
    match error {
        ReadError::Compacted { .. } => expired("The resourceVersion for the provided list is too old."),
        ReadError::Future { requested, current } => version_too_large(requested, current),
        ReadError::Unavailable(message) => internal(message),
    }
}

/// How a failed write is answered when it is not a conflict.
pub fn write(error: WriteError) -> Status {
    internal(error)
}
