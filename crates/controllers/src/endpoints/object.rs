//! Endpoints as they are read and written.

use bayplan_model::meta::{HasMeta, ObjectMeta};
use serde::{Deserialize, Serialize};

use crate::service::{Dump, TargetRef, null_is_default};

/// `v1` Endpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoints {
    /// Always `v1`.
    pub api_version: String,
    /// Always `Endpoints`.
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Addresses by the ports they offer.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub subsets: Vec<Subset>,
}

/// Addresses that offer the same ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subset {
    /// Those that may get connections.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Those that are not ready.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub not_ready_addresses: Vec<Address>,
    /// The ports.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
}

/// One address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Address {
    /// The address itself.
    pub ip: String,
    /// Its host name in the Service's domain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// Its node. Upstream names one of a pod that is on no node, too, and has it refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// What it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
}

/// A port of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Its name, that of the Service's port.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// What is spoken on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

impl Address {
    /// The UID of what it belongs to; none when it belongs to nothing.
    pub(super) fn uid(&self) -> Option<&str> {
        self.target_ref.as_ref().map(|target| target.uid.as_str())
    }

    /// The text that upstream hashes.
    fn dump(&self) -> String {
        let target = self.target_ref.as_ref().map(|target| {
            Dump::inner()
                .field("Kind", "string", &target.kind)
                .field("Namespace", "string", &target.namespace)
                .field("Name", "string", &target.name)
                .field("UID", "types.UID", &target.uid)
                .field("APIVersion", "string", &target.api_version)
                .field("ResourceVersion", "string", &target.resource_version)
                .field("FieldPath", "string", &target.field_path)
                .end()
        });
        Dump::inner()
            .field("IP", "string", &self.ip)
            .field("Hostname", "string", &self.hostname)
            .pointer("NodeName", "*string", self.node_name.as_ref())
            .pointer("TargetRef", "*v1.ObjectReference", target)
            .end()
    }
}

impl Port {
    /// The text that upstream hashes.
    pub(super) fn dump(&self, into: Dump) -> String {
        into.field("Name", "string", &self.name)
            .field("Port", "int32", self.port)
            .field("Protocol", "v1.Protocol", &self.protocol)
            .pointer("AppProtocol", "*string", self.app_protocol.as_ref())
            .end()
    }
}

impl Subset {
    /// The text that upstream hashes.
    pub(super) fn dump(&self) -> String {
        Dump::of("v1.EndpointSubset")
            .list("Addresses", "[]v1.EndpointAddress", self.addresses.iter().map(Address::dump))
            .list("NotReadyAddresses", "[]v1.EndpointAddress", self.not_ready_addresses.iter().map(Address::dump))
            .list("Ports", "[]v1.EndpointPort", self.ports.iter().map(|port| port.dump(Dump::inner())))
            .end()
    }
}

impl Default for Endpoints {
    fn default() -> Self {
        Endpoints {
            api_version: "v1".into(),
            kind: "Endpoints".into(),
            metadata: ObjectMeta::default(),
            subsets: Vec::new(),
        }
    }
}

impl HasMeta for Endpoints {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}
