//! A Service as the loops of its endpoints read it, and what these loops share.
//!
//! ```text
//!   Service ─▶ Selecting (which Services select a pod) ─▶ keys to reconcile
//!   pods ────▶ TriggerTimes ─▶ annotation on what is written
//! ```

mod address;
mod go_order;
mod selecting;
#[cfg(test)]
mod tests;
mod trigger_times;

use bayplan_model::api::ObjectReference;
use bayplan_model::int_or_string::IntOrString;
use bayplan_model::meta::{HasMeta, Map, ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize};

use crate::pod::Pod;
use crate::workload::event_reference;
pub use address::Family;
pub(crate) use address::parse_ip;
pub(crate) use go_order::{Dump, fnv_128a};
pub(crate) use selecting::Selecting;
pub(crate) use trigger_times::{TRIGGER_TIME, TriggerTimes, annotate};

/// The label of what belongs to a Service without an address.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";

/// The annotation of Endpoints by which older leader elections work.
pub(crate) const LEADER_ELECTION: &str = "control-plane.alpha.kubernetes.io/leader";

/// How often a Service is tried again before it waits for its next change; upstream's `maxRetries`.
pub(crate) const RETRIES_MAX: u32 = 15;

/// A `v1` Service, as far as its endpoints depend on it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: ServiceSpec,
}

/// `Service.spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ExternalName` for a name elsewhere.
    #[serde(rename = "type")]
    pub service_type: String,
    /// Its address, `None` for no address, or empty.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    /// The families of its addresses, the main one first.
    #[serde(deserialize_with = "null_is_default")]
    pub ip_families: Vec<Family>,
    /// The labels of its pods. Without any, somebody else looks after its endpoints.
    #[serde(deserialize_with = "null_is_default")]
    pub selector: Map,
    /// Its ports.
    #[serde(deserialize_with = "null_is_default")]
    pub ports: Vec<ServicePort>,
    /// Whether pods that are not ready are published as if they were.
    pub publish_not_ready_addresses: bool,
    /// Where clients prefer their endpoints.
    pub traffic_distribution: Option<String>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Its name, empty if it is the only one.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// What is spoken on it.
    pub app_protocol: Option<String>,
    /// The port of the pods, by number or name; none is number 0, as in Go.
    pub target_port: Option<IntOrString>,
}

/// What an endpoint stands for: `v1` ObjectReference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRef {
    /// Its kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Group and version of its kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The version that was meant.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The part of it that was meant.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

impl TargetRef {
    /// A pod.
    pub(crate) fn pod(pod: &Pod) -> Self {
        TargetRef {
            kind: "Pod".into(),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..TargetRef::default()
        }
    }

    /// Whether both name the same object, at whatever version.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let TargetRef { kind, namespace, name, uid, api_version, resource_version: _, field_path } = self;
        (kind, namespace, name) == (&other.kind, &other.namespace, &other.name)
            && (uid, api_version, field_path) == (&other.uid, &other.api_version, &other.field_path)
    }
}

impl Service {
    /// Whether these loops look after its endpoints.
    pub(crate) fn selects(&self) -> bool {
        self.spec.service_type != "ExternalName" && !self.spec.selector.is_empty()
    }

    /// Whether a pod with these labels is one of its own.
    pub(crate) fn matches(&self, labels: &Map) -> bool {
        let selector = &self.spec.selector;
        !selector.is_empty() && selector.iter().all(|(name, value)| labels.get(name) == Some(value))
    }

    /// Whether it was asked to have no address of its own. One that has none yet is not meant.
    pub(crate) fn is_headless(&self) -> bool {
        self.spec.cluster_ip == "None"
    }

    /// Whether it has an address.
    pub(crate) fn has_address(&self) -> bool {
        !self.is_headless() && !self.spec.cluster_ip.is_empty()
    }

    /// The number that a port has in a pod; none when the pod has no port of that name.
    pub(crate) fn port_of(&self, port: &ServicePort, pod: &Pod) -> Option<i32> {
        match &port.target_port {
            Some(IntOrString::String(name)) => pod.named_port(name, &port.protocol),
            Some(IntOrString::Int(number)) => Some(*number),
            None => Some(0),
        }
    }

    /// The host name under which the pod is an endpoint, if it has one in this Service's domain.
    pub(crate) fn hostname_of<'a>(&self, pod: &'a Pod) -> Option<&'a str> {
        let (hostname, subdomain) = pod.hostname();
        let named = !hostname.is_empty() && subdomain == self.metadata.name;
        (named && pod.metadata.namespace == self.metadata.namespace).then_some(hostname)
    }

    /// The reference by which events name it.
    pub(crate) fn regarding(&self) -> ObjectReference {
        event_reference("v1", "Service", &self.metadata)
    }
}

impl HasMeta for Service {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Whether a pod belongs into Endpoints and EndpointSlices at all.
pub(crate) fn has_endpoint(pod: &Pod, with_terminating: bool) -> bool {
    !pod.is_terminal() && !pod.ips().is_empty() && (with_terminating || pod.metadata.deletion_timestamp.is_none())
}

/// Decodes `null` as the default, as Go does.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
