//! The garbage collector: what its owners leave behind goes, when all of them are gone.

mod attempt;
pub mod graph;

use std::sync::{Arc, Mutex};

use bayplan_model::delta::Delta;
use bayplan_model::meta::PartialObjectMetadata;
use futures::future::BoxFuture;

use crate::cache::{AnyDelta, Kind};
use crate::controller::{Context, Controller, Next, Wakeup, lock};
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

    /// Whether objects of this resource take part: events come and go by themselves.
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

    async fn run(&self, key: &str, context: Context<'_>) -> Result<Next, Error> {
        match key.split_once('/') {
            Some(("orphan", uid)) => self.attempt_to_orphan(uid, context).await,
            Some((_, uid)) => self.attempt_to_delete(uid, context).await,
            None => Ok(Next::Wait),
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

/// Asks for tasks, and for nothing more when there are none.
fn next(tasks: Vec<Task>, again: bool) -> Next {
    if tasks.is_empty() && !again { Next::Wait } else { Next::Wake { keys: wakeups(tasks), again } }
}

impl Controller for GarbageCollector {
    fn name(&self) -> &'static str {
        "garbage-collector-controller"
    }

    /// None of the typed caches: the shell watches every collected resource and tells
    /// [`observe_object`](GarbageCollector::observe_object).
    fn watches(&self) -> &'static [Kind] {
        &[]
    }

    fn workers(&self) -> usize {
        40
    }

    fn observe(&self, _: &AnyDelta) -> Vec<Wakeup> {
        Vec::new()
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Next, Error>> {
        Box::pin(self.run(key, context))
    }
}

#[cfg(test)]
mod tests;
