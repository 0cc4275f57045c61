//! Who makes a request: client certificates, bearer tokens, or nobody in particular.
//!
//! ```text
//!   client certificate ─▶ bearer token (static list, service account) ─▶ anonymous ─▶ User ─▶ impersonation ─▶ User
//! ```
//!
//! The first that knows the caller decides; a token nobody knows is 401, never anonymous.

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

pub mod certificate;
pub mod impersonation;
pub mod static_tokens;

pub use static_tokens::StaticTokens;

/// The user of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of [`ANONYMOUS`].
pub const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";

/// How long a verified token is believed without looking again; upstream's value.
const CACHE_LIFETIME: Duration = Duration::from_secs(10);
/// How many verified tokens are remembered: more than the components and pods of a small cluster hold; beyond it
/// tokens are simply verified again.
const CACHE_ENTRIES_MAX: usize = 4096;

/// Turns credentials into users.
pub struct Authenticator {
    static_tokens: StaticTokens,
    service_accounts: Arc<Tokens>,
    anonymous: bool,
    verified: Mutex<HashMap<String, (User, Instant)>>,
}

impl Authenticator {
    /// Believes these tokens; without `anonymous`, requests without credentials are refused.
    pub fn new(static_tokens: StaticTokens, service_accounts: Arc<Tokens>, anonymous: bool) -> Self {
        Authenticator { static_tokens, service_accounts, anonymous, verified: Mutex::default() }
    }

    /// Whose request this is. `peer` is the user of the connection's client certificate.
    pub async fn authenticate(
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

    /// The user of a token, and for which of the wanted audiences it is good (an empty list wants the server's own).
    pub async fn token_user(
        &self,
        token: &str,
        audiences: &[String],
        objects: &dyn Objects,
    ) -> Option<(User, Vec<String>)> {
        let own = self.service_accounts.audiences();
        if let Some(user) = self.static_tokens.find(token) {
            // A static token says nothing of audiences: it is good for this server's own.
            let good: Vec<String> =
                own.iter().filter(|own| audiences.is_empty() || audiences.contains(own)).cloned().collect();
            return (!good.is_empty()).then(|| (user.clone(), good));
        }
        if audiences.is_empty()
            && let Some(user) = self.remembered(token)
        {
            return Some((user, own.to_vec()));
        }
        let (user, good) = self.service_accounts.authenticate(token, audiences, objects, Timestamp::now()).await?;
        if audiences.is_empty() {
            self.remember(token, &user);
        }
        Some((user, good))
    }

    fn remembered(&self, token: &str) -> Option<User> {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let (user, at) = verified.get(token)?;
        (at.elapsed() < CACHE_LIFETIME).then(|| user.clone())
    }

    fn remember(&self, token: &str, user: &User) {
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
pub fn anonymous() -> User {
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
