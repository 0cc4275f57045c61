//! The endpoints that a Service should have, by the ports that its pods offer.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use bayplan_model::keyed::KeyedMap;
use bayplan_model::node::LABEL_ZONE;

use super::object::{Endpoint, EndpointConditions, EndpointPort, Identity, sorted};
use crate::cache::Store;
use crate::error::Error;
use crate::node::Node;
use crate::pod::Pod;
use crate::service::{Family, Service, ServicePort, TargetRef, has_endpoint};

/// Endpoints that offer the same ports.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) ports: Vec<EndpointPort>,
    pub(super) endpoints: Endpoints,
}

/// Endpoints to be placed, in the order of their pods' names.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    by_identity: KeyedMap<Identity, usize>,
    all: Vec<Option<Endpoint>>,
    left: usize,
}

impl Endpoints {
    fn insert(&mut self, endpoint: Endpoint) {
        match self.by_identity.entry(endpoint.identity()) {
            Entry::Occupied(known) => self.all[*known.get()] = Some(endpoint),
            Entry::Vacant(place) => {
                place.insert(self.all.len());
                self.all.push(Some(endpoint));
                self.left += 1;
            }
        }
    }

    /// Takes the endpoint that is the same one as this.
    pub(super) fn take(&mut self, like: &Endpoint) -> Option<Endpoint> {
        let at = self.by_identity.get(&like.identity())?;
        let taken = self.all[*at].take();
        self.left -= usize::from(taken.is_some());
        taken
    }

    /// How many have no place yet.
    pub(super) fn len(&self) -> usize {
        self.left
    }

    /// Hands out those that have no place yet.
    pub(super) fn rest(self) -> std::vec::IntoIter<Endpoint> {
        self.all.into_iter().flatten().collect::<Vec<_>>().into_iter()
    }
}

/// The endpoints of one family.
#[derive(Debug, Default)]
pub(super) struct Desired {
    pub(super) groups: Vec<Group>,
    /// The place of each group.
    pub(super) by_ports: KeyedMap<Vec<EndpointPort>, usize>,
    /// What is wrong with pods that are left out.
    pub(super) errors: Vec<Error>,
}

impl Desired {
    pub(super) fn new(service: &Service, family: Family, pods: &[Arc<Pod>], nodes: &Store<Node>) -> Self {
        let mut desired = Desired::default();
        // Most pods offer the same ports: numbers tell them apart before ports are made of them.
        let mut by_numbers: KeyedMap<Vec<Option<i32>>, usize> = KeyedMap::default();
        for pod in pods.iter().filter(|pod| has_endpoint(pod, true)) {
            let numbers: Vec<Option<i32>> = service.spec.ports.iter().map(|port| service.port_of(port, pod)).collect();
            let group = match by_numbers.get(&numbers) {
                Some(known) => *known,
                None => {
                    let group = desired.group(sorted(ports(service, &numbers)));
                    by_numbers.insert(numbers, group);
                    group
                }
            };
            let node = nodes.get("", &pod.node_name);
            if node.is_none() && !service.spec.publish_not_ready_addresses {
                desired.errors.push(node_missing(service, pod));
                continue;
            }
            let endpoint = endpoint(service, family, pod, node.as_deref());
            if !endpoint.addresses.is_empty() {
                desired.groups[group].endpoints.insert(endpoint);
            }
        }
        desired
    }

    /// The group of these ports.
    fn group(&mut self, ports: Vec<EndpointPort>) -> usize {
        *self.by_ports.entry(ports).or_insert_with_key(|ports| {
            self.groups.push(Group { ports: ports.clone(), endpoints: Endpoints::default() });
            self.groups.len() - 1
        })
    }
}

fn node_missing(service: &Service, pod: &Pod) -> Error {
    let (pod_name, key) = (&pod.metadata.name, service.metadata.key());
    Error::Invalid(format!("skipping Pod {pod_name} for Service {key}: Node {} Not Found", pod.node_name))
}

/// The ports that have these numbers in a pod.
fn ports(service: &Service, numbers: &[Option<i32>]) -> Vec<EndpointPort> {
    let ports = service.spec.ports.iter().zip(numbers);
    let port = |(port, number): (&ServicePort, &Option<i32>)| {
        Some(EndpointPort {
            name: Some(port.name.clone()),
            protocol: Some(port.protocol.clone()),
            port: Some((*number)?),
            app_protocol: port.app_protocol.clone(),
        })
    };
    ports.filter_map(port).collect()
}

fn endpoint(service: &Service, family: Family, pod: &Pod, node: Option<&Node>) -> Endpoint {
    let serving = pod.ready;
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let ready = service.spec.publish_not_ready_addresses || (serving && !terminating);
    let zone = node.and_then(|node| node.metadata.labels.get(LABEL_ZONE)).filter(|zone| !zone.is_empty());
    let addresses = pod.ips().iter().filter(|ip| Family::of(ip) == family);
    Endpoint {
        addresses: addresses.map(ToString::to_string).collect(),
        conditions: EndpointConditions { ready: Some(ready), serving: Some(serving), terminating: Some(terminating) },
        hostname: service.hostname_of(pod).map(str::to_owned),
        target_ref: Some(TargetRef::pod(pod)),
        node_name: (!pod.node_name.is_empty()).then(|| pod.node_name.clone()),
        zone: zone.cloned(),
        ..Endpoint::default()
    }
}
