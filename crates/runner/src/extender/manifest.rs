//! Views that keep the JSON of the whole object beside them: extenders receive whole pods and nodes.

use std::sync::Arc;

use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_scheduler::Object;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A view that can keep its manifest.
pub(crate) trait KeepManifest {
    /// Removes what upstream does not keep either.
    fn trim(object: &mut Map<String, Value>);
    /// Keeps the object's JSON.
    fn keep(&mut self, manifest: Arc<str>);
}

impl KeepManifest for Pod {
    fn trim(object: &mut Map<String, Value>) {
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
    }

    fn keep(&mut self, manifest: Arc<str>) {
        self.manifest = Some(manifest);
    }
}

impl KeepManifest for Node {
    fn trim(_object: &mut Map<String, Value>) {}

    fn keep(&mut self, manifest: Arc<str>) {
        self.manifest = Some(manifest);
    }
}

/// A view decoded together with its manifest.
#[derive(Debug)]
pub(crate) struct WithManifest<V>(pub(crate) Arc<V>);

impl<'de, V: KeepManifest + DeserializeOwned> Deserialize<'de> for WithManifest<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Map::deserialize(deserializer)?;
        // As upstream's typed objects, which do not carry their type.
        object.remove("apiVersion");
        object.remove("kind");
        V::trim(&mut object);
        let object = Value::Object(object);
        let manifest = object.to_string().into();
        let mut view: V = serde_json::from_value(object).map_err(D::Error::custom)?;
        view.keep(manifest);
        Ok(WithManifest(Arc::new(view)))
    }
}

impl<V: HasMeta> HasMeta for WithManifest<V> {
    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }
}

/// A pod for the scheduler.
pub(crate) fn pod(whole: Arc<WithManifest<Pod>>) -> Object {
    Object::Pod(Arc::clone(&whole.0))
}

/// A node for the scheduler.
pub(crate) fn node(whole: Arc<WithManifest<Node>>) -> Object {
    Object::Node(Arc::clone(&whole.0))
}
