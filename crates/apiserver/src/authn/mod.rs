//! Authentication: front proxies, client certificates, bearer tokens, or the anonymous user.
//!
//! ```text
//!   front proxy (its certificate, the user in headers) ─▶ client certificate
//!     ─▶ bearer token (static list, service account, bootstrap token) ─▶ anonymous ─▶ User ─▶ impersonation ─▶ User
//! ```
//!
//! The first method that knows the caller decides. An unknown token or an expired certificate is a 401, never the
//! anonymous user.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bayplan_model::status::Status;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::registry::Objects;
use crate::serviceaccounts::Tokens;
use crate::status_errors::unauthorized;
use crate::user::{GROUP_AUTHENTICATED, User};
use crate::websocket;

mod bootstrap_token;
mod certificate;
pub(crate) mod impersonation;
mod request_header;
mod static_tokens;

pub(crate) use certificate::Peer;
pub use request_header::RequestHeaders;
pub use static_tokens::{StaticTokens, StaticTokensError};

const ANONYMOUS: &str = "system:anonymous";
/// The group of [`ANONYMOUS`].
const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";

/// How long a verified token is trusted without another check, as upstream.
const CACHE_LIFETIME: Duration = Duration::from_secs(10);
/// How many verified tokens are cached: more than the components and pods of a small cluster have. Others are
/// verified again on each request.
const CACHE_ENTRIES_MAX: usize = 4096;

/// Which credentials are accepted, beside those of service accounts and client certificates.
#[derive(Clone, Default)]
pub(crate) struct Accepted {
    /// Bearer tokens with a fixed identity.
    pub(crate) static_tokens: StaticTokens,
    /// Bearer tokens that are secrets in `kube-system`.
    pub(crate) bootstrap_tokens: bool,
    /// Users named by front proxies.
    pub(crate) request_headers: Option<RequestHeaders>,
    /// Requests without credentials.
    pub(crate) anonymous: bool,
}

/// Finds the user of a request's credentials.
pub(crate) struct Authenticator {
    accepted: Accepted,
    service_accounts: Arc<Tokens>,
    verified: Mutex<HashMap<String, (User, Instant)>>,
}

impl Authenticator {
    pub(crate) fn new(accepted: Accepted, service_accounts: Arc<Tokens>) -> Self {
        Authenticator { accepted, service_accounts, verified: Mutex::default() }
    }

    /// The user of a request; `peer` is the other end of its connection, if that is known.
    pub(crate) async fn authenticate(
        &self,
        peer: Option<&Peer>,
        headers: &HeaderMap,
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<User, Status> {
        if let Some(user) = peer.and_then(|peer| self.user_of_front_proxy(peer, headers, now)) {
            return Ok(user);
        }
        let known = peer.map_or(Ok(None), |peer| peer.user(now));
        if let Ok(Some(user)) = known {
            return Ok(user);
        }
        if let Some(token) = bearer_token(headers) {
            // A token that is no text is an unknown token.
            let token = std::str::from_utf8(token).map_err(|_| unauthorized())?;
            return self.token_user(token, &[], objects, now).await.map(|(user, _)| user).ok_or_else(unauthorized);
        }
        if let Some(token) = websocket_token(headers)? {
            return self.token_user(&token, &[], objects, now).await.map(|(user, _)| user).ok_or_else(unauthorized);
        }
        if self.accepted.anonymous && known.is_ok() { Ok(anonymous()) } else { Err(unauthorized()) }
    }

    /// The user whom a front proxy names. Only its own certificate makes a client one.
    fn user_of_front_proxy(&self, peer: &Peer, headers: &HeaderMap, now: Timestamp) -> Option<User> {
        let named = self.accepted.request_headers.as_ref()?;
        peer.front_proxy(now).filter(|proxy| named.allows(proxy)).and_then(|_| named.user(headers))
    }

    /// The user of a token, and which of the audiences it is valid for; without audiences, the server's own.
    pub(crate) async fn token_user(
        &self,
        token: &str,
        audiences: &[String],
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Option<(User, Vec<String>)> {
        let own = self.service_accounts.audiences();
        // A token without audiences of its own is valid for those of the server.
        let for_own = |user: User| {
            let valid: Vec<String> =
                own.iter().filter(|own| audiences.is_empty() || audiences.contains(own)).cloned().collect();
            (!valid.is_empty()).then_some((user, valid))
        };
        if let Some(user) = self.accepted.static_tokens.find(token) {
            return for_own(user.clone());
        }
        if self.accepted.bootstrap_tokens
            && let Some(user) = bootstrap_token::authenticate(token, objects, now).await
        {
            return for_own(user);
        }
        if audiences.is_empty()
            && let Some(user) = self.cached(token)
        {
            return Some((user, own.to_vec()));
        }
        let (user, valid) = self.service_accounts.authenticate(token, audiences, objects, now).await?;
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

/// The token of a request; other schemes, and a space too many, count as no token, as upstream.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut parts = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii().splitn(3, |byte| *byte == b' ');
    let (scheme, token) = (parts.next()?, parts.next()?);
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

/// The token among the subprotocols of a WebSocket request, of which it must not be the only one; upstream's
/// `ProtocolAuthenticator`.
fn websocket_token(headers: &HeaderMap) -> Result<Option<String>, Status> {
    if !websocket::is_asked(headers) {
        return Ok(None);
    }
    let mut given = websocket::tokens(headers, &SEC_WEBSOCKET_PROTOCOL)
        .filter_map(|protocol| protocol.strip_prefix(websocket::BEARER_PROTOCOL));
    let Some(encoded) = given.next() else { return Ok(None) };
    let decoded = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|token| String::from_utf8(token).ok());
    let is_alone = given.next().is_none() && websocket::protocols(headers).next().is_some();
    decoded.filter(|token| is_alone && !token.is_empty()).map(Some).ok_or_else(unauthorized)
}

#[cfg(test)]
mod tests {
    use bayplan_listener::ClientCertificate;

    use super::*;
    use crate::serviceaccounts::tests::{Fixture, signer};

    fn authenticator() -> Authenticator {
        let static_tokens = StaticTokens::parse("t1,alice,u1,\"devs,ops\"\n").unwrap();
        Authenticator::new(Accepted { static_tokens, anonymous: true, ..Accepted::default() }, Arc::new(signer()))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn with_authorization(header: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, http::HeaderValue::from_bytes(header).unwrap());
        headers
    }

    #[tokio::test]
    async fn the_header_decides_who_it_is() {
        let cases: [(&[u8], Option<&str>); 12] = [
            (b"", Some(ANONYMOUS)),
            (b"Basic abc", Some(ANONYMOUS)),
            (b"Bearer ", Some(ANONYMOUS)),
            (b"Bearer  t1", Some(ANONYMOUS)),
            (b"Bearer t1", Some("alice")),
            (b"bearer t1", Some("alice")),
            (b"Bearer t1 more", Some("alice")),
            (b"Bearer nope", None),
            ("Bearer t1é".as_bytes(), None),
            (b"Bearer t1\xff", None),
            (b"Bearer \xff", None),
            (b"B\xffarer t1", Some(ANONYMOUS)),
        ];
        for (header, expected) in cases {
            let headers = with_authorization(header);
            let user = authenticator().authenticate(None, &headers, &Fixture::default(), at(0)).await;
            assert_eq!(user.as_ref().ok().map(|user| user.name.as_str()), expected, "{}", header.escape_ascii());
            if let Err(status) = user {
                assert_eq!((status.code, status.message.as_str()), (401, "Unauthorized"));
            }
        }
    }

    #[tokio::test]
    async fn a_websocket_request_may_have_its_token_among_the_subprotocols() {
        let token = "base64url.bearer.authorization.k8s.io.dDE";
        for (upgrade, offered, expected) in [
            ("websocket", format!("{token}, v5.channel.k8s.io"), Some("alice")),
            ("websocket", token.to_owned(), None),
            ("websocket", format!("{token}, {token}, v5"), None),
            ("websocket", "base64url.bearer.authorization.k8s.io.bm9wZQ, v5".to_owned(), None),
            ("websocket", "v5".to_owned(), Some(ANONYMOUS)),
            ("SPDY/3.1", format!("{token}, v5"), Some(ANONYMOUS)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
            headers.insert(http::header::UPGRADE, http::HeaderValue::from_static(upgrade));
            headers.insert(SEC_WEBSOCKET_PROTOCOL, offered.parse().unwrap());
            let user = authenticator().authenticate(None, &headers, &Fixture::default(), at(0)).await;
            assert_eq!(user.ok().map(|user| user.name).as_deref(), expected, "{offered}");
        }
    }

    #[tokio::test]
    async fn a_client_certificate_comes_before_a_token_and_is_never_anonymous_when_it_has_expired() {
        let user = User::new("system:kube-scheduler", [""; 0]);
        let certificate = |user| Peer::Certificate(ClientCertificate::new(user, 100, 200));
        let (named, nameless) = (certificate(Some(user)), certificate(None));
        for (peer, header, second, expected) in [
            (&named, "Bearer nope", 150, Some("system:kube-scheduler")),
            (&named, "", 150, Some("system:kube-scheduler")),
            (&named, "", 201, None),
            (&named, "", 99, None),
            (&named, "Bearer t1", 201, Some("alice")),
            (&named, "Bearer nope", 201, None),
            (&nameless, "", 150, Some(ANONYMOUS)),
            (&nameless, "Bearer t1", 150, Some("alice")),
            (&nameless, "", 201, None),
        ] {
            let headers = with_authorization(header.as_bytes());
            let user = authenticator().authenticate(Some(peer), &headers, &Fixture::default(), at(second)).await;
            assert_eq!(user.ok().map(|user| user.name).as_deref(), expected, "{peer:?} {header} at {second}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_of_a_deleted_account_works_for_less_than_ten_seconds() {
        let authenticator = authenticator();
        let account =
            ("serviceaccounts", serde_json::json!({"metadata": {"name": "robot", "namespace": "ns", "uid": "u"}}));
        let objects = Fixture::with(&[account]);
        let token = authenticator.service_accounts.token_for_tests("ns", "robot", "u", at(1_000));
        let headers = with_authorization(format!("Bearer {token}").as_bytes());
        let mut now = 1_000;
        let mut works = async |objects: &Fixture, seconds: u64| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            now += i64::try_from(seconds).unwrap();
            authenticator.authenticate(None, &headers, objects, at(now)).await.is_ok()
        };
        // Requests in between do not make the answer last longer.
        assert!(works(&objects, 0).await && works(&objects, 5).await);
        let deleted = Fixture::default();
        assert!(works(&deleted, 4).await);
        assert!(!works(&deleted, 1).await);
        assert!(!works(&deleted, 0).await);
    }
}
