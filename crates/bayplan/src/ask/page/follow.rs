//! Keeps the page's cluster up to date: one informer for each resource that decisions read, all into one view.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use bayplan_client::informer::RunningInformer;
use bayplan_client::{Client, Informer, Scope};
use bayplan_explain::{Profiles, State};
use bayplan_model::api;
use bayplan_model::delta::Delta;
use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_page::{Change, ClusterView};
use bayplan_sources::{ClusterObjects, Origin, OriginKind, RESOURCES, Resource};
use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use super::address;

/// Changes that wait for the view: while it answers a question, the watches slow down instead of filling memory.
const CHANGES_MAX: usize = 4096;

/// Without these there is nothing to show.
const INDISPENSABLE: [&str; 2] = ["nodes", "pods"];

/// What reaches the task that owns the writing side of the view.
enum Message {
    Change(Change),
    /// Everything before it has been applied.
    Applied(oneshot::Sender<()>),
}

/// The informers; dropping them stops them.
pub(crate) struct Following {
    informers: Vec<RunningInformer>,
    messages: mpsc::Sender<Message>,
}

impl Following {
    /// Waits until the first complete state is shown.
    pub(crate) async fn synced(&self) {
        for informer in &self.informers {
            informer.synced().await;
        }
        let (applied, wait) = oneshot::channel();
        if self.messages.send(Message::Applied(applied)).await.is_ok() {
            let _ = wait.await;
        }
    }
}

/// Starts to follow a cluster, whose decisions are in a log or told by its objects. What may not be read, or is not
/// served, is left out and said on the page.
pub(crate) async fn follow(
    client: &Client,
    profiles: Profiles,
    name: &str,
    log: Option<&str>,
) -> Result<(Arc<ClusterView>, Following)> {
    let (messages, received) = mpsc::channel(CHANGES_MAX);
    let (mut listed, mut notes, mut informers) = (BTreeSet::new(), Vec::new(), Vec::new());
    for resource in RESOURCES {
        match refusal(client, resource).await {
            None => {
                listed.insert(resource.name);
                informers.push(start(client, resource, messages.clone()));
            }
            Some(why) if INDISPENSABLE.contains(&resource.name) => {
                bail!("{} of {} cannot be read: {why}", resource.name, client.host())
            }
            Some(why) => notes.push(format!("{} cannot be read: {why}", resource.name)),
        }
    }
    let origin = Origin { kind: OriginKind::Live, ..Origin::default() };
    let state = State::new(ClusterObjects { origin, listed, notes, ..ClusterObjects::default() });
    let mut view = ClusterView::new(state, profiles, name, true, &address::random());
    if let Some(log) = log {
        view = view.with_log(log);
    }
    let view = Arc::new(view);
    let shown = Arc::clone(&view);
    // A thread of its own: a change waits while a question is answered, which may take seconds.
    std::thread::Builder::new().name("page-changes".into()).spawn(move || apply_all(received, &shown))?;
    Ok((view, Following { informers, messages }))
}

/// Applies changes as they come, those that wait together at once.
fn apply_all(mut messages: mpsc::Receiver<Message>, view: &ClusterView) {
    while let Some(first) = messages.blocking_recv() {
        let (mut changes, mut applied) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Change(change) => changes.push(change),
                Message::Applied(sender) => applied.push(sender),
            }
            next = if changes.len() < CHANGES_MAX { messages.try_recv().ok() } else { None };
        }
        for note in view.apply(changes, Timestamp::now()) {
            tracing::warn!("the page leaves an object out: {note}");
        }
        for sender in applied {
            view.settle();
            let _ = sender.send(());
        }
    }
}

/// Why a resource cannot be listed; none when it can, or when only time will tell.
async fn refusal(client: &Client, resource: &Resource) -> Option<String> {
    let plural = resource.name.split('.').next().unwrap_or(resource.name);
    let group = if resource.api_version.contains('/') { "apis" } else { "api" };
    let path = format!("/{group}/{}/{plural}?limit=1", resource.api_version);
    let status = client.get(&path, "application/json").await.err()?;
    matches!(status.code, 401 | 403 | 404).then_some(status.message)
}

fn start(client: &Client, resource: &'static Resource, messages: mpsc::Sender<Message>) -> RunningInformer {
    let plural = resource.name.split('.').next().unwrap_or(resource.name);
    let (group, version) = resource.api_version.rsplit_once('/').unwrap_or(("", resource.api_version));
    let mut scope = Scope::all(&api::Resource::new(group, version, plural));
    if resource.kind == "Pod" {
        // Pods that ended use no resources.
        scope = scope.fields("status.phase!=Succeeded,status.phase!=Failed");
    }
    let mut informer = Informer::<Whole>::new(client, scope);
    informer.forward(messages, move |delta| Message::Change(change(resource, &delta)));
    informer.spawn()
}

fn change(resource: &'static Resource, delta: &Delta<Arc<Whole>>) -> Change {
    let object = delta.object();
    let json = delta.current().and_then(|object| object.json.lock().unwrap_or_else(PoisonError::into_inner).take());
    match json {
        Some(mut json) => {
            // Objects of a list do not say what they are.
            json.insert("apiVersion".into(), resource.api_version.into());
            json.insert("kind".into(), resource.kind.into());
            Change::Written(resource, Value::Object(json))
        }
        None => Change::Gone { resource, namespace: object.meta.namespace.clone(), name: object.meta.name.clone() },
    }
}

/// An object as it was sent. Whoever takes its JSON is the only one: the informer itself needs no more than its name.
#[derive(Debug)]
struct Whole {
    meta: ObjectMeta,
    json: Mutex<Option<Map<String, Value>>>,
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut json = Map::deserialize(deserializer)?;
        let metadata = json.get_mut("metadata");
        if let Some(Value::Object(metadata)) = metadata {
            // Half of an object is who wrote which field.
            metadata.remove("managedFields");
        }
        let meta = json.get("metadata").cloned().unwrap_or_default();
        let meta = ObjectMeta::deserialize(meta).map_err(D::Error::custom)?;
        Ok(Whole { meta, json: Mutex::new(Some(json)) })
    }
}

impl HasMeta for Whole {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}
