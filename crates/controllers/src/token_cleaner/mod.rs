//! Deletes bootstrap tokens, by which nodes join a cluster, when they have expired.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bayplan_model::api::{DeleteOptions, Preconditions};
use bayplan_model::delta::Delta;
use bayplan_model::meta::{HasMeta, ObjectMeta};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Deserialize;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, split_key};
use crate::error::{Error, not_found};
use crate::requests::{self, SECRETS};

/// The type of the secrets.
pub(crate) const BOOTSTRAP_TOKEN: &str = "bootstrap.kubernetes.io/token";

/// Where tokens are kept; secrets of the type elsewhere are none.
const NAMESPACE: &str = "kube-system";

/// A bootstrap token as the controller reads it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BootstrapToken {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it holds, in base64.
    pub data: Option<BTreeMap<String, Option<String>>>,
}

impl HasMeta for BootstrapToken {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl BootstrapToken {
    /// How long it is still good; none for ever. One whose end nobody can read is over.
    fn time_left(&self, now: Timestamp) -> Option<Duration> {
        let text = self.data.as_ref()?.get("expiration")?.as_deref().filter(|text| !text.is_empty())?;
        let bytes = STANDARD.decode(text).unwrap_or_default();
        let end: Option<Timestamp> = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
        let left = end.and_then(|end| Duration::try_from(end.duration_since(now)).ok());
        Some(left.unwrap_or(Duration::ZERO))
    }
}

/// The controller.
pub struct TokenCleanerController {
    cache: Arc<Cache>,
}

impl TokenCleanerController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        TokenCleanerController { cache }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(token) = self.cache.bootstrap_tokens().get(namespace, name) else { return Ok(Requeue::OnChange) };
        match token.time_left(context.now) {
            None => return Ok(Requeue::OnChange),
            Some(left) if !left.is_zero() => return Ok(Requeue::After(left)),
            Some(_) => {}
        }
        let preconditions = Preconditions { uid: Some(token.metadata.uid.clone()), ..Preconditions::default() };
        let options = DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() };
        match requests::delete(context.api, &SECRETS, &token.metadata, options).await {
            Err(status) if !not_found(&status) => Err(status.into()),
            _ => Ok(Requeue::OnChange),
        }
    }
}

impl Controller for TokenCleanerController {
    fn name(&self) -> &'static str {
        "token-cleaner-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::BootstrapToken]
    }

    fn workers(&self) -> usize {
        1
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::BootstrapToken(Delta::Added(token) | Delta::Updated { new: token, .. })
                if token.metadata.namespace == NAMESPACE =>
            {
                vec![Wakeup::now(token.metadata.key())]
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
