//! What every namespace needs before pods can run in it: the `default` ServiceAccount and the cluster's CA.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::status::{Status, reason};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup};
use crate::error::{Error, namespace_terminating, not_found};
use crate::requests::{self, CONFIG_MAPS, SERVICE_ACCOUNTS};

/// The ServiceAccount of pods that name none.
pub(crate) const DEFAULT_SERVICE_ACCOUNT: &str = "default";

/// The ConfigMap in every namespace with the CA that pods verify the API server by.
pub(crate) const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";

/// The key of the certificates in it.
const CA_KEY: &str = "ca.crt";

const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

/// A ConfigMap's text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    pub metadata: ObjectMeta,
    pub data: BTreeMap<String, String>,
}

impl HasMeta for ConfigMap {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Creates the `default` ServiceAccount of every namespace.
pub struct ServiceAccountController {
    cache: Arc<Cache>,
}

/// Publishes the cluster's CA in every namespace; upstream's `root-ca-certificate-publisher-controller`.
pub struct RootCaPublisher {
    cache: Arc<Cache>,
    ca: String,
}

/// The key of a namespace that was added or updated.
fn namespace_of(delta: &AnyDelta) -> Vec<Wakeup> {
    match delta {
        AnyDelta::Namespace(Delta::Added(namespace) | Delta::Updated { new: namespace, .. }) => {
            vec![Wakeup::now(namespace.metadata.name.clone())]
        }
        _ => Vec::new(),
    }
}

/// Another writer created it first, or the namespace is terminating: either way nothing is left to do.
fn settled(outcome: Result<Value, Status>) -> Result<Requeue, Error> {
    match outcome {
        Err(status) if status.is(reason::ALREADY_EXISTS) || not_found(&status) || namespace_terminating(&status) => {
            Ok(Requeue::OnChange)
        }
        outcome => outcome.map(|_| Requeue::OnChange).map_err(Error::from),
    }
}

impl ServiceAccountController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        ServiceAccountController { cache }
    }

    async fn reconcile(&self, namespace: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let active = self.cache.namespaces().get("", namespace).is_some_and(|namespace| namespace.is_active());
        let there = self.cache.service_accounts().get(namespace, DEFAULT_SERVICE_ACCOUNT).is_some();
        if !active || there {
            return Ok(Requeue::OnChange);
        }
        let metadata = json!({"name": DEFAULT_SERVICE_ACCOUNT, "namespace": namespace});
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
        settled(requests::create(context.api, &SERVICE_ACCOUNTS, namespace, &account).await)
    }
}

impl Controller for ServiceAccountController {
    fn name(&self) -> &'static str {
        "serviceaccount-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Namespace, Kind::ServiceAccount]
    }

    fn workers(&self) -> usize {
        1
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::ServiceAccount(Delta::Deleted(account)) if account.metadata.name == DEFAULT_SERVICE_ACCOUNT => {
                vec![Wakeup::now(account.metadata.namespace.clone())]
            }
            delta => namespace_of(delta),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}

impl RootCaPublisher {
    /// A publisher of these PEM certificates.
    pub fn new(cache: Arc<Cache>, ca: String) -> Self {
        RootCaPublisher { cache, ca }
    }

    async fn reconcile(&self, namespace: &str, context: Context<'_>) -> Result<Requeue, Error> {
        if !self.cache.namespaces().get("", namespace).is_some_and(|namespace| namespace.is_active()) {
            return Ok(Requeue::OnChange);
        }
        let published = self.cache.root_cas().get(namespace, ROOT_CA_CONFIG_MAP);
        let data = BTreeMap::from([(CA_KEY.to_owned(), self.ca.clone())]);
        let outcome = match published {
            Some(published) if published.data == data => return Ok(Requeue::OnChange),
            Some(published) => {
                let mut live: Value = requests::get(context.api, &CONFIG_MAPS, namespace, ROOT_CA_CONFIG_MAP).await?;
                live["data"] = json!(data);
                requests::update(context.api, &CONFIG_MAPS, &published.metadata, &live).await
            }
            None => {
                let annotations = json!({"kubernetes.io/description": DESCRIPTION});
                let metadata = json!({"name": ROOT_CA_CONFIG_MAP, "namespace": namespace, "annotations": annotations});
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
                requests::create(context.api, &CONFIG_MAPS, namespace, &map).await
            }
        };
        settled(outcome)
    }
}

impl Controller for RootCaPublisher {
    fn name(&self) -> &'static str {
        "root-ca-certificate-publisher-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Namespace, Kind::RootCa]
    }

    fn workers(&self) -> usize {
        1
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::RootCa(Delta::Deleted(map) | Delta::Updated { new: map, .. }) => {
                vec![Wakeup::now(map.metadata.namespace.clone())]
            }
            delta => namespace_of(delta),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}

#[cfg(test)]
mod tests;
