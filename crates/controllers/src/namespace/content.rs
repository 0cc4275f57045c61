//! Emptying a namespace, resource by resource.

use std::collections::BTreeMap;

use bayplan_model::api::{DeleteOptions, ListOptions, Request, Verb, decode};
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_model::status::Status;
use serde::Deserialize;

use super::Namespace;
use crate::cache::Cache;
use crate::controller::Context;
use crate::discovery::{ApiResource, Resources};
use crate::error::{Error, not_found};
use crate::requests::PODS;

/// How long finalizers are given before the next attempt.
const FINALIZER_ESTIMATE_SECONDS: u64 = 15;

/// The result of one attempt to empty a namespace.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Objects left, by `resource.group`.
    pub(super) remaining: BTreeMap<String, usize>,
    /// Objects left, by the finalizer that holds them.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// What failed.
    pub(super) errors: Vec<Error>,
    /// Why discovery of some groups failed: their objects cannot be deleted, so the namespace has to wait.
    pub(super) discovery_failure: Option<String>,
    /// When to try again; 0 when nothing is left to wait for.
    pub(super) estimate_seconds: u64,
    /// Pods are left, so nothing else was touched.
    pub(super) pods_remain: bool,
}

impl Outcome {
    /// The failures as one error.
    pub(super) fn first_error(&self) -> Option<Error> {
        let unknown = self.discovery_failure.iter().cloned().map(Error::Invalid);
        Error::collect(unknown.chain(self.errors.iter().cloned()).collect()).err()
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct List {
    /// `null` in an empty list of metadata.
    items: Option<Vec<PartialObjectMetadata>>,
}

/// Deletes the content of the namespace: pods first, and everything else when none is left.
pub(super) async fn delete_all(
    cache: &Cache,
    resources: &Resources,
    namespace: &Namespace,
    context: Context<'_>,
) -> Outcome {
    let mut outcome = Outcome { discovery_failure: discovery_failure(resources), ..Outcome::default() };
    let all = resources.all();
    let deletable = all.iter().filter(|r| r.namespaced && r.can(&["delete"]));
    let (pods, others): (Vec<_>, Vec<_>) = deletable.partition(|r| r.resource == PODS);
    for resource in pods {
        delete(cache, resource, namespace, context, &mut outcome).await;
    }
    if !outcome.remaining.is_empty() || !outcome.errors.is_empty() {
        outcome.pods_remain = true;
        return outcome;
    }
    for resource in others {
        delete(cache, resource, namespace, context, &mut outcome).await;
    }
    outcome
}

fn discovery_failure(resources: &Resources) -> Option<String> {
    let failures = resources.failures();
    let each: Vec<String> = failures.iter().map(ToString::to_string).collect();
    (!each.is_empty()).then(|| {
        let (count, each) = (each.len(), each.join(", "));
        let what = "unable to retrieve the complete list of server APIs";
        format!("Discovery failed for some groups, {count} failing: {what}: {each}")
    })
}

async fn delete(
    cache: &Cache,
    resource: &ApiResource,
    namespace: &Namespace,
    context: Context<'_>,
    outcome: &mut Outcome,
) {
    let name = &namespace.metadata.name;
    let estimate = if resource.resource == PODS { pod_grace(cache, namespace, context) } else { 0 };
    let left = match empty(resource, name, context).await {
        Ok(left) => left,
        Err(status) => return outcome.errors.push(status.into()),
    };
    if left.is_empty() {
        return;
    }
    let group = &resource.resource.group;
    let what = format!("{}.{group}", resource.resource.plural);
    outcome.remaining.insert(what, left.len());
    let finalizers: Vec<_> = left.iter().flat_map(|object| &object.metadata.finalizers).collect();
    let held = !finalizers.is_empty();
    for finalizer in finalizers {
        *outcome.finalizers.entry(finalizer.clone()).or_default() += 1;
    }
    if estimate > 0 {
        outcome.estimate_seconds = outcome.estimate_seconds.max(estimate);
    } else if held {
        outcome.estimate_seconds = outcome.estimate_seconds.max(FINALIZER_ESTIMATE_SECONDS);
    } else {
        let (group, version, plural) = (group, &resource.resource.version, &resource.resource.plural);
        let gvr = format!("{group}/{version}, Resource={plural}");
        let error = format!("unexpected items still remain in namespace: {name} for gvr: {gvr}");
        outcome.errors.push(Error::Invalid(error));
    }
}

/// Deletes every object of the resource; returns those that are still there.
async fn empty(
    resource: &ApiResource,
    namespace: &str,
    context: Context<'_>,
) -> Result<Vec<PartialObjectMetadata>, Status> {
    let background = DeleteOptions { propagation_policy: Some("Background".into()), ..DeleteOptions::default() };
    let collection = |verb| Request::collection(&resource.resource, namespace, verb);
    let list = || async {
        if !resource.can(&["list"]) {
            return Ok(Vec::new());
        }
        match context.api.call(collection(Verb::List(ListOptions::default())).metadata_only()).await {
            Err(status) if is_unsupported(&status) => Ok(Vec::new()),
            answer => decode::<List>(&answer?).map(|list| list.items.unwrap_or_default()),
        }
    };
    let mut together = resource.can(&["deletecollection"]);
    if together {
        let verb = Verb::DeleteCollection(ListOptions::default(), background.clone());
        match context.api.call(collection(verb)).await {
            Err(status) if is_unsupported(&status) => together = false,
            answer => drop(answer?),
        }
    }
    if !together {
        for object in list().await? {
            let verb = Verb::Delete(background.clone());
            let request = Request::object(&resource.resource, namespace, &object.metadata.name, verb);
            match context.api.call(request).await {
                Err(status) if !not_found(&status) && status.code != 405 => return Err(status),
                _ => {}
            }
        }
    }
    list().await
}

fn is_unsupported(status: &Status) -> bool {
    matches!(status.code, 404 | 405)
}

/// The longest time a pod of the namespace may still take to stop; 0 once that time has passed.
fn pod_grace(cache: &Cache, namespace: &Namespace, context: Context<'_>) -> u64 {
    let pods = cache.pods();
    let running = pods.namespace(&namespace.metadata.name).filter(|pod| !pod.is_terminal());
    let longest = running.map(|pod| pod.termination_grace_period_seconds).max().unwrap_or(0);
    let since = namespace.metadata.deletion_timestamp.unwrap_or(context.now);
    if context.now.duration_since(since).as_secs() > longest { 0 } else { u64::try_from(longest).unwrap_or(0) }
}
