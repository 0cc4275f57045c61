//! Terminating namespaces: deletes their content, pods first, and then removes their finalizer.

mod conditions;
mod content;

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{Request, Verb, encode};
use bayplan_model::delta::Delta;
use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::status::{Status, reason};
use bayplan_model::work_queue::RetryLimits;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup};
use crate::discovery::Resources;
use crate::error::{Error, not_found};
use crate::requests::{self, NAMESPACES};

/// The finalizer with which this controller holds a namespace until it is empty.
const FINALIZER: &str = "kubernetes";

/// Every event waits this long: admission in other API servers may not know yet that the namespace is terminating.
const EVENT_DELAY: Duration = Duration::from_secs(5);

/// A namespace that cannot be emptied is retried at least this often: no watch reports when the obstacle is gone.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// How often a write that met a conflict is tried.
const CONFLICT_TRIES: usize = 5;

/// The fields of a namespace that the controller reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub metadata: ObjectMeta,
    pub spec: NamespaceSpec,
    pub status: NamespaceStatus,
}

/// `Namespace.spec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceSpec {
    pub finalizers: Vec<String>,
}

/// `Namespace.status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceStatus {
    /// `Active` or `Terminating`.
    pub phase: String,
}

impl Namespace {
    /// Not terminating.
    pub fn is_active(&self) -> bool {
        self.metadata.deletion_timestamp.is_none() && self.status.phase != "Terminating"
    }
}

impl HasMeta for Namespace {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// The namespace controller.
pub struct NamespaceController {
    cache: Arc<Cache>,
    resources: Resources,
    delay: Duration,
}

impl NamespaceController {
    /// A controller that empties namespaces of these resources.
    pub fn new(cache: Arc<Cache>, resources: Resources) -> Self {
        NamespaceController { cache, resources, delay: EVENT_DELAY }
    }

    /// Sets another delay: with a single API server admission always knows.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    async fn reconcile(&self, name: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let live: Value = match requests::get(context.api, &NAMESPACES, "", name).await {
            Err(status) if not_found(&status) => return Ok(Requeue::OnChange),
            live => live?,
        };
        let view: Namespace = Namespace::deserialize(&live).map_err(|error| Error::Invalid(error.to_string()))?;
        if view.metadata.deletion_timestamp.is_none() || view.spec.finalizers.is_empty() {
            return Ok(Requeue::OnChange);
        }
        if view.status.phase != "Terminating" {
            self.edit_status(&view, context, |status, _| status["phase"] = json!("Terminating")).await?;
        }
        let outcome = content::delete_all(&self.cache, &self.resources, &view, context).await;
        self.edit_status(&view, context, |status, second| conditions::set_all(status, &outcome, second)).await?;
        if let Some(error) = outcome.first_error() {
            return Err(error);
        }
        if outcome.estimate_seconds > 0 {
            return Ok(Requeue::After(Duration::from_secs(outcome.estimate_seconds / 2 + 1)));
        }
        if outcome.pods_remain {
            return Ok(Requeue::RateLimited);
        }
        self.finalize(&view, context).await?;
        Ok(Requeue::OnChange)
    }

    /// Updates the status of the live namespace, unless another one has its name.
    async fn edit_status(
        &self,
        view: &Namespace,
        context: Context<'_>,
        edit: impl Fn(&mut Value, jiff::Timestamp),
    ) -> Result<(), Error> {
        self.write(view, context, "status", |live| edit(&mut live["status"], context.second())).await
    }

    /// Removes the finalizer from the namespace.
    async fn finalize(&self, view: &Namespace, context: Context<'_>) -> Result<(), Error> {
        let let_go = |live: &mut Value| {
            if let Some(finalizers) = live.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut) {
                finalizers.retain(|finalizer| finalizer != FINALIZER);
            }
        };
        match self.write(view, context, "finalize", let_go).await {
            Err(Error::Api(status)) if not_found(&status) => Ok(()),
            outcome => outcome,
        }
    }

    async fn write(
        &self,
        view: &Namespace,
        context: Context<'_>,
        subresource: &'static str,
        edit: impl Fn(&mut Value),
    ) -> Result<(), Error> {
        let name = &view.metadata.name;
        let mut last = Status::failure(409, reason::CONFLICT, format!("namespace {name} keeps changing"));
        for _ in 0..CONFLICT_TRIES {
            let live: Value = requests::get(context.api, &NAMESPACES, "", name).await?;
            if live["metadata"]["uid"] != view.metadata.uid.as_str() {
                return Err(Error::Invalid(format!("namespace uid has changed across retries: {name}")));
            }
            let mut changed = live.clone();
            edit(&mut changed);
            if changed == live {
                return Ok(());
            }
            let request = Request::object(&NAMESPACES, "", name, Verb::Update(encode(&changed)));
            match context.api.call(request.subresource(subresource)).await {
                Err(status) if status.is(reason::CONFLICT) => last = status,
                outcome => return outcome.map(|_| ()).map_err(Error::from),
            }
        }
        Err(last.into())
    }
}

impl Controller for NamespaceController {
    fn name(&self) -> &'static str {
        "namespace-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Namespace, Kind::Pod]
    }

    fn workers(&self) -> usize {
        10
    }

    fn retry_limits(&self) -> RetryLimits {
        RetryLimits { delay_max: RETRY_DELAY_MAX, ..RetryLimits::default() }
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Namespace(Delta::Added(namespace) | Delta::Updated { new: namespace, .. })
                if namespace.metadata.deletion_timestamp.is_some() =>
            {
                vec![Wakeup::after(namespace.metadata.name.clone(), self.delay)]
            }
            AnyDelta::Pod(Delta::Deleted(pod)) => {
                let name = &pod.metadata.namespace;
                let closing = self.cache.namespaces().get("", name).is_some_and(|namespace| !namespace.is_active());
                let empty = closing && self.cache.pods().namespace(name).next().is_none();
                // The last pod is gone: no need to wait for the rest of its grace period.
                empty.then(|| Wakeup::now(name.clone())).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}

#[cfg(test)]
mod tests;
