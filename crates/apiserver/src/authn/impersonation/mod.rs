//! Impersonation: a user with the right to `impersonate` acts as another user.
//!
//! ```text
//!   headers ─▶ requested (the user they name) ─▶ modes, the narrowest first ─▶ the user who acts, or the first refusal
//! ```
//!
//! Fails closed: a header that cannot be read is never the same as one that is missing.

mod mode;
mod requested;
#[cfg(test)]
mod tests;

use bayplan_model::status::{Details, Status, reason};
use http::HeaderMap;

use crate::authz::Authorizer;
use crate::request::RequestInfo;
use crate::user::User;
use mode::Mode;

/// The user that the request acts as: the one in its headers if `user` may impersonate them, otherwise `user`.
pub(crate) fn impersonate(
    user: User,
    headers: &HeaderMap,
    request: &RequestInfo,
    authorizer: &Authorizer,
) -> Result<User, Status> {
    let Some(wanted) = requested::of(headers)? else { return Ok(user) };
    let mut refusal = None;
    for mode in Mode::ALL.iter().filter(|mode| mode.applies(&wanted.user, &user)) {
        match mode.check(&user, &wanted.user, request, authorizer) {
            Ok(_) if !wanted.readable => return Err(unreadable()),
            Ok(actual) => return Ok(actual),
            Err(status) => refusal = refusal.or(Some(status)),
        }
    }
    Err(refusal.unwrap_or_else(unreadable))
}

/// Upstream acts under a name that is no text; here names are text, so nobody can have that name.
fn unreadable() -> Status {
    Status::failure(403, reason::FORBIDDEN, "forbidden: an impersonation header is not valid UTF-8")
        .with_details(Details::default())
}
