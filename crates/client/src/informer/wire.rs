//! The envelopes of list and watch answers, borrowed from the bytes; the objects inside stay raw until decoded once.

use std::borrow::Cow;

use bayplan_model::meta::Map;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One line of a watch.
#[derive(Deserialize)]
pub(crate) struct Line<'a> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) object: &'a RawValue,
}

/// One page of a list.
#[derive(Deserialize)]
pub(crate) struct Page<'a> {
    #[serde(default)]
    pub(crate) metadata: ListMeta,
    #[serde(borrow, default)]
    pub(crate) items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMeta {
    pub(crate) resource_version: String,
    #[serde(rename = "continue")]
    pub(crate) continue_token: String,
}

/// As much of any object as is needed to know which one it is: for bookmarks, and for objects whose view fails to
/// decode.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Identity {
    pub(crate) metadata: IdentityMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IdentityMeta {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) resource_version: String,
    pub(crate) annotations: Option<Map>,
}

impl Identity {
    pub(crate) fn key(&self) -> String {
        match &self.metadata {
            m if m.namespace.is_empty() => m.name.clone(),
            m => format!("{}/{}", m.namespace, m.name),
        }
    }

    /// True for the bookmark that ends the initial events of a streamed list.
    pub(crate) fn ends_initial_events(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.and_then(|a| a.get("k8s.io/initial-events-end")).is_some_and(|value| value == "true")
    }
}
