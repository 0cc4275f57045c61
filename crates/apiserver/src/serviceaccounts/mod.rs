//! Tokens of service accounts: signed JWTs that name the account and the object they are bound to.
//!
//! Signing and verifying read nothing else; a valid token also needs its account and its bound object to exist.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::label::subdomain_errors;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, Header, Validation};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::registry::Objects;
use crate::user::User;

mod keys;
mod legacy;
mod request;

pub use keys::{KeyError, check_signing_key, check_verification_keys};
use keys::{SigningKey, VerificationKey};
pub use legacy::LegacyTokenKey;
pub(crate) use request::create_token;

/// The issuer of the tokens, and their audience, unless somebody says otherwise.
const ISSUER: &str = "https://kubernetes.default.svc";
/// How long a token is valid after its bound object got a deletion timestamp, as upstream.
const DELETION_LEEWAY_SECONDS: i64 = 60;

/// The prefix of the user names of service accounts.
const USER_PREFIX: &str = "system:serviceaccount:";

/// A namespace is a DNS label.
const NAMESPACE_MAX: usize = 63;

fn is_subdomain(name: &str) -> bool {
    subdomain_errors(name).is_empty()
}

/// The user name of a service account.
fn user_name(namespace: &str, name: &str) -> String {
    format!("{USER_PREFIX}{namespace}:{name}")
}

/// The namespace and name in the user name of a service account.
pub(crate) fn split_user_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(USER_PREFIX)?.split_once(':')?;
    let is_namespace = namespace.len() <= NAMESPACE_MAX && !namespace.contains('.') && is_subdomain(namespace);
    (is_namespace && is_subdomain(name)).then_some((namespace, name))
}

/// The groups of the service accounts of a namespace.
pub(crate) fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The claims of a token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Claims {
    /// The audiences.
    #[serde(deserialize_with = "one_or_many")]
    aud: Vec<String>,
    /// Not valid from here on, in seconds since 1970.
    exp: i64,
    iat: i64,
    iss: String,
    /// The id of the token.
    jti: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: PrivateClaims,
    /// Valid from here on.
    nbf: i64,
    /// The user name.
    sub: String,
}

/// Kubernetes' own claims.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct PrivateClaims {
    /// The namespace of the account.
    namespace: String,
    /// The node of the pod, or the node the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<Reference>,
    /// The pod the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<Reference>,
    /// The secret the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<Reference>,
    serviceaccount: Reference,
    /// When the client should have requested a new token, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warnafter: Option<i64>,
}

/// The name and uid of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Reference {
    name: String,
    /// Empty for an object that does not exist.
    #[serde(default)]
    uid: String,
}

impl Reference {
    fn to(object: &Value) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Reference { name: text("/metadata/name"), uid: text("/metadata/uid") }
    }
}

/// Who signs and verifies service account tokens, and for whom they are.
#[derive(Clone)]
pub struct ServiceAccountOptions {
    /// The private key that signs (PEM: RSA, or ECDSA on P-256 or P-384).
    pub signing_key: String,
    /// PEM files with the keys that verify; without any, the signing key does.
    pub verification_keys: Vec<String>,
    /// The issuers that are accepted; the first issues.
    pub issuers: Vec<String>,
    /// The audiences of the server; without any, its issuers.
    pub audiences: Vec<String>,
    /// Where others find the public keys; without it, at this server.
    pub jwks_uri: Option<String>,
    /// The longest lifetime of a token that somebody asks for, in seconds.
    pub lifetime_seconds_max: Option<i64>,
    /// Let the tokens of pods live for a year, for clients that never reload them.
    pub extend_lifetimes: bool,
}

impl ServiceAccountOptions {
    /// One key for everything, and upstream's defaults.
    pub fn new(signing_key: impl Into<String>) -> Self {
        ServiceAccountOptions {
            signing_key: signing_key.into(),
            verification_keys: Vec::new(),
            issuers: vec![ISSUER.to_owned()],
            audiences: Vec::new(),
            jwks_uri: None,
            lifetime_seconds_max: None,
            extend_lifetimes: true,
        }
    }
}

/// Signs tokens with one key and verifies them with several.
pub(crate) struct Tokens {
    signing: SigningKey,
    verifying: Vec<VerificationKey>,
    issuers: Vec<String>,
    audiences: Vec<String>,
    jwks_uri: Option<String>,
    lifetime_seconds_max: Option<i64>,
    extend_lifetimes: bool,
}

impl Tokens {
    /// Reads the keys. A server must be able to verify what it signs.
    pub(crate) fn new(options: ServiceAccountOptions) -> Result<Self, KeyError> {
        let signing = SigningKey::read(&options.signing_key)?;
        let mut verifying: Vec<VerificationKey> = Vec::new();
        for pem in &options.verification_keys {
            for key in VerificationKey::read_all(pem)? {
                if verifying.iter().all(|known| known.id != key.id) {
                    verifying.push(key);
                }
            }
        }
        if verifying.is_empty() {
            verifying.push(signing.public.clone());
        }
        if verifying.iter().all(|key| key.id != signing.public.id) {
            return Err(KeyError("the key that signs tokens is not among those that verify them".to_owned()));
        }
        let ServiceAccountOptions { mut issuers, mut audiences, .. } = options;
        if issuers.is_empty() {
            issuers.push(ISSUER.to_owned());
        }
        if audiences.is_empty() {
            audiences.clone_from(&issuers);
        }
        let ServiceAccountOptions { jwks_uri, lifetime_seconds_max, extend_lifetimes, .. } = options;
        Ok(Tokens { signing, verifying, issuers, audiences, jwks_uri, lifetime_seconds_max, extend_lifetimes })
    }

    /// The audiences of this server.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// The issuer of new tokens.
    fn issuer(&self) -> &str {
        self.issuers.first().map_or(ISSUER, String::as_str)
    }

    fn sign(&self, claims: &Claims) -> Result<String, KeyError> {
        let SigningKey { encoding, public } = &self.signing;
        let header = Header { typ: None, kid: Some(public.id.clone()), ..Header::new(public.algorithm) };
        jsonwebtoken::encode(&header, claims, encoding).map_err(|error| KeyError(error.to_string()))
    }

    /// The claims of a token that one of the keys signed and that is valid now.
    fn verify(&self, token: &str, now: Timestamp) -> Option<Claims> {
        let header = jsonwebtoken::decode_header(token).ok()?;
        // The id saves trying; whether a key signed the token only its signature tells.
        let named = self.verifying.iter().find(|key| Some(&key.id) == header.kid.as_ref());
        let claims = match named {
            Some(key) => self.claims(token, key, header.alg),
            None => self.verifying.iter().find_map(|key| self.claims(token, key, header.alg)),
        }?;
        let now = now.as_second();
        (claims.nbf <= now && now < claims.exp).then_some(claims)
    }

    fn claims(&self, token: &str, key: &VerificationKey, algorithm: Algorithm) -> Option<Claims> {
        if key.algorithm != algorithm {
            return None;
        }
        let mut validation = Validation::new(algorithm);
        validation.set_issuer(&self.issuers);
        // Times are checked by the given clock, audiences by the caller.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        validation.set_required_spec_claims(&["iss", "sub"]);
        jsonwebtoken::decode::<Claims>(token, &key.decoding, &validation).ok().map(|decoded| decoded.claims)
    }

    /// The user of a token, and which of the audiences it is valid for; without audiences, the server's own.
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Option<(User, Vec<String>)> {
        let Some(claims) = self.verify(token, now) else {
            let user = self.authenticate_legacy(token, objects).await?;
            // A token that does not expire is for the server that made it.
            let wanted = if audiences.is_empty() { &self.audiences } else { audiences };
            let valid: Vec<String> = wanted.iter().filter(|name| self.audiences.contains(name)).cloned().collect();
            return (!valid.is_empty()).then_some((user, valid));
        };
        let wanted = if audiences.is_empty() { &self.audiences } else { audiences };
        let valid: Vec<String> = wanted.iter().filter(|audience| claims.aud.contains(audience)).cloned().collect();
        if valid.is_empty() || !objects_exist(&claims, objects, now).await {
            return None;
        }
        Some((user_of(&claims)?, valid))
    }

    /// The public keys (`/openid/v1/jwks`).
    pub(crate) fn key_set(&self) -> Value {
        json!({"keys": self.verifying.iter().map(|key| &key.shown).collect::<Vec<_>>()})
    }

    /// The provider metadata (`/.well-known/openid-configuration`); `server` is host and port.
    pub(crate) fn openid_configuration(&self, server: &str) -> Value {
        let algorithms: BTreeSet<&str> = self.verifying.iter().filter_map(|key| key.shown["alg"].as_str()).collect();
        json!({
            "issuer": self.issuer(),
            "jwks_uri": self.jwks_uri.clone().unwrap_or_else(|| format!("https://{server}/openid/v1/jwks")),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }
}

/// True if the account and the bound object of a token exist.
async fn objects_exist(claims: &Claims, objects: &dyn Objects, now: Timestamp) -> bool {
    let namespace = claims.kubernetes.namespace.as_str();
    let bound = [
        ("serviceaccounts", namespace, Some(&claims.kubernetes.serviceaccount)),
        ("pods", namespace, claims.kubernetes.pod.as_ref()),
        ("secrets", namespace, claims.kubernetes.secret.as_ref()),
        // The token of a pod names the pod's node only for information.
        ("nodes", "", claims.kubernetes.node.as_ref().filter(|_| claims.kubernetes.pod.is_none())),
    ];
    for (plural, namespace, reference) in bound {
        let Some(reference) = reference else { continue };
        if !exists(plural, namespace, reference, objects, now).await {
            return false;
        }
    }
    true
}

async fn exists(plural: &str, namespace: &str, reference: &Reference, objects: &dyn Objects, now: Timestamp) -> bool {
    let Some(resource) = bayplan_kinds::find("", "v1", plural) else { return false };
    let Ok(Some(object)) = objects.get(resource, namespace, &reference.name).await else { return false };
    let deleted = object.pointer("/metadata/deletionTimestamp").and_then(Value::as_str);
    let in_time = deleted
        .and_then(|at| at.parse::<Timestamp>().ok())
        .is_none_or(|at| now.as_second() <= at.as_second().saturating_add(DELETION_LEEWAY_SECONDS));
    in_time && Reference::to(&object).uid == reference.uid
}

fn user_of(claims: &Claims) -> Option<User> {
    let PrivateClaims { namespace, serviceaccount, pod, node, .. } = &claims.kubernetes;
    if claims.sub != user_name(namespace, &serviceaccount.name) {
        return None;
    }
    let mut user = User::new(claims.sub.clone(), groups(namespace));
    user.uid.clone_from(&serviceaccount.uid);
    let mut extra = BTreeMap::new();
    let mut add = |key: &str, value: &str| {
        extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
    };
    if !claims.jti.is_empty() {
        add("credential-id", &format!("JTI={}", claims.jti));
    }
    for (kind, reference) in [("pod", pod), ("node", node)] {
        if let Some(reference) = reference {
            add(&format!("{kind}-name"), &reference.name);
            add(&format!("{kind}-uid"), &reference.uid);
        }
    }
    user.extra = extra;
    Some(user)
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Audience::deserialize(deserializer)? {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use bayplan_kinds::Kind;
    use bayplan_model::status::Status;
    use futures::future::BoxFuture;

    use super::*;
    use crate::registry::{SystemObjects, SystemWrite};
    use crate::status_errors;

    /// Objects in memory, by plural, namespace and name.
    #[derive(Default)]
    pub(crate) struct Fixture {
        pub(crate) objects: Mutex<BTreeMap<(String, String, String), Arc<Value>>>,
    }

    impl Fixture {
        pub(crate) fn with(objects: &[(&str, Value)]) -> Self {
            let fixture = Fixture::default();
            for (plural, object) in objects {
                fixture.put(plural, object.clone());
            }
            fixture
        }

        pub(crate) fn put(&self, plural: &str, object: Value) {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let key = (plural.to_owned(), text("/metadata/namespace"), text("/metadata/name"));
            self.objects.lock().unwrap().insert(key, Arc::new(object));
        }

        pub(crate) fn one(&self, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
            self.objects.lock().unwrap().get(&(plural.into(), namespace.into(), name.into())).cloned()
        }
    }

    impl Objects for Fixture {
        fn get<'a>(
            &'a self,
            resource: &'static Kind,
            namespace: &'a str,
            name: &'a str,
        ) -> BoxFuture<'a, Result<Option<Arc<Value>>, Status>> {
            Box::pin(async move { Ok(self.one(resource.plural, namespace, name)) })
        }

        fn list<'a>(
            &'a self,
            resource: &'static Kind,
            namespace: &'a str,
        ) -> BoxFuture<'a, Result<Vec<Arc<Value>>, Status>> {
            let objects = self.objects.lock().unwrap();
            let wanted = |(plural, of, _): &(String, String, String)| {
                plural == resource.plural && (namespace.is_empty() || of == namespace)
            };
            let found = objects.iter().filter(|(key, _)| wanted(key)).map(|(_, object)| object.clone()).collect();
            Box::pin(async move { Ok(found) })
        }
    }

    impl SystemObjects for Fixture {
        fn create_unchecked<'a>(
            &'a self,
            _: SystemWrite,
            resource: &'static Kind,
            namespace: &'a str,
            mut object: Value,
        ) -> BoxFuture<'a, Result<Arc<Value>, Status>> {
            Box::pin(async move {
                if !namespace.is_empty() {
                    object["metadata"]["namespace"] = namespace.into();
                }
                self.put(resource.plural, object.clone());
                Ok(Arc::new(object))
            })
        }

        fn update_unchecked<'a>(
            &'a self,
            _: SystemWrite,
            resource: &'static Kind,
            namespace: &'a str,
            name: &'a str,
            change: &'a mut (dyn FnMut(&mut Value) -> Result<(), Status> + Send),
        ) -> BoxFuture<'a, Result<Arc<Value>, Status>> {
            Box::pin(async move {
                let mut object = match self.one(resource.plural, namespace, name) {
                    Some(object) => Value::clone(&object),
                    None => return Err(status_errors::not_found(resource, name)),
                };
                change(&mut object)?;
                self.put(resource.plural, object.clone());
                Ok(Arc::new(object))
            })
        }
    }

    impl Tokens {
        /// A token of an account, valid for an hour.
        pub(crate) fn token_for_tests(&self, namespace: &str, name: &str, uid: &str, now: Timestamp) -> String {
            let kubernetes = PrivateClaims {
                namespace: namespace.into(),
                serviceaccount: Reference { name: name.into(), uid: uid.into() },
                ..PrivateClaims::default()
            };
            let (nbf, exp) = (now.as_second(), now.as_second() + 3600);
            let sub = user_name(namespace, name);
            self.sign(&Claims { exp, nbf, sub, kubernetes, ..claims() }).unwrap()
        }
    }

    pub(crate) fn signer() -> Tokens {
        Tokens::new(ServiceAccountOptions::new(rcgen::KeyPair::generate().unwrap().serialize_pem())).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn claims() -> Claims {
        Claims {
            aud: vec![ISSUER.into()],
            exp: 2000,
            iat: 1000,
            iss: ISSUER.into(),
            jti: "id".into(),
            kubernetes: PrivateClaims {
                namespace: "ns".into(),
                pod: Some(Reference { name: "p".into(), uid: "pu".into() }),
                serviceaccount: Reference { name: "robot".into(), uid: "su".into() },
                ..PrivateClaims::default()
            },
            nbf: 1000,
            sub: "system:serviceaccount:ns:robot".into(),
        }
    }

    fn world() -> Fixture {
        Fixture::with(&[
            ("serviceaccounts", json!({"metadata": {"name": "robot", "namespace": "ns", "uid": "su"}})),
            ("pods", json!({"metadata": {"name": "p", "namespace": "ns", "uid": "pu"}})),
        ])
    }

    #[tokio::test]
    async fn a_signed_token_names_its_account() {
        let tokens = signer();
        let token = tokens.sign(&claims()).unwrap();
        let (user, audiences) = tokens.authenticate(&token, &[], &world(), at(1500)).await.unwrap();
        assert_eq!(user.name, "system:serviceaccount:ns:robot");
        assert_eq!(user.uid, "su");
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
        assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["p"]);
        assert_eq!(audiences, [ISSUER]);
    }

    #[tokio::test]
    async fn a_token_that_is_not_valid_is_refused() {
        let tokens = signer();
        let cases: [(&str, Claims, Fixture, i64); 7] = [
            ("expired", claims(), world(), 2000),
            ("not yet valid", claims(), world(), 999),
            ("another issuer", Claims { iss: "x".into(), ..claims() }, world(), 1500),
            ("another audience", Claims { aud: vec!["x".into()], ..claims() }, world(), 1500),
            ("another subject", Claims { sub: "system:serviceaccount:ns:other".into(), ..claims() }, world(), 1500),
            ("no such account", claims(), Fixture::default(), 1500),
            ("a new account of the same name", claims(), world(), 1500),
        ];
        for (what, claims, objects, now) in cases {
            if what.starts_with("a new account") {
                objects.put("serviceaccounts", json!({"metadata": {"name": "robot", "namespace": "ns", "uid": "2"}}));
            }
            let token = tokens.sign(&claims).unwrap();
            assert!(tokens.authenticate(&token, &[], &objects, at(now)).await.is_none(), "{what}");
        }
        let foreign = signer().sign(&claims()).unwrap();
        assert!(tokens.authenticate(&foreign, &[], &world(), at(1500)).await.is_none(), "another key");
    }

    #[tokio::test]
    async fn tokens_of_the_old_key_and_issuer_are_verified_and_new_ones_signed_by_the_new() {
        use keys::tests::{RSA_PRIVATE, RSA_PUBLIC};
        let old = signer();
        let new = |keys: Vec<String>, issuers: &[&str]| {
            Tokens::new(ServiceAccountOptions {
                verification_keys: keys,
                issuers: issuers.iter().map(ToString::to_string).collect(),
                ..ServiceAccountOptions::new(RSA_PRIVATE)
            })
        };
        let ecdsa = rcgen::KeyPair::generate().unwrap();
        let old_key = Tokens::new(ServiceAccountOptions::new(ecdsa.serialize_pem())).unwrap();
        let both = format!("{RSA_PUBLIC}{}", ecdsa.public_key_pem());
        let tokens = new(vec![both], &["https://new.example", ISSUER]).unwrap();
        assert_eq!(tokens.audiences(), ["https://new.example", ISSUER]);
        for (signer, works) in [(&old_key, true), (&tokens, true), (&old, false)] {
            let token = signer.sign(&claims()).unwrap();
            assert_eq!(tokens.authenticate(&token, &[], &world(), at(1500)).await.is_some(), works);
        }
        let configuration = tokens.openid_configuration("10.0.0.1:6443");
        assert_eq!(configuration["issuer"], "https://new.example");
        assert_eq!(configuration["jwks_uri"], "https://10.0.0.1:6443/openid/v1/jwks");
        assert_eq!(configuration["id_token_signing_alg_values_supported"], json!(["ES256", "RS256"]));
        let shown: Vec<_> = tokens.key_set()["keys"].as_array().unwrap().iter().map(|key| key["kty"].clone()).collect();
        assert_eq!(shown, ["RSA", "EC"]);
        // Who signs with a key that is not among those that verify refuses its own tokens.
        let error = new(vec![ecdsa.public_key_pem()], &[]).map(drop).unwrap_err().to_string();
        assert!(error.contains("is not among those that verify"), "{error}");
    }

    #[tokio::test]
    async fn a_deleted_pods_token_lasts_one_more_minute() {
        let (tokens, objects) = (signer(), world());
        let metadata =
            json!({"name": "p", "namespace": "ns", "uid": "pu", "deletionTimestamp": "1970-01-01T00:20:00Z"});
        objects.put("pods", json!({"metadata": metadata}));
        let token = tokens.sign(&claims()).unwrap();
        assert!(tokens.authenticate(&token, &[], &objects, at(1260)).await.is_some());
        assert!(tokens.authenticate(&token, &[], &objects, at(1261)).await.is_none());
    }

    #[test]
    fn user_names_split() {
        for (name, expected) in [
            ("system:serviceaccount:a:b", Some(("a", "b"))),
            ("system:serviceaccount:a:", None),
            ("system:serviceaccount:a:b:c", None),
            ("system:serviceaccount:a:b.c", Some(("a", "b.c"))),
            ("system:serviceaccount:a.b:c", None),
            ("system:serviceaccount:A:b", None),
            ("system:serviceaccount:a:b/c", None),
            ("alice", None),
        ] {
            assert_eq!(split_user_name(name), expected, "{name}");
        }
    }
}
