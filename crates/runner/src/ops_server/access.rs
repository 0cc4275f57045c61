//! Authentication and authorization of requests: client certificates, and the API server's TokenReview and
//! SubjectAccessReview.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bayplan_client::Client;
use bayplan_listener::ClientCertificate;
use bayplan_model::api::{Api, Request, Resource, Verb, decode, encode};
use bayplan_model::status::{Status, reason};
use http::{HeaderMap, Method, header};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

const TOKEN_REVIEWS: Resource = Resource::new("authentication.k8s.io", "v1", "tokenreviews");
const ACCESS_REVIEWS: Resource = Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews");
const CONFIG_MAPS: Resource = Resource::new("", "v1", "configmaps");

/// Cached answers; when there are more, the cache is cleared.
const REMEMBERED_MAX: usize = 1024;

/// Upstream's default of `--authorization-always-allow-paths`.
pub const ALWAYS_ALLOWED: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The user name.
    #[serde(rename = "username")]
    pub name: String,
    /// The user's id.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Extra fields of the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A client with a certificate.
pub type Peer = ClientCertificate<Identity>;

/// The peer with this chain of certificates, its own first.
pub(super) fn peer(chain: &[CertificateDer<'_>], now: Timestamp) -> Peer {
    ClientCertificate::of_chain(chain, now, |subject| Identity {
        name: subject.name.to_owned(),
        uid: subject.uid.to_owned(),
        groups: subject.groups.into_iter().chain(["system:authenticated"]).map(str::to_owned).collect(),
        extra: BTreeMap::new(),
    })
}

impl Identity {
    fn anonymous() -> Self {
        Identity {
            name: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
            ..Identity::default()
        }
    }
}

/// A cache whose entries expire.
struct ExpiringCache<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K: Eq + Hash, V: Clone> ExpiringCache<K, V> {
    fn new() -> Self {
        ExpiringCache(Mutex::new(HashMap::new()))
    }

    fn get(&self, key: &K) -> Option<V> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(_, until)| *until > Instant::now()).map(|(value, _)| value.clone())
    }

    fn put(&self, key: K, value: V, lifetime: Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(key, (value, Instant::now() + lifetime));
    }
}

/// What is checked, and for how long answers are cached.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Paths that need no authorization; a trailing `*` matches anything.
    pub always_allow_paths: Vec<String>,
    /// How long the answer about a token is cached.
    pub token_lifetime: Duration,
    /// How long a permission is cached.
    pub allowed_lifetime: Duration,
    /// How long a refusal is cached.
    pub denied_lifetime: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        let lifetime = Duration::from_secs(10);
        Rules {
            always_allow_paths: ALWAYS_ALLOWED.map(str::to_owned).into(),
            token_lifetime: lifetime,
            allowed_lifetime: lifetime,
            denied_lifetime: lifetime,
        }
    }
}

/// Authenticates and authorizes requests.
pub struct Access {
    rules: Rules,
    /// The API server that reviews tokens; without one, tokens are ignored.
    authenticator: Option<Client>,
    /// The API server that reviews access; without one, only the always allowed paths are open.
    authorizer: Option<Client>,
    /// None for an invalid token.
    tokens: ExpiringCache<String, Option<Identity>>,
    /// By user, verb and path.
    rights: ExpiringCache<(Identity, String, String), Option<String>>,
    clock: Clock,
}

/// The source of the time by which certificates expire.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Review<S> {
    status: S,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: Identity,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
    reason: String,
}

impl Access {
    /// Access by these rules, with the API servers that review tokens and access.
    pub fn new(rules: Rules, authenticator: Option<Client>, authorizer: Option<Client>) -> Self {
        let (tokens, rights) = (ExpiringCache::new(), ExpiringCache::new());
        Access { rules, authenticator, authorizer, tokens, rights, clock: Arc::new(Timestamp::now) }
    }

    /// The same by another clock.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Access { clock, ..self }
    }

    /// Refuses a request with 401 when its user is unknown, and with 403 when its user lacks the right.
    pub async fn check(
        &self,
        peer: Option<&Peer>,
        headers: &HeaderMap,
        method: &Method,
        path: &str,
    ) -> Result<(), Status> {
        let unauthorized = || Status::failure(401, reason::UNAUTHORIZED, "Unauthorized");
        let known = peer.map_or(Ok(None), |peer| peer.user((self.clock)()));
        let user = match (known, bearer(headers)) {
            (Ok(Some(user)), _) => user.clone(),
            (_, Some(token)) if self.authenticator.is_some() => {
                // A token that is no text is an unknown token.
                let token = std::str::from_utf8(token).map_err(|_| unauthorized())?;
                self.authenticate_token(token).await.ok_or_else(unauthorized)?
            }
            (Ok(None), _) => Identity::anonymous(),
            (Err(_refused), _) => return Err(unauthorized()),
        };
        if self.is_open(path) || user.groups.iter().any(|group| group == "system:masters") {
            return Ok(());
        }
        let verb = method.as_str().to_ascii_lowercase();
        match self.authorize(&user, &verb, path).await {
            None => Ok(()),
            Some(why) => {
                let suffix = if why.is_empty() { why } else { format!(": {why}") };
                let text = format!("forbidden: User {:?} cannot {verb} path {path:?}{suffix}", user.name);
                Err(Status::failure(403, reason::FORBIDDEN, text))
            }
        }
    }

    fn is_open(&self, path: &str) -> bool {
        self.rules.always_allow_paths.iter().any(|open| match open.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == open,
        })
    }

    async fn authenticate_token(&self, token: &str) -> Option<Identity> {
        let authenticator = self.authenticator.as_ref()?;
        if let Some(known) = self.tokens.get(&token.to_owned()) {
            return known;
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token },
        });
        let status: TokenStatus = send_review(authenticator, &TOKEN_REVIEWS, &review).await?;
        let user = status.authenticated.then_some(status.user);
        self.tokens.put(token.to_owned(), user.clone(), self.rules.token_lifetime);
        user
    }

    /// Why not, if not.
    async fn authorize(&self, user: &Identity, verb: &str, path: &str) -> Option<String> {
        let Some(authorizer) = &self.authorizer else { return Some(String::new()) };
        let key = (user.clone(), verb.to_owned(), path.to_owned());
        if let Some(known) = self.rights.get(&key) {
            return known;
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "uid": user.uid,
                "groups": user.groups,
                "extra": user.extra,
                "nonResourceAttributes": { "path": path, "verb": verb },
            },
        });
        let Some(status) = send_review::<AccessStatus>(authorizer, &ACCESS_REVIEWS, &review).await else {
            return Some("the API server could not be asked".into());
        };
        let denied = (!status.allowed || status.denied).then_some(status.reason);
        let lifetime = if denied.is_none() { self.rules.allowed_lifetime } else { self.rules.denied_lifetime };
        self.rights.put(key, denied.clone(), lifetime);
        denied
    }
}

/// The token of a request; other schemes, and a space too many, count as no token, as upstream.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut parts = headers.get(header::AUTHORIZATION)?.as_bytes().trim_ascii().splitn(3, |byte| *byte == b' ');
    let (scheme, token) = (parts.next()?, parts.next()?);
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

/// The status of a review; none when the API server did not answer.
async fn send_review<S: Default + for<'de> Deserialize<'de>>(
    client: &Client,
    resource: &Resource,
    review: &serde_json::Value,
) -> Option<S> {
    let request = Request::collection(resource, "", Verb::Create(encode(review)));
    match client.call(request).await.and_then(|answer| decode::<Review<S>>(&answer)) {
        Ok(review) => Some(review.status),
        Err(status) => {
            tracing::warn!(review = %resource.plural, "the API server did not answer the review: {status}");
            None
        }
    }
}

/// The CA of the cluster's client certificates, as PEM, from the ConfigMap `extension-apiserver-authentication`.
pub async fn published_client_authority(client: &Client) -> Result<Option<String>, Status> {
    #[derive(Deserialize)]
    struct ConfigMap {
        #[serde(default)]
        data: BTreeMap<String, String>,
    }
    let request = Request::object(&CONFIG_MAPS, "kube-system", "extension-apiserver-authentication", Verb::Get);
    let mut published: ConfigMap = decode(&client.call(request).await?)?;
    Ok(published.data.remove("client-ca-file").filter(|pem| !pem.trim().is_empty()))
}
