//! Refreshes the list of served resources, and keeps a metadata watch on each resource that some loop follows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bayplan_client::informer::RunningInformer;
use bayplan_client::{Client, Informer, Scope};
use bayplan_controllers::discovery::{ApiResource, Resources};
use bayplan_model::api::Resource;
use bayplan_model::meta::PartialObjectMetadata;
use futures::future::join_all;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::Loop;
use super::discovery::discover;

/// The period of discovery.
const REFRESH: Duration = Duration::from_secs(30);

/// How soon discovery is retried after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// How long the loops that follow objects wait for the first watches before they start without them.
const INITIAL_SYNC_MAX: Duration = Duration::from_secs(30);

/// The running task; it ends with [`Monitors::stop`], or soon after this is dropped.
pub(super) struct Monitors {
    /// Notified once, when enough is known of all objects to start.
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

/// Starts discovery and the watches of what the loops follow.
pub(super) fn start(client: &Client, resources: &Resources, loops: Vec<Loop>) -> Monitors {
    let started = Arc::new(Notify::new());
    let (client, resources, ring) = (client.clone(), resources.clone(), started.clone());
    let task = tokio::spawn(async move {
        let mut watches: HashMap<Resource, (ApiResource, RunningInformer)> = HashMap::new();
        let mut first = true;
        loop {
            let wait = match discover(&client).await {
                Ok((found, failures)) => {
                    if resources.replace_partly(found, failures) {
                        follow(&client, &resources, &loops, &mut watches);
                    }
                    if std::mem::take(&mut first) {
                        let synced = join_all(watches.values().map(|(_, informer)| informer.synced()));
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
    loops: &[Loop],
    watches: &mut HashMap<Resource, (ApiResource, RunningInformer)>,
) {
    let all = resources.all();
    let is_followed = |resource: &&ApiResource| loops.iter().any(|each| each.controller.follows(resource));
    let followed: Vec<&ApiResource> = all.iter().filter(is_followed).collect();
    watches.retain(|watched, (resource, _)| {
        let stays = followed.iter().any(|resource| resource.resource == *watched);
        if !stays {
            loops.iter().for_each(|each| each.controller.forget_objects(resource));
        }
        stays
    });
    for resource in followed {
        let id = resource.resource.clone();
        watches.entry(id).or_insert_with(|| (resource.clone(), watch(client, resource, loops)));
    }
}

fn watch(client: &Client, resource: &ApiResource, loops: &[Loop]) -> RunningInformer {
    let mut informer = Informer::<PartialObjectMetadata>::new(client, Scope::all(&resource.resource).metadata_only());
    let followers: Vec<Loop> = loops.iter().filter(|each| each.controller.follows(resource)).cloned().collect();
    let resource = resource.clone();
    informer.on_delta(move |delta| {
        for each in &followers {
            for wakeup in each.controller.observe_metadata(&resource, delta) {
                each.queue.add_after(wakeup.key, wakeup.after);
            }
        }
    });
    informer.spawn()
}
