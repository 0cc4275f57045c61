//! What can go wrong with a call, and what it says about the call.

use std::error::Error;
use std::fmt;

use tonic::{Code, Status};

/// Why a call has no answer.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// The revision is older than what etcd keeps.
    Compacted,
    /// The revision has not happened.
    Future,
    /// The database has reached its quota. The write that reaches it is carried out and answered with this all the
    /// same, so that whether it happened is unknown.
    NoSpace,
    /// etcd takes no request of this size: nothing was written.
    TooLarge,
    /// The lease is gone: nothing was written.
    LeaseNotFound,
    /// The request never left: nothing was written.
    NotSent(String),
    /// Neither did this one, because the certificates on either side do not fit.
    Untrusted(String),
    /// etcd refused the request for good: nothing was written.
    Refused(String),
    /// No answer came, or one that leaves open what happened.
    Unknown(String),
}

impl CallError {
    /// Whether the same call may be answered otherwise by another member or a moment later.
    pub(crate) fn passes(&self) -> bool {
        matches!(self, CallError::NotSent(_) | CallError::Untrusted(_) | CallError::Unknown(_))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Compacted => formatter.write_str("the revision has been compacted"),
            CallError::Future => formatter.write_str("the revision is in the future"),
            CallError::NoSpace => formatter.write_str(NO_SPACE),
            CallError::TooLarge => formatter.write_str("the request is larger than etcd takes"),
            CallError::LeaseNotFound => formatter.write_str("the lease has expired"),
            CallError::NotSent(reason)
            | CallError::Untrusted(reason)
            | CallError::Refused(reason)
            | CallError::Unknown(reason) => formatter.write_str(reason),
        }
    }
}

/// What an operator can do about the alarm.
pub(crate) const NO_SPACE: &str = "etcd has the alarm NOSPACE: its database has reached its quota and takes no writes; \
     compact and defragment it, or raise --quota-backend-bytes, then run 'etcdctl alarm disarm'";

/// What a status says about the call of a step at an endpoint.
pub(super) fn classify(step: &str, endpoint: &str, status: &Status) -> CallError {
    let message = status.message();
    match status.code() {
        Code::OutOfRange if message.contains("has been compacted") => return CallError::Compacted,
        Code::OutOfRange if message.contains("future revision") => return CallError::Future,
        Code::ResourceExhausted if message.contains("database space exceeded") => return CallError::NoSpace,
        Code::ResourceExhausted if message.contains("larger than max") => return CallError::TooLarge,
        Code::InvalidArgument if message.contains("too large") => return CallError::TooLarge,
        Code::NotFound if message.contains("lease not found") => return CallError::LeaseNotFound,
        _ => {}
    }
    let connected = !chain(status).any(|error| error.is::<tonic::ConnectError>());
    let mut reason = explain(status);
    // The first call on a new connection that ends without an answer: with TLS 1.3 a client learns that its certificate
    // is refused only after it has begun to speak.
    if connected && step == super::STATUS.step && chain(status).next().is_some() {
        reason.push_str(match endpoint.starts_with("https://") {
            true => ": it may not accept the client certificate, or want one",
            false => ": if it speaks TLS, its address begins with https://",
        });
    }
    let described = format!("{step}: etcd at {endpoint}: {reason}");
    if !connected {
        let untrusted = chain(status).any(|error| says_untrusted(&error.to_string()));
        return if untrusted { CallError::Untrusted(described) } else { CallError::NotSent(described) };
    }
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unauthenticated => CallError::Refused(described),
        _ => CallError::Unknown(described),
    }
}

fn chain(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |error: &&(dyn Error + 'static)| (*error).source())
}

/// Whether an error of the TLS library is one that trying again does not mend. Its type is hidden behind errors of IO,
/// which do not name it as their source.
fn says_untrusted(error: &str) -> bool {
    ["invalid peer certificate", "fatal alert", "InvalidContentType", "CorruptMessage"]
        .iter()
        .any(|says| error.contains(says))
}

/// The cause in a few words, for the person who can act on it.
fn explain(status: &Status) -> String {
    let causes: Vec<String> = chain(status).map(ToString::to_string).collect();
    let Some(deepest) = causes.last() else {
        return status.message().trim_start_matches("etcdserver: ").to_owned();
    };
    let says = |text: &str| causes.iter().any(|cause| cause.contains(text));
    if says("UnknownIssuer") || says("BadSignature") {
        return "its certificate is signed by another CA than the one given for etcd".to_owned();
    }
    if says("NotValidForName") {
        return format!("its certificate is for another name ({deepest})");
    }
    if says("fatal alert") {
        return format!("it does not accept the client certificate, or wants one ({deepest})");
    }
    if says("InvalidContentType") || says("CorruptMessage") || says("tls handshake eof") {
        return format!("{deepest}: if it does not speak TLS, its address begins with http://");
    }
    deepest.clone()
}
