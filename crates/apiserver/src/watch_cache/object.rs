//! One cached object, with what selectors read already parsed.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bayplan_kinds::Kind;
use bayplan_model::status::Status;
use bayplan_store::{Entry, Revision};
use serde_json::Value;

use crate::encode::Encoded;

/// A stored object with its labels and selectable fields parsed; upstream's `storeElement`.
#[derive(Debug)]
pub(crate) struct CachedObject {
    pub(crate) encoded: Encoded,
    /// The revision of the write: the object's resource version.
    pub(crate) revision: Revision,
    pub(crate) labels: BTreeMap<String, String>,
    /// Empty for cluster-scoped objects.
    namespace: String,
    name: String,
    /// The selectable fields beyond name and namespace.
    fields: Vec<(&'static str, String)>,
    decoded: OnceLock<Arc<Value>>,
}

impl CachedObject {
    /// Parses a stored object.
    pub(crate) fn new(resource: &'static Kind, entry: &Entry) -> Result<CachedObject, Status> {
        let encoded = Encoded::from_store(resource, entry.value.clone())?;
        let selectable = resource.selectable_fields();
        let (metadata, fields) = if selectable.is_empty() {
            (encoded.decode_metadata()?, Vec::new())
        } else {
            let mut object = encoded.decode_shallow()?;
            let fields = selectable
                .iter()
                .map(|field| (*field, resource.field_value(&object, field).unwrap_or_default()))
                .collect();
            (object["metadata"].take(), fields)
        };
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        Ok(CachedObject {
            revision: entry.mod_revision,
            namespace: text("namespace"),
            name: text("name"),
            labels: labels_of(&metadata),
            fields,
            encoded,
            decoded: OnceLock::new(),
        })
    }

    /// The same object in the bytes of another API version.
    pub(crate) fn with_encoded(&self, encoded: Encoded) -> CachedObject {
        CachedObject {
            encoded,
            revision: self.revision,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            decoded: OnceLock::new(),
        }
    }

    /// The object as JSON with its resource version; decoded at most once.
    pub(crate) fn decoded(&self) -> Result<Arc<Value>, Status> {
        if let Some(value) = self.decoded.get() {
            return Ok(value.clone());
        }
        let value = Arc::new(self.encoded.decode(Some(self.revision))?);
        Ok(self.decoded.get_or_init(|| value).clone())
    }

    /// The value of a field for selectors; `None` if the kind cannot be selected by it.
    pub(crate) fn field(&self, field: &str) -> Option<&str> {
        match field {
            "metadata.name" => Some(&self.name),
            "metadata.namespace" => Some(&self.namespace),
            _ => self.fields.iter().find(|(name, _)| *name == field).map(|(_, value)| value.as_str()),
        }
    }
}

/// The labels in an object's metadata.
pub(crate) fn labels_of(metadata: &Value) -> BTreeMap<String, String> {
    metadata["labels"]
        .as_object()
        .map(|labels| labels.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect())
        .unwrap_or_default()
}
