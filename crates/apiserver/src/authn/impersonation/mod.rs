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

use std::sync::{Mutex, PoisonError};

use bayplan_model::keyed::KeyedMap;
use bayplan_model::status::{Details, Status, reason};
use http::HeaderMap;

use crate::authz::Authorizer;
use crate::request::RequestInfo;
use crate::user::User;
use mode::Mode;

/// The most users whose last mode is remembered, as upstream.
const REMEMBERED_MAX: usize = 10_000;

/// The mode in which each user last impersonated somebody. It is tried first, and so its refusal is the one that is
/// told. Upstream: `modeIndexCache`.
#[derive(Default)]
pub(crate) struct LastModes(Mutex<KeyedMap<String, Mode>>);

impl LastModes {
    fn of(&self, user: &User) -> Option<Mode> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&user.name).copied()
    }

    fn remember(&self, user: &User, mode: Mode) {
        let mut modes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if modes.len() >= REMEMBERED_MAX && !modes.contains_key(&user.name) {
            // Whoever comes again is remembered again.
            modes.clear();
        }
        modes.insert(user.name.clone(), mode);
    }
}

/// The user that the request acts as: the one in its headers if `user` may impersonate them, otherwise `user`.
pub(crate) fn impersonate(
    user: User,
    headers: &HeaderMap,
    request: &RequestInfo,
    authorizer: &Authorizer,
    last_modes: &LastModes,
) -> Result<User, Status> {
    let Some(wanted) = requested::of(headers)? else { return Ok(user) };
    let mut refusal = None;
    let last = last_modes.of(&user);
    let others = Mode::ALL.into_iter().filter(|mode| Some(*mode) != last);
    for mode in last.into_iter().chain(others).filter(|mode| mode.applies(&wanted.user, &user)) {
        match mode.check(&user, &wanted.user, request, authorizer) {
            Ok(_) if !wanted.readable => return Err(unreadable()),
            Ok(actual) => {
                if last != Some(mode) {
                    last_modes.remember(&user, mode);
                }
                return Ok(actual);
            }
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
