//! Removals that take two writes, with somebody else between them, and updates whose answer is lost.

use std::sync::{Arc, Mutex};

use bayplan_model::status::Status;
use bayplan_store::{Entry, LogStore, Range, ReadError, Revision, Store, Watch, WriteError};
use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::decode::Sent;
use super::{Answer, Body, Call, Registry, ServiceRange, UpdatedObject};
use crate::admission::AdmissionPlugins;
use crate::authz::Authorizer;
use crate::encode::Encoded;
use crate::request::{DeleteOptions, ListOptions, Preconditions};
use crate::subresources;
use crate::user::User;
use crate::warnings::Warnings;

/// What somebody else does right before our removal of a key, or what happens to our update of it.
#[derive(Clone)]
enum Interference {
    /// The update is carried out, and nobody says so.
    LosesAnswer,
    Removes,
    /// Removes it and makes another object of the same name.
    Replaces(Bytes),
    /// Writes something else, as a node that reports.
    Writes(Bytes),
}

/// A store with somebody else in it, once.
struct Contested {
    store: LogStore,
    next: Mutex<Option<Interference>>,
}

impl Contested {
    async fn interfere(&self, key: &str) {
        let Some(interference) = self.next.lock().unwrap().take() else { return };
        let entry = self.store.get(key).await.unwrap().unwrap();
        match interference {
            Interference::LosesAnswer => {}
            Interference::Writes(value) => {
                self.store.update(key, value, entry.mod_revision).await.unwrap();
            }
            Interference::Removes => {
                self.store.delete(key, entry.mod_revision).await.unwrap();
            }
            Interference::Replaces(value) => {
                self.store.delete(key, entry.mod_revision).await.unwrap();
                self.store.create(key, value).await.unwrap();
            }
        }
    }
}

impl Store for Contested {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        self.store.revision()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, ReadError>> {
        self.store.get(key)
    }

    fn range<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Range, ReadError>> {
        self.store.range(start, end, at, limit)
    }

    fn create<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Revision, WriteError>> {
        self.store.create(key, value)
    }

    fn update<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        expected: Revision,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(async move {
            let loses_answer = matches!(*self.next.lock().unwrap(), Some(Interference::LosesAnswer));
            let written = self.store.update(key, value, expected).await;
            if loses_answer { Err(WriteError::InDoubt("the connection was cut".into())) } else { written }
        })
    }

    fn delete<'a>(&'a self, key: &'a str, expected: Revision) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(async move {
            self.interfere(key).await;
            self.store.delete(key, expected).await
        })
    }

    fn watch<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<Box<dyn Watch>, ReadError>> {
        self.store.watch(start, end, after)
    }

    fn compact(&self, oldest: Revision) -> BoxFuture<'_, Result<(), ReadError>> {
        self.store.compact(oldest)
    }
}

struct Scene {
    registry: Registry,
    store: Arc<Contested>,
    user: User,
    warnings: Warnings,
}

fn running(uid: &str, finalizers: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "ns", "uid": uid, "creationTimestamp": "2026-05-28T12:00:00Z",
            "finalizers": finalizers,
        },
        "spec": {
            "nodeName": "n", "terminationGracePeriodSeconds": 30, "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "containers": [{
                "name": "c", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always",
                "resources": {},
            }],
        },
        "status": {"phase": "Running"},
    })
}

impl Scene {
    /// A running pod, with somebody who interferes.
    async fn new(pod: &Value, interference: Interference) -> Scene {
        let store = Arc::new(Contested { store: LogStore::in_memory().unwrap(), next: Mutex::new(Some(interference)) });
        let clock: super::Clock = Arc::new(|| "2026-05-28T12:00:00Z".parse::<Timestamp>().unwrap());
        let registry = Registry::new(
            store.clone(),
            clock,
            AdmissionPlugins::default(),
            ServiceRange::default(),
            Authorizer::default(),
        );
        let scene =
            Scene { registry, store, user: User::new("admin", ["system:masters"]), warnings: Warnings::default() };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
        let namespace = Encoded::new(bayplan_kinds::find("", "v1", "namespaces").unwrap(), &namespace);
        scene.store.create("/registry/namespaces/ns", namespace.bytes().clone()).await.unwrap();
        scene.store.create("/registry/pods/ns/p", encoded(pod)).await.unwrap();
        scene
    }

    fn call(&self) -> Call<'_> {
        let resource = bayplan_kinds::find("", "v1", "pods").unwrap();
        Call {
            resource,
            subresource: "",
            namespace: "ns",
            name: "p",
            user: &self.user,
            dry_run: false,
            shares_labels: false,
            manager: "test",
            warnings: &self.warnings,
        }
    }

    async fn left(&self) -> Option<Value> {
        let entry = self.store.get("/registry/pods/ns/p").await.unwrap()?;
        Some(self.registry.decoded(self.call().resource, &entry).unwrap())
    }
}

fn encoded(pod: &Value) -> Bytes {
    Encoded::new(bayplan_kinds::find("", "v1", "pods").unwrap(), pod).bytes().clone()
}

fn without_grace() -> DeleteOptions {
    DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() }
}

/// The code of an answer, and the uid of the object in it.
fn answered(answer: Result<Answer, Status>) -> (u16, String) {
    match answer {
        Err(status) => (status.code, status.message),
        Ok(Answer { code, body: Body::Object(_, object), .. }) => {
            let object = object.encoded.decode(object.revision).unwrap();
            (code, object["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
        }
        Ok(Answer { code, .. }) => (code, String::new()),
    }
}

#[tokio::test]
async fn a_removal_succeeds_although_the_node_removes_the_marked_pod_first() {
    let pod = running("one", &Value::Null);
    let mut reported = pod.clone();
    reported["status"]["phase"] = json!("Failed");
    reported["metadata"]["deletionTimestamp"] = json!("2026-05-28T12:00:00Z");
    reported["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    for (interference, left) in [
        (Interference::Removes, None),
        (Interference::Writes(encoded(&reported)), None),
        (Interference::Replaces(encoded(&running("two", &Value::Null))), Some("two")),
    ] {
        let scene = Scene::new(&pod, interference).await;
        let answer = scene.registry.delete(scene.call(), &without_grace()).await;
        assert_eq!(answered(answer), (200, "one".to_owned()));
        let found = scene.left().await;
        assert_eq!(found.as_ref().map(|pod| pod["metadata"]["uid"].as_str().unwrap()), left);
    }
}

#[tokio::test]
async fn a_collection_is_deleted_and_a_pod_evicted_although_the_node_is_faster() {
    let pod = running("one", &Value::Null);
    let scene = Scene::new(&pod, Interference::Removes).await;
    let call = Call { name: "", ..scene.call() };
    let answer = scene.registry.delete_collection(call, &ListOptions::default(), &without_grace()).await;
    assert_eq!(answered(answer), (200, String::new()));

    let scene = Scene::new(&pod, Interference::Removes).await;
    let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 0}});
    let answer = subresources::evict(&scene.registry, scene.call(), &eviction).await;
    assert_eq!(answered(answer), (201, String::new()));
    assert_eq!(scene.left().await, None);
}

#[tokio::test]
async fn whoever_takes_away_the_last_finalizer_second_succeeds_too() {
    let mut pod = running("one", &json!(["example.com/held"]));
    pod["metadata"]["deletionTimestamp"] = json!("2026-05-28T12:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    let scene = Scene::new(&pod, Interference::Removes).await;
    let mut free = |pod: &Value| {
        let mut pod = pod.clone();
        pod["metadata"]["finalizers"] = Value::Null;
        Ok(Sent::plain(pod))
    };
    let answer = scene.registry.update(scene.call(), UpdatedObject::Compute(&mut free), Preconditions::default()).await;
    assert_eq!(answered(answer), (200, "one".to_owned()));
    assert_eq!(scene.left().await, None);
}

#[tokio::test]
async fn an_object_that_somebody_else_deleted_was_not_there() {
    let mut pod = running("one", &Value::Null);
    pod["metadata"]["deletionTimestamp"] = json!("2026-05-28T12:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    // Marked by somebody else already: this removal is one write.
    let scene = Scene::new(&pod, Interference::Removes).await;
    let answer = scene.registry.delete(scene.call(), &without_grace()).await;
    assert_eq!(answered(answer), (404, "pods \"p\" not found".to_owned()));
}

#[tokio::test]
async fn a_write_in_doubt_is_neither_made_twice_nor_called_a_conflict() {
    let scene = Scene::new(&running("one", &Value::Null), Interference::LosesAnswer).await;
    let mut marked = |pod: &Value| {
        let mut pod = pod.clone();
        let marks = pod["metadata"]["annotations"]["marks"].as_str().unwrap_or_default().to_owned();
        pod["metadata"]["annotations"] = json!({"marks": marks + "x"});
        Ok(Sent::plain(pod))
    };
    let patched = UpdatedObject::Compute(&mut marked);
    let answer = scene.registry.update(scene.call(), patched, Preconditions::default()).await;
    assert_eq!(answered(answer).0, 504);
    assert_eq!(scene.left().await.unwrap()["metadata"]["annotations"], json!({"marks": "x"}));

    let mut replaced = scene.left().await.unwrap();
    replaced["metadata"]["annotations"]["marks"] = json!("y");
    let replaced = UpdatedObject::Replace(Sent::plain(replaced));
    let answer = scene.registry.update(scene.call(), replaced, Preconditions::default()).await;
    assert_eq!(answered(answer).0, 504);
    assert_eq!(scene.left().await.unwrap()["metadata"]["annotations"], json!({"marks": "y"}));
}
