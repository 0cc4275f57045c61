//! Tokens of service accounts: signed JWTs that name the account and the object they are bound to.
//!
//! Signing and verifying read nothing else; a valid token also needs its account and its bound object to exist.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bayplan_model::label::subdomain_errors;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::registry::Objects;
use crate::user::User;

mod request;

pub(crate) use request::create_token;

/// The issuer of the tokens, and their default audience.
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

/// A key that cannot sign tokens.
#[derive(Debug, thiserror::Error)]
#[error("the service account key is not usable: {0}")]
pub struct KeyError(String);

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

/// Signs and verifies tokens with the cluster's key.
pub(crate) struct Tokens {
    signing: EncodingKey,
    verifying: DecodingKey,
    key_id: String,
    /// The uncompressed point of the public key.
    public_key: Vec<u8>,
    audiences: Vec<String>,
}

impl Tokens {
    /// Reads a key (PKCS #8 PEM, ECDSA P-256).
    pub(crate) fn new(key_pem: &str) -> Result<Self, KeyError> {
        let pair = rcgen::KeyPair::from_pem(key_pem).map_err(|error| KeyError(error.to_string()))?;
        let bad = |error: jsonwebtoken::errors::Error| KeyError(error.to_string());
        let public_key = pair.public_key_raw().to_vec();
        if public_key.len() != 65 {
            return Err(KeyError("it is not an ECDSA P-256 key".to_owned()));
        }
        Ok(Tokens {
            signing: EncodingKey::from_ec_pem(key_pem.as_bytes()).map_err(bad)?,
            verifying: DecodingKey::from_ec_pem(pair.public_key_pem().as_bytes()).map_err(bad)?,
            // Enough of the public key to tell keys apart.
            key_id: URL_SAFE_NO_PAD.encode(&public_key[1..33]),
            public_key,
            audiences: vec![ISSUER.to_owned()],
        })
    }

    /// The audiences of this server.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    fn sign(&self, claims: &Claims) -> Result<String, KeyError> {
        let header = Header { typ: None, kid: Some(self.key_id.clone()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &self.signing).map_err(|error| KeyError(error.to_string()))
    }

    /// The claims of a token that this key signed and that is valid now.
    fn verify(&self, token: &str, now: Timestamp) -> Option<Claims> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_issuer(&[ISSUER]);
        // Times are checked below by the given clock, audiences by the caller.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        validation.set_required_spec_claims(&["iss", "sub"]);
        let claims = jsonwebtoken::decode::<Claims>(token, &self.verifying, &validation).ok()?.claims;
        let now = now.as_second();
        (claims.nbf <= now && now < claims.exp).then_some(claims)
    }

    /// The user of a token, and which of the audiences it is valid for; without audiences, the server's own.
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Option<(User, Vec<String>)> {
        let claims = self.verify(token, now)?;
        let wanted = if audiences.is_empty() { &self.audiences } else { audiences };
        let valid: Vec<String> = wanted.iter().filter(|audience| claims.aud.contains(audience)).cloned().collect();
        if valid.is_empty() || !objects_exist(&claims, objects, now).await {
            return None;
        }
        Some((user_of(&claims)?, valid))
    }

    /// The public keys (`/openid/v1/jwks`).
    pub(crate) fn key_set(&self) -> Value {
        let coordinate = |range| URL_SAFE_NO_PAD.encode(&self.public_key[range]);
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": coordinate(1..33), "y": coordinate(33..65),
        }]})
    }

    /// The provider metadata (`/.well-known/openid-configuration`).
    pub(crate) fn openid_configuration(&self, server: &str) -> Value {
        json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{server}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
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
        Tokens::new(&rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap()
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
