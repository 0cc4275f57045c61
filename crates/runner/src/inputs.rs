//! What the scheduler's owner reacts to: deltas of the informers, and the results of effects.
//!
//! Deltas come through a bounded channel: an owner that falls behind slows the watches down, and the API server keeps
//! what was not read yet. Results come through a channel of their own and always get in, so that an effect never waits
//! for the owner; there is at most one for every pod that is being bound or preempts others.

use std::sync::Arc;
use std::time::Duration;

use bayplan_client::informer::RunningInformer;
use bayplan_client::{Client, Informer, Scope};
use bayplan_model::api::Resource;
use bayplan_model::delta::Delta;
use bayplan_model::meta::HasMeta;
use bayplan_model::status::{Status, reason};
use bayplan_scheduler::{Input, Object};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::extender::manifest;

/// Deltas that wait for the owner: some milliseconds of its work, and with objects of 10 KiB 40 MiB of memory.
const DELTAS_MAX: usize = 4096;
/// How often kinds are looked for that the API server did not serve: less than one request a second for all of them.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Where inputs come from.
pub(crate) struct Senders {
    pub(crate) deltas: mpsc::Sender<Delta<Object>>,
    pub(crate) results: mpsc::UnboundedSender<Input>,
}

/// The inputs of the owner.
pub(crate) struct Inputs {
    deltas: mpsc::Receiver<Delta<Object>>,
    results: mpsc::UnboundedReceiver<Input>,
}

pub(crate) fn channels() -> (Senders, Inputs) {
    let ((deltas, delta_inputs), (results, result_inputs)) = (mpsc::channel(DELTAS_MAX), mpsc::unbounded_channel());
    (Senders { deltas, results }, Inputs { deltas: delta_inputs, results: result_inputs })
}

impl Inputs {
    /// The next input, if there is one; results come first, because they free what failed bindings hold.
    pub(crate) fn try_next(&mut self) -> Option<Input> {
        self.results.try_recv().ok().or_else(|| self.deltas.try_recv().ok().map(Input::Delta))
    }

    /// Waits for the next input; none when nobody can send any more.
    pub(crate) async fn next(&mut self) -> Option<Input> {
        tokio::select! {
            biased;
            Some(result) = self.results.recv() => Some(result),
            Some(delta) = self.deltas.recv() => Some(Input::Delta(delta)),
            else => None,
        }
    }
}

/// A kind that the scheduler reads, and how its informer is started.
struct WatchedKind {
    resource: Resource,
    start: fn(&Client, Scope, mpsc::Sender<Delta<Object>>) -> RunningInformer,
}

/// The informers of the scheduler; dropping them stops them.
pub(crate) struct Informers {
    running: Vec<RunningInformer>,
    /// Starts the informers of kinds that are not served yet.
    _look_again: JoinSet<()>,
}

impl Informers {
    /// Waits until the first complete state of every kind has been sent.
    pub(crate) async fn synced(&self) {
        for informer in &self.running {
            informer.synced().await;
        }
    }
}

/// Starts an informer for every kind the scheduler reads. A small API server without some of them is no reason not to
/// place pods; kinds that it does not serve are looked for again. Pods and nodes keep their manifests for extenders.
pub(crate) async fn start_informers(client: &Client, deltas: mpsc::Sender<Delta<Object>>, extended: bool) -> Informers {
    let (mut running, mut missing) = (Vec::new(), Vec::new());
    for kind in watched_kinds(extended) {
        if is_served(client, &kind.resource).await {
            running.push((kind.start)(client, scope(&kind.resource), deltas.clone()));
        } else {
            let resource = &*kind.resource.plural;
            tracing::warn!(resource, "the API server does not serve this resource; going on without it");
            missing.push(kind);
        }
    }
    let mut look_again = JoinSet::new();
    look_again.spawn(start_when_served(client.clone(), deltas, missing));
    Informers { running, _look_again: look_again }
}

/// Starts an informer for every kind the scheduler reads and this user may read. The others are returned, with what the
/// API server said.
pub(crate) async fn start_readable(
    client: &Client,
    deltas: mpsc::Sender<Delta<Object>>,
) -> (Informers, Vec<(String, Status)>) {
    let (mut running, mut unreadable) = (Vec::new(), Vec::new());
    for kind in watched_kinds(false) {
        match client.get(&first_object(&kind.resource), "application/json").await {
            Err(status) if matches!(status.code, 401 | 403 | 404) => {
                unreadable.push((kind.resource.plural.to_string(), status));
            }
            // Any other error is the informer's to retry.
            _ => running.push((kind.start)(client, scope(&kind.resource), deltas.clone())),
        }
    }
    (Informers { running, _look_again: JoinSet::new() }, unreadable)
}

/// Looks for kinds that were not served, and keeps their informers.
async fn start_when_served(client: Client, deltas: mpsc::Sender<Delta<Object>>, mut missing: Vec<WatchedKind>) {
    let mut running = Vec::new();
    while !missing.is_empty() {
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        let mut still_missing = Vec::new();
        for kind in missing {
            if is_served(&client, &kind.resource).await {
                tracing::info!(resource = &*kind.resource.plural, "the API server serves this resource now");
                running.push((kind.start)(&client, scope(&kind.resource), deltas.clone()));
            } else {
                still_missing.push(kind);
            }
        }
        missing = still_missing;
    }
    std::future::pending().await
}

fn watched_kinds(extended: bool) -> Vec<WatchedKind> {
    macro_rules! kinds {
        ($($group:literal $version:literal $plural:literal => $variant:ident $(or $whole:path)?;)*) => {
            vec![$(WatchedKind {
                resource: Resource::new($group, $version, $plural),
                start: match extended {
                    $(true => |client, scope, deltas| start_informer(client, scope, deltas, $whole),)?
                    _ => |client, scope, deltas| start_informer(client, scope, deltas, Object::$variant),
                },
            },)*]
        };
    }
    kinds! {
        "" "v1" "nodes" => Node or manifest::node;
        "" "v1" "namespaces" => Namespace;
        "" "v1" "services" => Service;
        "" "v1" "replicationcontrollers" => ReplicationController;
        "apps" "v1" "replicasets" => ReplicaSet;
        "apps" "v1" "statefulsets" => StatefulSet;
        "policy" "v1" "poddisruptionbudgets" => PodDisruptionBudget;
        "" "v1" "persistentvolumes" => PersistentVolume;
        "" "v1" "persistentvolumeclaims" => PersistentVolumeClaim;
        "storage.k8s.io" "v1" "storageclasses" => StorageClass;
        "storage.k8s.io" "v1" "csinodes" => CsiNode;
        "storage.k8s.io" "v1" "csidrivers" => CsiDriver;
        "storage.k8s.io" "v1" "csistoragecapacities" => CsiStorageCapacity;
        "storage.k8s.io" "v1" "volumeattachments" => VolumeAttachment;
        "resource.k8s.io" "v1" "resourceclaims" => ResourceClaim;
        "resource.k8s.io" "v1" "resourceslices" => ResourceSlice;
        "resource.k8s.io" "v1" "deviceclasses" => DeviceClass;
        "" "v1" "pods" => Pod or manifest::pod;
    }
}

fn scope(resource: &Resource) -> Scope {
    let scope = Scope::all(resource);
    match resource.plural.as_ref() {
        // Terminated pods use no resources.
        "pods" => scope.fields("status.phase!=Succeeded,status.phase!=Failed"),
        _ => scope,
    }
}

/// The path of a list that holds one object at most.
fn first_object(Resource { group, version, plural }: &Resource) -> String {
    match group.is_empty() {
        true => format!("/api/{version}/{plural}?limit=1"),
        false => format!("/apis/{group}/{version}/{plural}?limit=1"),
    }
}

/// False when the server answers 404; any other error is the informer's to retry.
async fn is_served(client: &Client, resource: &Resource) -> bool {
    match client.get(&first_object(resource), "application/json").await {
        Ok(_) => true,
        Err(status) => !status.is(reason::NOT_FOUND),
    }
}

fn start_informer<V>(
    client: &Client,
    scope: Scope,
    deltas: mpsc::Sender<Delta<Object>>,
    wrap: fn(Arc<V>) -> Object,
) -> RunningInformer
where
    V: DeserializeOwned + HasMeta + Send + Sync + 'static,
{
    let mut informer = Informer::<V>::new(client, scope);
    informer.forward(deltas, move |delta| delta.map(wrap));
    informer.spawn()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use bayplan_client::Body;
    use http::Response;
    use http_body_util::Full;
    use serde_json::{Value, json};

    use super::*;

    /// An API server with so many nodes, which serves no DeviceClasses until it is told to.
    #[derive(Clone, Default)]
    struct Server {
        nodes: usize,
        has_classes: Arc<AtomicBool>,
        asked_for_classes: Arc<AtomicUsize>,
    }

    impl Server {
        fn client(&self) -> Client {
            let server = self.clone();
            Client::from_service(tower::service_fn(move |request: http::Request<Body>| {
                let answer = server.answer(request.uri().path(), request.uri().query().unwrap_or_default());
                async move {
                    let Some((code, body)) = answer else { return std::future::pending().await };
                    let body = Full::new(bytes::Bytes::from(body.to_string()));
                    Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
                }
            }))
        }

        /// Lists are answered; watches stay silent, but for a refusal of those that would send a list.
        fn answer(&self, path: &str, query: &str) -> Option<(u16, Value)> {
            if path.ends_with("/deviceclasses") {
                self.asked_for_classes.fetch_add(1, Ordering::Relaxed);
                if !self.has_classes.load(Ordering::Relaxed) {
                    let status = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
                    return Some((404, status));
                }
            }
            if query.contains("sendInitialEvents") {
                let status = json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid"});
                return Some((422, status));
            }
            if query.contains("watch=true") {
                return None;
            }
            let object = |name: String| json!({"metadata": {"name": name, "resourceVersion": "1"}});
            let items: Vec<Value> = match path.rsplit('/').next() {
                Some("nodes") => (0..self.nodes).map(|i| object(format!("n{i}"))).collect(),
                Some("deviceclasses") => vec![object("class".into())],
                _ => Vec::new(),
            };
            Some((200, json!({"metadata": {"resourceVersion": "1"}, "items": items})))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_was_not_served_is_looked_for_again_until_it_is() {
        let (server, (senders, mut inputs)) = (Server::default(), channels());
        let informers = start_informers(&server.client(), senders.deltas, false).await;
        informers.synced().await;
        assert!(inputs.try_next().is_none());
        tokio::time::sleep(3 * LOOK_AGAIN_AFTER + Duration::from_secs(1)).await;
        assert_eq!(server.asked_for_classes.load(Ordering::Relaxed), 4);
        server.has_classes.store(true, Ordering::Relaxed);
        let input = tokio::time::timeout(2 * LOOK_AGAIN_AFTER, inputs.next()).await.unwrap();
        let Some(Input::Delta(Delta::Added(Object::DeviceClass(class)))) = input else { panic!("no DeviceClass") };
        assert_eq!(class.metadata.name, "class");
    }

    #[tokio::test(start_paused = true)]
    async fn informers_wait_for_an_owner_that_is_behind_and_results_always_get_in() {
        let server = Server { nodes: DELTAS_MAX + 10, ..Server::default() };
        let (senders, mut inputs) = channels();
        let informers = start_informers(&server.client(), senders.deltas, false).await;
        let synced = tokio::time::timeout(Duration::from_secs(60), informers.synced()).await;
        assert!(synced.is_err(), "the list of nodes does not fit");
        assert_eq!(inputs.deltas.len(), DELTAS_MAX);
        let result = Input::Preempted { uid: "u".into(), result: Ok(()) };
        senders.results.send(result).unwrap_or_else(|_| panic!("the owner is there"));
        assert!(matches!(inputs.try_next(), Some(Input::Preempted { .. })), "results come first");
        for _ in 0..DELTAS_MAX + 10 {
            assert!(matches!(inputs.next().await, Some(Input::Delta(_))));
        }
        tokio::time::timeout(Duration::from_secs(60), informers.synced()).await.unwrap();
    }
}
