//! Tokens that do not expire: they are kept in secrets, and are valid as long as their secret and their account exist.

use jsonwebtoken::{Algorithm, Header, Validation};
use serde::Deserialize;
use serde_json::Value;

use super::keys::{KeyError, SigningKey, VerificationKey};
use super::{Tokens, groups, user_name};
use crate::registry::Objects;
use crate::user::User;

/// The issuer of such tokens.
const ISSUER: &str = "kubernetes/serviceaccount";

/// Signs tokens that do not expire.
pub struct LegacyTokenKey(SigningKey);

impl LegacyTokenKey {
    /// The first private key of a PEM file.
    pub fn read(pem: &str) -> Result<Self, KeyError> {
        SigningKey::read(pem).map(LegacyTokenKey)
    }

    /// The token with these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let SigningKey { encoding, public } = &self.0;
        let header = Header { typ: None, kid: Some(public.id.clone()), ..Header::new(public.algorithm) };
        jsonwebtoken::encode(&header, claims, encoding).map_err(|error| KeyError(error.to_string()))
    }
}

/// What such a token says.
#[derive(Clone, Debug, Deserialize)]
struct Claims {
    sub: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    account: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    account_uid: String,
}

fn claims(token: &str, key: &VerificationKey, algorithm: Algorithm) -> Option<Claims> {
    if key.algorithm != algorithm {
        return None;
    }
    let mut validation = Validation::new(algorithm);
    validation.set_issuer(&[ISSUER]);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation.set_required_spec_claims(&["iss", "sub"]);
    jsonwebtoken::decode::<Claims>(token, &key.decoding, &validation).ok().map(|decoded| decoded.claims)
}

impl Tokens {
    /// The user of a token that does not expire.
    pub(super) async fn authenticate_legacy(&self, token: &str, objects: &dyn Objects) -> Option<User> {
        let algorithm = jsonwebtoken::decode_header(token).ok()?.alg;
        let claims = self.verifying.iter().find_map(|key| claims(token, key, algorithm))?;
        if claims.sub != user_name(&claims.namespace, &claims.account) {
            return None;
        }
        let secret = living("secrets", &claims.namespace, &claims.secret, objects).await?;
        if decoded(&secret["data"]["token"])? != token.as_bytes() {
            return None;
        }
        let account = living("serviceaccounts", &claims.namespace, &claims.account, objects).await?;
        if account["metadata"]["uid"] != claims.account_uid.as_str() {
            return None;
        }
        let mut user = User::new(claims.sub, groups(&claims.namespace));
        user.uid = claims.account_uid;
        Some(user)
    }
}

/// An object that exists and is not being deleted.
async fn living(plural: &str, namespace: &str, name: &str, objects: &dyn Objects) -> Option<std::sync::Arc<Value>> {
    let resource = bayplan_kinds::find("", "v1", plural)?;
    let object = objects.get(resource, namespace, name).await.ok().flatten()?;
    object.pointer("/metadata/deletionTimestamp").is_none().then_some(object)
}

fn decoded(value: &Value) -> Option<Vec<u8>> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(value.as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use jiff::Timestamp;
    use serde_json::json;

    use super::super::ServiceAccountOptions;
    use super::super::tests::Fixture;
    use super::*;

    #[tokio::test]
    async fn a_token_in_a_secret_is_valid_while_the_secret_holds_it_and_its_account_lives() {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let tokens = Tokens::new(ServiceAccountOptions::new(pem.as_str())).unwrap();
        let claims = json!({
            "iss": ISSUER, "sub": "system:serviceaccount:ns:bot",
            "kubernetes.io/serviceaccount/namespace": "ns",
            "kubernetes.io/serviceaccount/secret.name": "t",
            "kubernetes.io/serviceaccount/service-account.name": "bot",
            "kubernetes.io/serviceaccount/service-account.uid": "a",
        });
        let token = LegacyTokenKey::read(&pem).unwrap().sign(&claims).unwrap();
        let account =
            |uid: &str| ("serviceaccounts", json!({"metadata": {"name": "bot", "namespace": "ns", "uid": uid}}));
        let secret = |token: &str| {
            let data = json!({"token": STANDARD.encode(token)});
            ("secrets", json!({"metadata": {"name": "t", "namespace": "ns", "uid": "s"}, "data": data}))
        };
        let now = Timestamp::UNIX_EPOCH;
        let objects = Fixture::with(&[account("a"), secret(&token)]);
        let (user, audiences) = tokens.authenticate(&token, &[], &objects, now).await.unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:ns:bot", "a"));
        assert_eq!(audiences, tokens.audiences());
        assert!(tokens.authenticate(&token, &["elsewhere".to_owned()], &objects, now).await.is_none());
        for objects in [
            Fixture::with(&[account("a")]),
            Fixture::with(&[account("a"), secret("another")]),
            Fixture::with(&[account("b"), secret(&token)]),
            Fixture::with(&[secret(&token)]),
        ] {
            assert!(tokens.authenticate(&token, &[], &objects, now).await.is_none());
        }
    }
}
