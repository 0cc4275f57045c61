//! What a token says, and who signs it: keys and their mathematics belong to the shell.

use std::fmt;
use std::sync::Arc;

use bayplan_model::meta::ObjectMeta;
use serde_json::{Value, json};

/// The issuer of tokens that do not expire.
const ISSUER: &str = "kubernetes/serviceaccount";

type Sign = dyn Fn(&Value) -> Result<String, String> + Send + Sync;

/// Signs claims as a JSON web token.
#[derive(Clone)]
pub struct TokenSigner(Arc<Sign>);

impl TokenSigner {
    /// A signer; the error of the function is told as it is.
    pub fn new(sign: impl Fn(&Value) -> Result<String, String> + Send + Sync + 'static) -> Self {
        TokenSigner(Arc::new(sign))
    }

    pub(super) fn sign(&self, claims: &Value) -> Result<String, String> {
        (self.0)(claims)
    }
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenSigner")
    }
}

/// The claims of the token in a secret of an account.
pub(super) fn claims(account: &ObjectMeta, secret: &str) -> Value {
    let ObjectMeta { namespace, name, uid, .. } = account;
    json!({
        "iss": ISSUER,
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": uid,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    })
}
