//! Which node's pods use what, kept up to date by watching the store.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bayplan_store::{Entry, ReadError, Revision, Store};
use serde_json::Value;

use super::uses;

/// How long the graph waits before it watches again after the store failed.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The kinds that the graph is made of.
const PREFIXES: [&str; 4] = ["pods", "persistentvolumes", "volumeattachments", "resourceslices"];

/// An object that a kubelet may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Vertex {
    kind: &'static str,
    /// Empty for objects without one.
    namespace: Box<str>,
    name: Box<str>,
}

impl Vertex {
    fn new(kind: &'static str, (namespace, name): (&str, &str)) -> Self {
        Vertex { kind, namespace: namespace.into(), name: name.into() }
    }

    pub(crate) fn pod(name: (&str, &str)) -> Self {
        Vertex::new("pods", name)
    }

    pub(super) fn secret(name: (&str, &str)) -> Self {
        Vertex::new("secrets", name)
    }

    pub(super) fn config_map(name: (&str, &str)) -> Self {
        Vertex::new("configmaps", name)
    }

    pub(super) fn service_account(name: (&str, &str)) -> Self {
        Vertex::new("serviceaccounts", name)
    }

    pub(super) fn claim(name: (&str, &str)) -> Self {
        Vertex::new("persistentvolumeclaims", name)
    }

    pub(super) fn resource_claim(name: (&str, &str)) -> Self {
        Vertex::new("resourceclaims", name)
    }

    pub(super) fn volume(name: &str) -> Self {
        Vertex::new("persistentvolumes", ("", name))
    }

    pub(super) fn attachment(name: &str) -> Self {
        Vertex::new("volumeattachments", ("", name))
    }

    pub(super) fn resource_slice(name: &str) -> Self {
        Vertex::new("resourceslices", ("", name))
    }

    pub(super) fn is_nameless(&self) -> bool {
        self.name.is_empty()
    }
}

/// Which node's pods use what.
#[derive(Default)]
pub(crate) struct NodeGraph(RwLock<Graph>);

#[derive(Default)]
struct Graph {
    /// By the key of a pod, attachment or slice: its node, and what it uses.
    used_by: HashMap<Box<str>, (Box<str>, Vec<Vertex>)>,
    /// How many of a node's pods use an object.
    nodes: HashMap<Vertex, HashMap<Box<str>, usize>>,
    /// By the key of a volume: its claim, and the secrets it is mounted with.
    volumes: HashMap<Box<str>, (Vertex, Vec<Vertex>)>,
    /// The claims whose volumes are mounted with a secret.
    claims_of_secrets: HashMap<Vertex, HashSet<Vertex>>,
}

impl NodeGraph {
    /// True if a pod of the node uses the object, or if it is an attachment or a slice of the node.
    pub(crate) fn is_related(&self, node: &str, object: &Vertex) -> bool {
        let graph = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if object.kind == "persistentvolumes" {
            let key = key("persistentvolumes", &object.name);
            return graph.volumes.get(key.as_str()).is_some_and(|(claim, _)| graph.uses(node, claim));
        }
        graph.uses(node, object)
            || graph
                .claims_of_secrets
                .get(object)
                .is_some_and(|claims| claims.iter().any(|claim| graph.uses(node, claim)))
    }

    /// Reads the store and follows it until the task is dropped.
    pub(crate) async fn follow(self: Arc<Self>, store: Arc<dyn Store>) {
        let follow = |plural| {
            let (graph, store) = (self.clone(), store.clone());
            async move {
                loop {
                    if let Err(error) = graph.follow_kind(plural, &*store).await {
                        tracing::debug!(plural, %error, "the node authorizer watches again");
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        };
        let [a, b, c, d] = PREFIXES.map(follow);
        tokio::join!(a, b, c, d);
    }

    async fn follow_kind(&self, plural: &'static str, store: &dyn Store) -> Result<(), ReadError> {
        let after = self.load(plural, store).await?;
        // `0` follows `/` in ASCII.
        let mut watch = store.watch(&key(plural, ""), &format!("/registry/{plural}0"), after).await?;
        loop {
            for change in watch.next().await? {
                let mut graph = self.0.write().unwrap_or_else(PoisonError::into_inner);
                match &change.current {
                    Some(entry) => graph.put(plural, entry),
                    None => graph.remove(&change.key),
                }
            }
        }
    }

    /// Reads all objects of a kind; answers up to which revision.
    pub(crate) async fn load(&self, plural: &'static str, store: &dyn Store) -> Result<Revision, ReadError> {
        let start = key(plural, "");
        let range = store.range(&start, &format!("/registry/{plural}0"), None, 0).await?;
        let mut graph = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known: HashSet<&str> = range.entries.iter().map(|entry| &*entry.key).collect();
        let keys = graph.used_by.keys().chain(graph.volumes.keys());
        let gone: Vec<Box<str>> =
            keys.filter(|key| key.starts_with(&start) && !known.contains(&***key)).cloned().collect();
        gone.iter().for_each(|key| graph.remove(key));
        range.entries.iter().for_each(|entry| graph.put(plural, entry));
        Ok(range.revision)
    }

    /// Reads all that the graph is made of; to be called before the first request.
    pub(crate) async fn load_all(&self, store: &dyn Store) -> Result<(), ReadError> {
        for plural in PREFIXES {
            self.load(plural, store).await?;
        }
        Ok(())
    }
}

impl Graph {
    fn uses(&self, node: &str, object: &Vertex) -> bool {
        self.nodes.get(object).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn put(&mut self, plural: &str, entry: &Entry) {
        match serde_json::from_slice::<Value>(&entry.value) {
            Ok(object) => self.put_object(plural, &entry.key, &object),
            Err(error) => {
                // What cannot be read gives no rights, nor does its older version.
                tracing::warn!(key = &*entry.key, %error, "the node authorizer cannot read an object");
                self.remove(&entry.key);
            }
        }
    }

    fn put_object(&mut self, plural: &str, key: &str, object: &Value) {
        self.remove(key);
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if plural == "persistentvolumes" {
            let Some((claim, secrets)) = uses::of_volume(object) else { return };
            for secret in &secrets {
                self.claims_of_secrets.entry(secret.clone()).or_default().insert(claim.clone());
            }
            self.volumes.insert(key.into(), (claim, secrets));
            return;
        }
        let node = text("/spec/nodeName");
        if node.is_empty() {
            return;
        }
        let name = text("/metadata/name");
        let used = match plural {
            "pods" => uses::of_pod(object),
            "volumeattachments" => vec![Vertex::attachment(name)],
            _ => vec![Vertex::resource_slice(name)],
        };
        for object in &used {
            *self.nodes.entry(object.clone()).or_default().entry(node.into()).or_default() += 1;
        }
        self.used_by.insert(key.into(), (node.into(), used));
    }

    fn remove(&mut self, key: &str) {
        if let Some((node, used)) = self.used_by.remove(key) {
            for object in used {
                let Some(nodes) = self.nodes.get_mut(&object) else { continue };
                if let Some(count) = nodes.get_mut(&node) {
                    *count -= 1;
                    if *count == 0 {
                        nodes.remove(&node);
                    }
                }
                if nodes.is_empty() {
                    self.nodes.remove(&object);
                }
            }
        }
        let Some((claim, secrets)) = self.volumes.remove(key) else { return };
        for secret in secrets {
            // Two volumes of one claim cannot be: a claim has one volume.
            if let Some(claims) = self.claims_of_secrets.get_mut(&secret) {
                claims.remove(&claim);
                if claims.is_empty() {
                    self.claims_of_secrets.remove(&secret);
                }
            }
        }
    }
}

fn key(plural: &str, name: &str) -> String {
    format!("/registry/{plural}/{name}")
}

#[cfg(test)]
impl NodeGraph {
    /// A graph of these objects, by plural.
    pub(super) fn of(objects: &[(&'static str, Value)]) -> Self {
        let graph = NodeGraph::default();
        for (plural, object) in objects {
            graph.put(plural, object);
        }
        graph
    }

    pub(super) fn put(&self, plural: &'static str, object: &Value) {
        self.0.write().unwrap().put_object(plural, &Self::key_of(plural, object), object);
    }

    pub(super) fn remove(&self, plural: &'static str, object: &Value) {
        self.0.write().unwrap().remove(&Self::key_of(plural, object));
    }

    fn key_of(plural: &str, object: &Value) -> String {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        match text("namespace") {
            "" => key(plural, text("name")),
            namespace => key(plural, &format!("{namespace}/{}", text("name"))),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let graph = self.0.read().unwrap();
        graph.used_by.is_empty() && graph.nodes.is_empty()
    }
}
