//! Refreshes the list of served resources, and keeps a metadata watch on each resource that is garbage collected.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bayplan_client::informer::RunningInformer;
use bayplan_client::{Client, Informer, Scope, WorkQueue};
use bayplan_controllers::GarbageCollector;
use bayplan_controllers::discovery::{ApiResource, Resources};
use bayplan_model::api::Resource;
use bayplan_model::meta::PartialObjectMetadata;
use futures::future::join_all;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::discovery::discover;

/// The period of discovery.
const REFRESH: Duration = Duration::from_secs(30);

/// How soon discovery is retried after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// How long the garbage collector waits for the first watches before it starts without them.
const INITIAL_SYNC_MAX: Duration = Duration::from_secs(30);

/// The running task; it ends with [`Monitors::stop`], or soon after this is dropped.
pub(super) struct Monitors {
    /// Notified once, when the graph is complete enough to start collecting.
    pub(super) started: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Monitors {
    /// Ends the watches; when this returns, none of them logs that the server stops.
    pub(super) async fn stop(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Monitors {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts discovery and, if there is a collector, its watches.
pub(super) fn start(
    client: &Client,
    resources: &Resources,
    collector: Option<(Arc<GarbageCollector>, WorkQueue<String>)>,
) -> Monitors {
    let started = Arc::new(Notify::new());
    let (client, resources, ring) = (client.clone(), resources.clone(), started.clone());
    let task = tokio::spawn(async move {
        let mut watches: HashMap<Resource, RunningInformer> = HashMap::new();
        let mut first = true;
        loop {
            let wait = match discover(&client).await {
                Ok((found, failures)) => {
                    if resources.replace_partly(found, failures)
                        && let Some((collector, queue)) = &collector
                    {
                        follow(&client, &resources, collector, queue, &mut watches);
                    }
                    if std::mem::take(&mut first) {
                        let synced = join_all(watches.values().map(RunningInformer::synced));
                        // A watch that cannot start must not stop the collection of all other resources.
                        let _ = tokio::time::timeout(INITIAL_SYNC_MAX, synced).await;
                        ring.notify_one();
                    }
                    REFRESH
                }
                Err(error) => {
                    tracing::warn!("{error}");
                    RETRY
                }
            };
            tokio::time::sleep(wait).await;
        }
    });
    Monitors { started, task }
}

/// Starts a watch on each new resource and ends those on resources that are gone.
fn follow(
    client: &Client,
    resources: &Resources,
    collector: &Arc<GarbageCollector>,
    queue: &WorkQueue<String>,
    watches: &mut HashMap<Resource, RunningInformer>,
) {
    let all = resources.all();
    let collected: Vec<&ApiResource> = all.iter().filter(|resource| GarbageCollector::collects(resource)).collect();
    watches.retain(|watched, _| collected.iter().any(|resource| resource.resource == *watched));
    for resource in collected {
        watches.entry(resource.resource.clone()).or_insert_with(|| watch(client, resource, collector, queue));
    }
}

fn watch(
    client: &Client,
    resource: &ApiResource,
    collector: &Arc<GarbageCollector>,
    queue: &WorkQueue<String>,
) -> RunningInformer {
    let mut informer = Informer::<PartialObjectMetadata>::new(client, Scope::all(&resource.resource).metadata_only());
    let (collector, queue) = (collector.clone(), queue.clone());
    let (api_version, kind) = (resource.api_version(), resource.kind.clone());
    informer.on_delta(move |delta| {
        for wakeup in collector.observe_object(&api_version, &kind, delta) {
            queue.add_after(wakeup.key, wakeup.after);
        }
    });
    informer.spawn()
}
