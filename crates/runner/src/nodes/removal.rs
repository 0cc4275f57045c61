//! Takes simulated nodes out of a cluster again, with their leases and the pods on them.

use std::time::Duration;

use bayplan_client::Client;
use bayplan_model::api::{Api, DeleteOptions, Preconditions, Request, Resource, Verb};
use bayplan_model::status::{Status, reason};
use bayplan_sim::CreatedNode;
use futures::StreamExt;
use futures::stream;
use tokio::time::Instant;

use super::outgoing::REQUESTS_MAX;
use super::{NODES, PODS};

const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
const NODE_LEASES: &str = "kube-node-lease";

/// How often a deletion is tried that the server refused for now.
const TRIES_MAX: u32 = 5;
/// The time before the next try.
const RETRY: Duration = Duration::from_millis(500);

/// What became of the nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Removal {
    /// Nodes that are gone.
    pub removed: usize,
    /// Nodes that are still there.
    pub left: usize,
    /// Why the first of those is.
    pub reason: Option<Status>,
}

/// Deletes nodes, then their leases and pods; ends after `patience` in any case. `removed` hears how many nodes are
/// gone.
///
/// Nodes go first: as long as they are there, a scheduler binds the pods that follow to them. Leases and pods would be
/// collected by controllers, if the cluster has any.
pub async fn remove_nodes(
    client: &Client,
    nodes: Vec<CreatedNode>,
    patience: Duration,
    removed: impl Fn(usize),
) -> Removal {
    let deadline = Instant::now() + patience;
    let mut outcome = Removal { left: nodes.len(), ..Removal::default() };
    let mut deletions = stream::iter(nodes.iter().map(|node| {
        let request = Request::object(&NODES, "", &node.name, Verb::Delete(now_and_only(&node.uid)));
        delete(client, request)
    }))
    .buffer_unordered(REQUESTS_MAX);
    while let Ok(Some(answer)) = tokio::time::timeout_at(deadline, deletions.next()).await {
        match answer {
            Ok(()) => {
                outcome.left -= 1;
                outcome.removed += 1;
                removed(outcome.removed);
            }
            Err(status) => _ = outcome.reason.get_or_insert(status),
        }
    }
    drop(deletions);
    let leases = nodes.iter().map(|node| Request::object(&LEASES, NODE_LEASES, &node.name, Verb::Delete(now())));
    let pods = nodes
        .iter()
        .flat_map(|node| &node.pods)
        .map(|(namespace, name, uid)| Request::object(&PODS, namespace, name, Verb::Delete(now_and_only(uid))));
    let remains = stream::iter(pods.chain(leases).map(|request| delete(client, request)));
    let remains = remains.buffer_unordered(REQUESTS_MAX).for_each(async |_| {});
    if tokio::time::timeout_at(deadline, remains).await.is_err() {
        tracing::warn!("not every pod and lease of the removed nodes could be deleted in time");
    }
    outcome
}

fn now() -> DeleteOptions {
    DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() }
}

/// Another object of the same name is none of ours.
fn now_and_only(uid: &str) -> DeleteOptions {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteOptions { preconditions: (!uid.is_empty()).then_some(preconditions), ..now() }
}

async fn delete(client: &Client, request: Request) -> Result<(), Status> {
    let mut tries = 1;
    loop {
        match client.call(request.clone()).await {
            Ok(_) => return Ok(()),
            // Gone, or another one by now.
            Err(status) if status.is(reason::NOT_FOUND) || status.is(reason::CONFLICT) => return Ok(()),
            Err(status) if tries < TRIES_MAX && matches!(status.code, 0 | 429 | 500..) => {
                tries += 1;
                tokio::time::sleep(RETRY).await;
            }
            Err(status) => return Err(status),
        }
    }
}
