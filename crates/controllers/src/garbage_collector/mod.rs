//! The garbage collector: deletes objects whose owners no longer exist.

mod attempt;
pub(crate) mod graph;

use std::sync::{Arc, Mutex};

use bayplan_model::delta::Delta;
use bayplan_model::meta::PartialObjectMetadata;
use futures::future::BoxFuture;

use crate::cache::{AnyDelta, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, lock};
use crate::discovery::{ApiResource, Resources};
use crate::error::Error;
use graph::{Graph, Task};

/// The garbage collector.
#[derive(Default)]
pub struct GarbageCollector {
    graph: Mutex<Graph>,
    resources: Resources,
}

impl GarbageCollector {
    /// A collector of these resources.
    pub fn new(resources: Resources) -> Self {
        GarbageCollector { graph: Mutex::default(), resources }
    }

    /// Whether objects of this resource are collected. Events are not: they expire.
    pub fn collects(resource: &ApiResource) -> bool {
        let group = resource.resource.group.as_ref();
        let is_event = resource.resource.plural == "events" && matches!(group, "" | "events.k8s.io");
        resource.can(&["delete", "list", "watch"]) && !is_event
    }

    /// Follows a change of an object of any collected kind.
    pub fn observe_object(
        &self,
        api_version: &str,
        kind: &str,
        delta: &Delta<Arc<PartialObjectMetadata>>,
    ) -> Vec<Wakeup> {
        let mut graph = lock(&self.graph);
        wakeups(match delta {
            Delta::Added(object) | Delta::Updated { new: object, .. } => {
                graph.present(api_version, kind, &object.metadata)
            }
            Delta::Deleted(object) => graph.gone(&object.metadata.uid),
        })
    }

    async fn run(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        match key.split_once('/') {
            Some(("orphan", uid)) => self.attempt_to_orphan(uid, context).await,
            Some((_, uid)) => self.attempt_to_delete(uid, context).await,
            None => Ok(Requeue::OnChange),
        }
    }
}

/// Tasks as keys of the work queue.
fn wakeups(tasks: Vec<Task>) -> Vec<Wakeup> {
    let key = |task| match task {
        Task::Delete(uid) => format!("delete/{uid}"),
        Task::Orphan(uid) => format!("orphan/{uid}"),
    };
    tasks.into_iter().map(|task| Wakeup::now(key(task))).collect()
}

/// Requeues tasks, and the key itself when `again` is set.
fn next(tasks: Vec<Task>, again: bool) -> Requeue {
    if tasks.is_empty() && !again { Requeue::OnChange } else { Requeue::Keys { keys: wakeups(tasks), again } }
}

impl Controller for GarbageCollector {
    fn name(&self) -> &'static str {
        "garbage-collector-controller"
    }

    /// None of the typed caches: it follows the metadata of every collected resource.
    fn watches(&self) -> &'static [Kind] {
        &[]
    }

    fn workers(&self) -> usize {
        40
    }

    fn observe(&self, _: &AnyDelta) -> Vec<Wakeup> {
        Vec::new()
    }

    fn follows(&self, resource: &ApiResource) -> bool {
        GarbageCollector::collects(resource)
    }

    fn follows_objects(&self) -> bool {
        true
    }

    fn observe_metadata(&self, resource: &ApiResource, delta: &Delta<Arc<PartialObjectMetadata>>) -> Vec<Wakeup> {
        self.observe_object(&resource.api_version(), &resource.kind, delta)
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.run(key, context))
    }
}

#[cfg(test)]
mod tests;
