//! A document as it is read: one object, or a list whose objects are handed on one by one.
//!
//! ```text
//!   {"kind":"PodList","items":[{…},{…}]} ─▶ object, object, listed(PodList)
//!   {"pods":[{…}],"nodes":[{…}]} ─────────▶ objects with the kinds that the keys imply
//! ```

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::limits::KEPT_BYTES_MAX;

/// Whoever takes what documents hold.
pub(crate) trait Sink {
    /// An object, as JSON with `apiVersion` and `kind` if the document says them.
    fn object(&mut self, json: Box<RawValue>);
    /// A list of one kind was there, perhaps an empty one.
    fn listed(&mut self, api_version: &str, kind: &str);
    /// Whether objects of this kind are of no interest, so that they need not be kept until the end of their list.
    fn ignores(&self, api_version: &str, kind: &str) -> bool;
    /// Something in a document that is not read.
    fn note(&mut self, line: String);
}

/// The keys of kube-scheduler-simulator's export, and of the objects in KAI's snapshot, with the kinds they imply.
const EXPORTED: &[(&str, &str, &str)] = &[
    ("pods", "v1", "Pod"),
    ("nodes", "v1", "Node"),
    ("pvs", "v1", "PersistentVolume"),
    ("persistentVolumes", "v1", "PersistentVolume"),
    ("pvcs", "v1", "PersistentVolumeClaim"),
    ("persistentVolumeClaims", "v1", "PersistentVolumeClaim"),
    ("storageClasses", "storage.k8s.io/v1", "StorageClass"),
    ("csiStorageCapacities", "storage.k8s.io/v1", "CSIStorageCapacity"),
    ("csiDrivers", "storage.k8s.io/v1", "CSIDriver"),
    ("priorityClasses", "scheduling.k8s.io/v1", "PriorityClass"),
    ("namespaces", "v1", "Namespace"),
    ("resourceClaims", "resource.k8s.io/v1", "ResourceClaim"),
    ("resourceSlices", "resource.k8s.io/v1", "ResourceSlice"),
    ("deviceClasses", "resource.k8s.io/v1", "DeviceClass"),
];

/// The key under which an export brings the configuration of its scheduler.
const EXPORTED_CONFIGURATION: &str = "schedulerConfig";

/// Whether the elements of the list under this key may be objects.
pub(crate) fn holds_objects(key: &str) -> bool {
    key == "items" || exported(key).is_some()
}

fn exported(key: &str) -> Option<(&'static str, &'static str)> {
    EXPORTED.iter().find(|(exported, ..)| *exported == key).map(|(_, api_version, kind)| (*api_version, *kind))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypeMeta {
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    kind: Option<String>,
}

/// What is known of a document so far.
#[derive(Default)]
pub(crate) struct Document {
    api_version: Option<String>,
    kind: Option<String>,
    /// The fields that are no lists of objects.
    fields: Vec<(String, Box<RawValue>)>,
    /// The keys whose lists were read.
    lists: Vec<String>,
    /// Objects that do not say their kind, until the document has said its own.
    waiting: Vec<(&'static str, Box<RawValue>)>,
    waiting_bytes: usize,
}

impl Document {
    /// Takes a field that is no list of objects.
    pub(crate) fn field(&mut self, key: String, value: Box<RawValue>) {
        let text = || serde_json::from_str::<String>(value.get()).ok();
        match key.as_str() {
            "apiVersion" => self.api_version = text(),
            "kind" => self.kind = text(),
            _ => {}
        }
        self.fields.push((key, value));
    }

    /// Says that the list under a key begins.
    pub(crate) fn list(&mut self, key: &str) {
        self.lists.push(key.to_owned());
    }

    /// Takes an element of the list under a key.
    pub(crate) fn element(&mut self, key: &str, json: Box<RawValue>, sink: &mut dyn Sink) {
        let own: TypeMeta = serde_json::from_str(json.get()).unwrap_or_default();
        if own.api_version.is_some() && own.kind.is_some() {
            return sink.object(json);
        }
        let key = EXPORTED.iter().map(|(known, ..)| *known).find(|known| *known == key).unwrap_or("items");
        match (key, self.item_kind()) {
            ("items", Some((api_version, kind))) => {
                if !sink.ignores(&api_version, &kind)
                    && let Some(json) = typed(&json, &api_version, &kind)
                {
                    sink.object(json);
                }
            }
            _ => {
                self.waiting_bytes += json.get().len();
                if self.waiting_bytes <= KEPT_BYTES_MAX {
                    self.waiting.push((key, json));
                }
            }
        }
    }

    /// The kind of the items, once the document has said that it is a typed list.
    fn item_kind(&self) -> Option<(String, String)> {
        let kind = self.kind.as_deref()?.strip_suffix("List").filter(|kind| !kind.is_empty())?;
        Some((self.api_version.clone()?, kind.to_owned()))
    }

    /// Hands on what is left at the end of the document, or where it was cut.
    pub(crate) fn finish(self, complete: bool, sink: &mut dyn Sink) {
        let is_list = self.kind.as_deref().is_some_and(|kind| kind.ends_with("List"));
        let item_kind = self.item_kind();
        let typed_by_key = self.api_version.is_none() && self.kind.is_none();
        if let (true, Some((api_version, kind))) = (complete, &item_kind) {
            sink.listed(api_version, kind);
        }
        if self.waiting_bytes > KEPT_BYTES_MAX {
            sink.note(format!(
                "a list names its kind after more than {} GiB: not all of it is read",
                KEPT_BYTES_MAX >> 30
            ));
        }
        for (key, json) in self.waiting {
            let kind = match (exported(key).filter(|_| typed_by_key), &item_kind) {
                (Some((_, kind)), _) if is_beta_device(kind, &json) => Some((BETA_DEVICES.to_owned(), kind.to_owned())),
                (Some((api_version, kind)), _) => Some((api_version.to_owned(), kind.to_owned())),
                (None, kind) => kind.clone(),
            };
            let json = kind.and_then(|(api_version, kind)| typed(&json, &api_version, &kind)).unwrap_or(json);
            sink.object(json);
        }
        if typed_by_key && !self.lists.is_empty() {
            let kinds = self.lists.iter().filter_map(|key| exported(key));
            kinds.for_each(|(api_version, kind)| sink.listed(api_version, kind));
            if self.fields.iter().any(|(key, _)| key == EXPORTED_CONFIGURATION) {
                sink.note(format!("the {EXPORTED_CONFIGURATION} in it is not used: give one with --config"));
            }
        } else if complete
            && !is_list
            && let Some(json) = assembled(&self.fields)
        {
            sink.object(json);
        }
    }
}

/// The version of device kinds whose fields differ from those that are read.
const BETA_DEVICES: &str = "resource.k8s.io/v1beta1";

/// Whether an object of an export is one of [`BETA_DEVICES`], which KAI's snapshots held before they held v1: its
/// requests and devices have their fields one level higher or lower.
fn is_beta_device(kind: &str, json: &RawValue) -> bool {
    let pointer = match kind {
        "ResourceClaim" => "/spec/devices/requests/0/deviceClassName",
        "ResourceSlice" => "/spec/devices/0/basic",
        _ => return false,
    };
    serde_json::from_str::<Value>(json.get()).is_ok_and(|object| object.pointer(pointer).is_some())
}

/// The object with its `apiVersion` and `kind` in front. A list of one kind leaves them out.
pub(crate) fn typed(json: &RawValue, api_version: &str, kind: &str) -> Option<Box<RawValue>> {
    let own: TypeMeta = serde_json::from_str(json.get()).ok()?;
    if own.api_version.is_some() || own.kind.is_some() {
        let mut object: Value = serde_json::from_str(json.get()).ok()?;
        object["apiVersion"] = own.api_version.as_deref().unwrap_or(api_version).into();
        object["kind"] = own.kind.as_deref().unwrap_or(kind).into();
        return serde_json::value::to_raw_value(&object).ok();
    }
    let rest = json.get().trim_start().strip_prefix('{')?;
    let (api_version, kind) = (serde_json::to_string(api_version).ok()?, serde_json::to_string(kind).ok()?);
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    RawValue::from_string(format!("{{\"apiVersion\":{api_version},\"kind\":{kind}{comma}{rest}")).ok()
}

/// A document that is an object of its own.
fn assembled(fields: &[(String, Box<RawValue>)]) -> Option<Box<RawValue>> {
    let mut text = String::from("{");
    for (at, (key, value)) in fields.iter().enumerate() {
        text.push_str(if at > 0 { "," } else { "" });
        text.push_str(&serde_json::to_string(key).ok()?);
        text.push(':');
        text.push_str(value.get());
    }
    text.push('}');
    RawValue::from_string(text).ok()
}
