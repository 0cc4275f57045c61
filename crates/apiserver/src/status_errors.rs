//! The failures of requests, in upstream's words; upstream's `apierrors`.

use std::collections::BTreeSet;
use std::fmt;

use bayplan_kinds::Kind;
use bayplan_model::status::{Cause, Details, Outcome, Status, StatusKind, StatusMeta, V1, reason};
use bayplan_store::{ReadError, Revision, WriteError};

pub(crate) use bayplan_kinds::FieldError;

fn of(resource: &Kind, name: &str) -> Details {
    Details {
        name: name.to_owned(),
        group: resource.group.to_owned(),
        kind: resource.plural.to_owned(),
        ..Details::default()
    }
}

/// 400 with free text.
pub(crate) fn bad_request(message: impl Into<String>) -> Status {
    Status::failure(400, reason::BAD_REQUEST, message)
}

/// 401.
pub(crate) fn unauthorized() -> Status {
    Status::failure(401, reason::UNAUTHORIZED, "Unauthorized")
}

/// 403: `pods "x" is forbidden: <why>`; collections have no name.
pub(crate) fn forbidden(resource: &Kind, name: &str, why: impl fmt::Display) -> Status {
    let message = if name.is_empty() {
        format!("{} is forbidden: {why}", resource.qualified())
    } else {
        format!("{} {name:?} is forbidden: {why}", resource.qualified())
    };
    Status::failure(403, reason::FORBIDDEN, message).with_details(of(resource, name))
}

/// 404 for an object.
pub(crate) fn not_found(resource: &Kind, name: &str) -> Status {
    Status::failure(404, reason::NOT_FOUND, format!("{} {name:?} not found", resource.qualified()))
        .with_details(of(resource, name))
}

/// 404 for a path.
pub(crate) fn path_not_found() -> Status {
    Status::failure(404, reason::NOT_FOUND, "the server could not find the requested resource")
        .with_details(Details::default())
}

/// 501 for what the kubelet of a real node would answer.
pub(crate) fn not_passed_on(node: &str) -> Status {
    let message = format!("{node} is not simulated, and requests are not passed on to kubelets and to what runs there");
    Status::failure(501, "", message)
}

/// 405.
pub(crate) fn method_not_allowed() -> Status {
    Status::failure(405, reason::METHOD_NOT_ALLOWED, "the server does not allow this method on the requested resource")
        .with_details(Details::default())
}

/// 409 for a create.
pub(crate) fn already_exists(resource: &Kind, name: &str, terminating: bool) -> Status {
    let prefix = if terminating { "object is being deleted: " } else { "" };
    Status::failure(409, reason::ALREADY_EXISTS, format!("{prefix}{} {name:?} already exists", resource.qualified()))
        .with_details(of(resource, name))
}

/// 409 when every generated name exists already.
pub(crate) fn generated_name_exhausted(resource: &Kind, name: &str) -> Status {
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
pub(crate) fn conflict(resource: &Kind, name: &str, why: impl fmt::Display) -> Status {
    Status::failure(
        409,
        reason::CONFLICT,
        format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified()),
    )
    .with_details(of(resource, name))
}

/// 409 for a resource version that is not the newest.
pub(crate) fn modified(resource: &Kind, name: &str) -> Status {
    conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

/// 422: the object is not valid.
pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Status {
    let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    // The message has each error once, the causes as often as it was found.
    let mut seen = BTreeSet::new();
    let once = errors.iter().filter(|error| seen.insert((&error.field, &error.message)));
    let texts: Vec<String> = once.map(ToString::to_string).collect();
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
pub(crate) fn invalid_object(resource: &Kind, name: &str, errors: &[FieldError]) -> Status {
    // Events of both groups are one kind, and errors name the core one.
    let group = if resource.kind == "Event" { "" } else { resource.group };
    invalid(group, resource.kind, name, errors)
}

/// 406: the client accepts no form that is served.
pub(crate) fn not_acceptable(served: &str) -> Status {
    let message = format!("only the following media types are accepted: {served}");
    Status::failure(406, reason::NOT_ACCEPTABLE, message)
}

/// 415 for the body of an object.
pub(crate) fn unsupported_media_type() -> Status {
    Status::failure(
        415,
        reason::UNSUPPORTED_MEDIA_TYPE,
        "the body of the request was in an unknown format - accepted media types include: application/json, \
         application/yaml, application/vnd.kubernetes.protobuf",
    )
}

/// 413.
pub(crate) fn too_large(limit: usize) -> Status {
    Status::failure(413, reason::REQUEST_ENTITY_TOO_LARGE, format!("Request entity too large: limit is {limit}"))
}

/// 408: the body of a request comes too slowly.
pub(crate) fn body_too_slow(bytes_per_second: u32) -> Status {
    let message = format!("the body came more slowly than {bytes_per_second} bytes per second");
    Status::failure(408, reason::TIMEOUT, message)
}

/// 410: the history is no longer available.
pub(crate) fn expired(message: impl Into<String>) -> Status {
    Status::failure(410, reason::EXPIRED, message)
}

/// 504: the store has not reached the resource version.
pub(crate) fn version_too_large(requested: Revision, current: Revision) -> Status {
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
pub(crate) fn internal(message: impl fmt::Display) -> Status {
    let message = message.to_string();
    Status::failure(500, reason::INTERNAL_ERROR, format!("Internal error occurred: {message}")).with_details(Details {
        causes: vec![Cause { reason: String::new(), message, field: String::new() }],
        ..Details::default()
    })
}

/// 500 without a reason, which upstream answers for errors that are not a `Status`.
pub(crate) fn plain(message: impl Into<String>) -> Status {
    Status::failure(500, "", message)
}

/// 429: the server is overloaded.
pub(crate) fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Status {
    Status::failure(429, reason::TOO_MANY_REQUESTS, message)
        .with_details(Details { retry_after_seconds, ..Details::default() })
}

/// 504: the request took too long.
pub(crate) fn timeout(message: impl fmt::Display) -> Status {
    Status::failure(504, reason::TIMEOUT, format!("Timeout: {message}")).with_details(Details::default())
}

/// A success without an object: deletions and bindings.
pub(crate) fn success(code: u16, details: Option<Details>) -> Status {
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

/// The answer to a failed read of the store.
pub(crate) fn read(error: ReadError) -> Status {
    match error {
        ReadError::Compacted { .. } => expired("The resourceVersion for the provided list is too old."),
        ReadError::Future { requested, current } => version_too_large(requested, current),
        ReadError::Unreadable(unreadable) => internal(unreadable),
        // What upstream answers while etcd is away.
        ReadError::Unavailable(message) => timeout(message),
    }
}

/// The answer to a failed write of the store that is not a conflict.
pub(crate) fn write(error: WriteError) -> Status {
    match error {
        WriteError::InDoubt(_) => timeout(error),
        error => internal(error),
    }
}
