//! EndpointSlices as they are read and written.

use bayplan_model::meta::{HasMeta, Map, ObjectMeta};
use serde::{Deserialize, Serialize, Serializer};

use crate::service::{Dump, Family, TargetRef, fnv_128a, null_is_default};

/// A `discovery.k8s.io/v1` EndpointSlice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// Always `discovery.k8s.io/v1`.
    pub api_version: String,
    /// Always `EndpointSlice`.
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The family of all its addresses.
    pub address_type: Family,
    /// The endpoints.
    #[serde(deserialize_with = "null_is_default", serialize_with = "empty_is_null")]
    pub endpoints: Vec<Endpoint>,
    /// The ports that each of them offers.
    #[serde(deserialize_with = "null_is_default", serialize_with = "empty_is_null")]
    pub ports: Vec<EndpointPort>,
}

/// One endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Its addresses, which are the same place.
    pub addresses: Vec<String>,
    /// Whether it can be used.
    pub conditions: EndpointConditions,
    /// Its host name in the Service's domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// What it stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// What older versions said about its place.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub deprecated_topology: Map,
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The zone of its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Who should use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<EndpointHints>,
}

/// Whether an endpoint can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// It may get new connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// It is ready, terminating or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    /// It is about to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

/// Who should use an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointHints {
    /// Clients in these zones.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub for_zones: Vec<Place>,
    /// Clients on these nodes.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub for_nodes: Vec<Place>,
}

/// A zone or a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// Its name.
    pub name: String,
}

/// A port of endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPort {
    /// Its name, that of the Service's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Its number; none is all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// What is spoken on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

/// What makes an endpoint the same one as before: addresses, host name, namespace and name of the target.
pub(crate) type Identity = (Vec<String>, String, String, String);

impl Endpoint {
    /// Whether new connections may go to it.
    pub fn is_ready(&self) -> bool {
        self.conditions.ready == Some(true)
    }

    pub(crate) fn identity(&self) -> Identity {
        let mut addresses = self.addresses.clone();
        addresses.sort_unstable();
        let (namespace, name) = self.target_ref.as_ref().map_or(("", ""), |target| (&target.namespace, &target.name));
        (addresses, self.hostname.clone().unwrap_or_default(), namespace.into(), name.into())
    }

    /// Whether two endpoints of one identity are equal in the rest, hints left aside.
    pub(crate) fn is_equal_beyond_identity(&self, other: &Self) -> bool {
        let same_target = match (&self.target_ref, &other.target_ref) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same_target
            && self.node_name == other.node_name
            && self.zone == other.zone
            && self.conditions == other.conditions
    }
}

impl EndpointPort {
    /// The place of a port among others.
    fn order(&self) -> u128 {
        let dump = Dump::of("v1.EndpointPort")
            .pointer("Name", "*string", self.name.as_ref())
            .pointer("Protocol", "*v1.Protocol", self.protocol.as_ref())
            .pointer("Port", "*int32", self.port)
            .pointer("AppProtocol", "*string", self.app_protocol.as_ref());
        fnv_128a(&dump.end())
    }
}

/// Ports in upstream's order, by which two sets of them are equal when they have the same ones.
pub(crate) fn sorted(mut ports: Vec<EndpointPort>) -> Vec<EndpointPort> {
    if ports.len() > 1 {
        ports.sort_by_cached_key(EndpointPort::order);
    }
    ports
}

impl EndpointSlice {
    /// A label's value.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.metadata.labels.get(name).map_or("", String::as_str)
    }
}

impl Default for EndpointSlice {
    fn default() -> Self {
        EndpointSlice {
            api_version: "discovery.k8s.io/v1".into(),
            kind: "EndpointSlice".into(),
            metadata: ObjectMeta::default(),
            address_type: Family::default(),
            endpoints: Vec::new(),
            ports: Vec::new(),
        }
    }
}

impl HasMeta for EndpointSlice {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Upstream sends protocol buffers, which know no empty lists: they are stored as `null`.
fn empty_is_null<S: Serializer, T: Serialize>(list: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    if list.is_empty() { serializer.serialize_none() } else { list.serialize(serializer) }
}
