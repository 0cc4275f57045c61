//! Authentication: client certificates, bearer tokens, or the anonymous user.
//!
//! ```text
//!   client certificate ─▶ bearer token (static list, service account) ─▶ anonymous ─▶ User ─▶ impersonation ─▶ User
//! ```
//!
//! The first method that knows the caller decides. An unknown token is a 401, never anonymous.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bayplan_model::status::Status;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;

use crate::registry::Objects;
use crate::serviceaccounts::Tokens;
use crate::status_errors::unauthorized;
use crate::user::{GROUP_AUTHENTICATED, User};

pub(crate) mod certificate;
pub(crate) mod impersonation;
mod static_tokens;

pub use static_tokens::{StaticTokens, StaticTokensError};

const ANONYMOUS: &str = "system:anonymous";
/// The group of [`ANONYMOUS`].
const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";

/// How long a verified token is trusted without another check, as upstream.
const CACHE_LIFETIME: Duration = Duration::from_secs(10);
/// How many verified tokens are cached: more than the components and pods of a small cluster have. Others are
/// verified again on each request.
const CACHE_ENTRIES_MAX: usize = 4096;

/// Finds the user of a request's credentials.
pub(crate) struct Authenticator {
    static_tokens: StaticTokens,
    service_accounts: Arc<Tokens>,
    anonymous: bool,
    verified: Mutex<HashMap<String, (User, Instant)>>,
}

impl Authenticator {
    /// Accepts these tokens, and requests without credentials if `anonymous` is true.
    pub(crate) fn new(static_tokens: StaticTokens, service_accounts: Arc<Tokens>, anonymous: bool) -> Self {
        Authenticator { static_tokens, service_accounts, anonymous, verified: Mutex::default() }
    }

    /// The user of a request; `peer` is the user of the connection's client certificate.
    pub(crate) async fn authenticate(
        &self,
        peer: Option<&User>,
        headers: &HeaderMap,
        objects: &dyn Objects,
    ) -> Result<User, Status> {
        if let Some(user) = peer {
            return Ok(user.clone());
        }
        if let Some(token) = bearer_token(headers) {
            return self.token_user(token, &[], objects).await.map(|(user, _)| user).ok_or_else(unauthorized);
        }
        if self.anonymous { Ok(anonymous()) } else { Err(unauthorized()) }
    }

    /// The user of a token, and which of the audiences it is valid for; without audiences, the server's own.
    pub(crate) async fn token_user(
        &self,
        token: &str,
        audiences: &[String],
        objects: &dyn Objects,
    ) -> Option<(User, Vec<String>)> {
        let own = self.service_accounts.audiences();
        if let Some(user) = self.static_tokens.find(token) {
            // A static token has no audiences: it is valid for the server's own.
            let valid: Vec<String> =
                own.iter().filter(|own| audiences.is_empty() || audiences.contains(own)).cloned().collect();
            return (!valid.is_empty()).then(|| (user.clone(), valid));
        }
        if audiences.is_empty()
            && let Some(user) = self.cached(token)
        {
            return Some((user, own.to_vec()));
        }
        let (user, valid) = self.service_accounts.authenticate(token, audiences, objects, Timestamp::now()).await?;
        if audiences.is_empty() {
            self.cache(token, &user);
        }
        Some((user, valid))
    }

    fn cached(&self, token: &str) -> Option<User> {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let (user, at) = verified.get(token)?;
        (at.elapsed() < CACHE_LIFETIME).then(|| user.clone())
    }

    fn cache(&self, token: &str, user: &User) {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= CACHE_ENTRIES_MAX {
            verified.retain(|_, (_, at)| at.elapsed() < CACHE_LIFETIME);
        }
        if verified.len() < CACHE_ENTRIES_MAX {
            verified.insert(token.to_owned(), (user.clone(), Instant::now()));
        }
    }
}

/// The user of requests without credentials.
pub(crate) fn anonymous() -> User {
    User { name: ANONYMOUS.to_owned(), groups: vec![GROUP_UNAUTHENTICATED.to_owned()], ..User::default() }
}

fn authenticated(mut user: User) -> User {
    if !user.in_group(GROUP_AUTHENTICATED) {
        user.groups.push(GROUP_AUTHENTICATED.to_owned());
    }
    user
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serviceaccounts::tests::{Fixture, signer};

    fn authenticator() -> Authenticator {
        let tokens = StaticTokens::parse("t1,alice,u1,\"devs,ops\"\n").unwrap();
        Authenticator::new(tokens, Arc::new(signer()), true)
    }

    #[tokio::test]
    async fn the_header_decides_who_it_is() {
        let objects = Fixture::default();
        for (header, expected) in [
            (None, Some(ANONYMOUS)),
            (Some("Basic abc"), Some(ANONYMOUS)),
            (Some("Bearer "), Some(ANONYMOUS)),
            (Some("Bearer t1"), Some("alice")),
            (Some("bearer t1"), Some("alice")),
            (Some("Bearer nope"), None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, header.parse().unwrap());
            }
            let user = authenticator().authenticate(None, &headers, &objects).await;
            assert_eq!(user.as_ref().ok().map(|user| user.name.as_str()), expected, "{header:?}");
            if let Err(status) = user {
                assert_eq!((status.code, status.message.as_str()), (401, "Unauthorized"));
            }
        }
    }

    #[tokio::test]
    async fn a_client_certificate_comes_before_a_token() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, "Bearer nope".parse().unwrap());
        let peer = User::new("system:kube-scheduler", [""; 0]);
        let user = authenticator().authenticate(Some(&peer), &headers, &Fixture::default()).await.unwrap();
        assert_eq!(user, peer);
    }
}
