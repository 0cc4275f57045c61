//! Secrets that hold a service account's token: they are filled, and they go with their account.
//!
//! Nobody needs such a secret to run pods; they are for clients outside that cannot ask for tokens that expire.

mod signer;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bayplan_model::api::{DeleteOptions, Preconditions};
use bayplan_model::delta::Delta;
use bayplan_model::meta::{HasMeta, ObjectMeta, PartialObjectMetadata};
use bayplan_model::status::{Status, reason};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup};
use crate::error::{Error, not_found};
use crate::requests::{self, SECRETS, SERVICE_ACCOUNTS};
pub use signer::TokenSigner;
use signer::claims;

/// The type of the secrets.
pub(crate) const TOKEN_SECRET: &str = "kubernetes.io/service-account-token";

const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

const CA: &str = "ca.crt";
const NAMESPACE: &str = "namespace";
const TOKEN: &str = "token";

/// An account is written at most so often when others write it at the same time.
const ACCOUNT_TRIES: usize = 10;

/// A token secret as the controller reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenSecretView {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it holds, in base64.
    pub data: Option<BTreeMap<String, Option<String>>>,
}

impl TokenSecretView {
    fn holds(&self, key: &str) -> Option<&str> {
        let value = self.data.as_ref()?.get(key)?.as_deref()?;
        (!value.is_empty()).then_some(value)
    }

    fn annotation(&self, name: &str) -> &str {
        self.metadata.annotations.get(name).map_or("", String::as_str)
    }
}

impl HasMeta for TokenSecretView {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// What a key of the work queue is about. Names have no spaces.
#[derive(Debug, PartialEq, Eq)]
enum Work<'a> {
    Account { namespace: &'a str, name: &'a str, uid: &'a str },
    Secret { namespace: &'a str, name: &'a str, uid: &'a str, account: &'a str, account_uid: &'a str },
}

impl<'a> Work<'a> {
    fn of(key: &'a str) -> Option<Self> {
        match key.split(' ').collect::<Vec<_>>()[..] {
            ["account", namespace, name, uid] => Some(Work::Account { namespace, name, uid }),
            ["secret", namespace, name, uid, account, account_uid] => {
                Some(Work::Secret { namespace, name, uid, account, account_uid })
            }
            _ => None,
        }
    }

    fn account(meta: &ObjectMeta) -> Wakeup {
        Wakeup::now(format!("account {} {} {}", meta.namespace, meta.name, meta.uid))
    }

    fn secret(secret: &TokenSecretView) -> Wakeup {
        let ObjectMeta { namespace, name, uid, .. } = &secret.metadata;
        let [account, account_uid] = [ACCOUNT_NAME, ACCOUNT_UID].map(|annotation| secret.annotation(annotation));
        Wakeup::now(format!("secret {namespace} {name} {uid} {account} {account_uid}"))
    }
}

/// The controller of token secrets; upstream's `TokensController`.
pub struct ServiceAccountTokenController {
    cache: Arc<Cache>,
    signer: TokenSigner,
    /// The authority that clients verify the API server by, in base64.
    root_ca: Option<String>,
}

impl ServiceAccountTokenController {
    /// A controller over this cache, which signs tokens and hands out the authority if there is one.
    pub fn new(cache: Arc<Cache>, signer: TokenSigner, root_ca: Option<&str>) -> Self {
        let root_ca = root_ca.filter(|ca| !ca.is_empty()).map(|ca| STANDARD.encode(ca));
        ServiceAccountTokenController { cache, signer, root_ca }
    }

    /// Deletes the tokens of an account that is gone.
    async fn account_changed(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        context: Context<'_>,
    ) -> Result<Requeue, Error> {
        if self.cached_account(namespace, name, uid).is_some() {
            return Ok(Requeue::OnChange);
        }
        let of_account = |secret: &&Arc<TokenSecretView>| {
            let of = secret.annotation(ACCOUNT_UID);
            secret.annotation(ACCOUNT_NAME) == name && (of.is_empty() || of == uid)
        };
        let secrets: Vec<_> = self.cache.token_secrets().namespace(namespace).filter(of_account).cloned().collect();
        for secret in secrets {
            self.delete(&secret.metadata, context).await?;
        }
        Ok(Requeue::OnChange)
    }

    async fn secret_changed(&self, work: &Work<'_>, context: Context<'_>) -> Result<Requeue, Error> {
        let Work::Secret { namespace, name, uid, account, account_uid } = *work else { return Ok(Requeue::OnChange) };
        let secret = self.cache.token_secrets().get(namespace, name).filter(|secret| secret.metadata.uid == uid);
        let Some(secret) = secret else {
            if self.cached_account(namespace, account, account_uid).is_some() {
                self.forget_in_account(namespace, account, account_uid, name, context).await?;
            }
            return Ok(Requeue::OnChange);
        };
        match self.account(namespace, account, account_uid, context).await? {
            Some(account) => self.fill(&secret, &account, context).await?,
            None => self.delete(&secret.metadata, context).await?,
        }
        Ok(Requeue::OnChange)
    }

    fn cached_account(&self, namespace: &str, name: &str, uid: &str) -> Option<ObjectMeta> {
        let account = self.cache.service_accounts().get(namespace, name)?;
        (uid.is_empty() || account.metadata.uid == uid).then(|| account.metadata.clone())
    }

    /// The account of a secret; the cache may not have it yet.
    async fn account(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        context: Context<'_>,
    ) -> Result<Option<ObjectMeta>, Error> {
        if let Some(account) = self.cached_account(namespace, name, uid) {
            return Ok(Some(account));
        }
        if name.is_empty() {
            return Ok(None);
        }
        match requests::get::<PartialObjectMetadata>(context.api, &SERVICE_ACCOUNTS, namespace, name).await {
            Ok(live) => Ok(Some(live.metadata).filter(|account| uid.is_empty() || account.uid == uid)),
            Err(status) if not_found(&status) => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    async fn delete(&self, secret: &ObjectMeta, context: Context<'_>) -> Result<(), Error> {
        let preconditions = Some(Preconditions { uid: Some(secret.uid.clone()), ..Preconditions::default() });
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        match requests::delete(context.api, &SECRETS, secret, options).await {
            Err(status) if !not_found(&status) && !status.is(reason::CONFLICT) => Err(status.into()),
            _ => Ok(()),
        }
    }

    /// Writes what a secret lacks.
    async fn fill(&self, cached: &TokenSecretView, account: &ObjectMeta, context: Context<'_>) -> Result<(), Error> {
        let needs_ca = self.root_ca.as_deref().is_some_and(|ca| cached.holds(CA) != Some(ca));
        let (needs_namespace, needs_token) = (cached.holds(NAMESPACE).is_none(), cached.holds(TOKEN).is_none());
        if !needs_ca && !needs_namespace && !needs_token {
            return Ok(());
        }
        let ObjectMeta { namespace, name, .. } = &cached.metadata;
        let mut live: Value = match requests::get(context.api, &SECRETS, namespace, name).await {
            Err(status) if not_found(&status) => return Ok(()),
            live => live?,
        };
        // A secret that changed since will be told of again.
        if live["metadata"]["resourceVersion"] != cached.metadata.resource_version.as_str() {
            return Ok(());
        }
        map_at(&mut live, &["metadata", "annotations"]);
        map_at(&mut live, &["data"]);
        if needs_ca {
            live["data"][CA] = json!(self.root_ca);
        }
        if needs_namespace {
            live["data"][NAMESPACE] = json!(STANDARD.encode(namespace));
        }
        if needs_token {
            let token = self.signer.sign(&claims(account, name)).map_err(Error::Invalid)?;
            live["data"][TOKEN] = json!(STANDARD.encode(token));
        }
        live["metadata"]["annotations"][ACCOUNT_NAME] = json!(account.name);
        live["metadata"]["annotations"][ACCOUNT_UID] = json!(account.uid);
        match requests::update::<Value>(context.api, &SECRETS, &cached.metadata, &live).await {
            Err(status) if !not_found(&status) && !status.is(reason::CONFLICT) => Err(status.into()),
            _ => Ok(()),
        }
    }

    /// Takes a secret that is gone out of its account's list.
    async fn forget_in_account(
        &self,
        namespace: &str,
        account: &str,
        uid: &str,
        secret: &str,
        context: Context<'_>,
    ) -> Result<(), Error> {
        let mut last: Option<Status> = None;
        for _ in 0..ACCOUNT_TRIES {
            let mut live: Value = match requests::get(context.api, &SERVICE_ACCOUNTS, namespace, account).await {
                Err(status) if not_found(&status) => return Ok(()),
                live => live?,
            };
            if !uid.is_empty() && live["metadata"]["uid"] != uid {
                return Ok(());
            }
            let listed = live["secrets"].as_array().cloned().unwrap_or_default();
            let kept: Vec<Value> = listed.iter().filter(|entry| entry["name"] != secret).cloned().collect();
            if kept.len() == listed.len() {
                return Ok(());
            }
            live["secrets"] = json!(kept);
            let meta = ObjectMeta { namespace: namespace.into(), name: account.into(), ..ObjectMeta::default() };
            match requests::update::<Value>(context.api, &SERVICE_ACCOUNTS, &meta, &live).await {
                Err(status) if status.is(reason::CONFLICT) => last = Some(status),
                Err(status) if not_found(&status) => return Ok(()),
                Err(status) => return Err(status.into()),
                Ok(_) => return Ok(()),
            }
        }
        last.map_or(Ok(()), |status| Err(status.into()))
    }
}

/// Makes a map of what is at a path, unless it is one.
fn map_at(object: &mut Value, path: &[&str]) {
    let mut at = object;
    for field in path {
        at = &mut at[*field];
    }
    if !at.is_object() {
        *at = json!({});
    }
}

impl Controller for ServiceAccountTokenController {
    fn name(&self) -> &'static str {
        "serviceaccount-token-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::ServiceAccount, Kind::TokenSecret]
    }

    fn max_retries(&self) -> u32 {
        10
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::ServiceAccount(Delta::Deleted(account)) => vec![Work::account(&account.metadata)],
            AnyDelta::ServiceAccount(Delta::Updated { old, new }) if old.metadata.uid != new.metadata.uid => {
                vec![Work::account(&old.metadata)]
            }
            AnyDelta::TokenSecret(Delta::Added(secret) | Delta::Deleted(secret)) => vec![Work::secret(secret)],
            AnyDelta::TokenSecret(Delta::Updated { old, new }) if old.metadata.uid != new.metadata.uid => {
                vec![Work::secret(old), Work::secret(new)]
            }
            AnyDelta::TokenSecret(Delta::Updated { new, .. }) => vec![Work::secret(new)],
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(async move {
            match Work::of(key) {
                Some(Work::Account { namespace, name, uid }) => {
                    self.account_changed(namespace, name, uid, context).await
                }
                Some(secret @ Work::Secret { .. }) => self.secret_changed(&secret, context).await,
                None => Ok(Requeue::OnChange),
            }
        })
    }
}
