//! What the slices of some Endpoints should be: one for each family and set of ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::{Map, ObjectMeta};

use super::MANAGER;
use crate::endpoint_slice::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Identity, MANAGED_BY, SERVICE_NAME, name_prefix, sorted,
};
use crate::endpoints::{Address, Endpoints, Port, repack};
use crate::service::{Family, TRIGGER_TIME, parse_ip};
use crate::workload::controller_reference;

/// The annotation of `kubectl apply`, which speaks of the Endpoints alone.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The slices that some Endpoints should have.
#[derive(Debug)]
pub(super) struct Mirror<'a> {
    endpoints: &'a Endpoints,
    /// By family and ports.
    groups: BTreeMap<Family, KeyedMap<Vec<EndpointPort>, Group>>,
    endpoints_max: usize,
    /// Addresses that are none.
    pub(super) invalid: usize,
    /// Addresses that are left out for this or another reason.
    pub(super) skipped: usize,
}

/// The endpoints of one slice, in order of appearance.
#[derive(Debug, Default)]
struct Group {
    all: Vec<Endpoint>,
    by_identity: KeyedMap<Identity, usize>,
}

/// Slices by what becomes of them.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
    pub(super) unchanged: Vec<Arc<EndpointSlice>>,
}

impl Group {
    fn insert(&mut self, endpoint: Endpoint) {
        let at = *self.by_identity.entry(endpoint.identity()).or_insert(self.all.len());
        match self.all.get_mut(at) {
            Some(known) => *known = endpoint,
            None => self.all.push(endpoint),
        }
    }

    /// Whether a slice has exactly these endpoints.
    fn is_in(&self, slice: &EndpointSlice) -> bool {
        let known = |endpoint: &Endpoint| {
            let at = self.by_identity.get(&endpoint.identity());
            at.is_some_and(|at| self.all[*at].is_equal_beyond_identity(endpoint))
        };
        slice.endpoints.len() == self.all.len() && slice.endpoints.iter().all(known)
    }
}

impl<'a> Mirror<'a> {
    /// Reads the Endpoints; of each subset at most so many addresses, ready ones first.
    pub(super) fn new(endpoints: &'a Endpoints, endpoints_max: usize) -> Self {
        let mut mirror = Mirror { endpoints, groups: BTreeMap::new(), endpoints_max, invalid: 0, skipped: 0 };
        for subset in repack(&endpoints.subsets) {
            let ports = sorted(subset.ports.iter().map(port).collect());
            let ready = subset.addresses.iter().map(|address| (address, true));
            let not_ready = subset.not_ready_addresses.iter().map(|address| (address, false));
            let mut added = 0;
            for (address, ready) in ready.chain(not_ready) {
                if added >= endpoints_max {
                    break;
                }
                let Some((family, endpoint)) = endpoint(address, ready) else {
                    mirror.invalid += 1;
                    continue;
                };
                mirror.groups.entry(family).or_default().entry(ports.clone()).or_default().insert(endpoint);
                added += 1;
            }
            mirror.skipped += subset.addresses.len() + subset.not_ready_addresses.len() - added;
        }
        mirror
    }

    /// What to write, with these slices there.
    pub(super) fn plan(mut self, slices: Vec<Arc<EndpointSlice>>) -> Plan {
        let mut plan = Plan::default();
        let annotations = self.annotations();
        for slice in slices {
            let ports = sorted(slice.ports.clone());
            let group = self.groups.get_mut(&slice.address_type).and_then(|groups| groups.remove(&ports));
            // The first of several is kept.
            let Some(group) = group else {
                plan.delete.push(slice);
                continue;
            };
            let same = self.labels_of(&slice) == self.endpoints.metadata.labels
                && slice.metadata.annotations == annotations
                && !self.has_former_owner(&slice);
            if same && group.is_in(&slice) {
                plan.unchanged.push(slice);
                continue;
            }
            let mut new = self.slice(slice.address_type, ports, group);
            new.metadata.generate_name.clear();
            name_after(&mut new, &slice);
            plan.update.push(new);
        }
        for (family, groups) in std::mem::take(&mut self.groups) {
            // Nothing depends on the order of a hash map.
            let mut groups: Vec<_> = groups.into_iter().collect();
            groups.sort_by_key(|(_, group)| group.all.first().map(Endpoint::identity));
            plan.create.extend(groups.into_iter().map(|(ports, group)| self.slice(family, ports, group)));
        }
        plan
    }

    fn slice(&self, address_type: Family, ports: Vec<EndpointPort>, group: Group) -> EndpointSlice {
        let meta = &self.endpoints.metadata;
        let mut labels = meta.labels.clone();
        labels.insert(SERVICE_NAME.into(), meta.name.clone());
        labels.insert(MANAGED_BY.into(), MANAGER.into());
        let metadata = ObjectMeta {
            generate_name: name_prefix(&meta.name),
            namespace: meta.namespace.clone(),
            labels,
            annotations: self.annotations(),
            owner_references: vec![controller_reference("v1", "Endpoints", meta)],
            ..ObjectMeta::default()
        };
        let endpoints = group.all.into_iter().take(self.endpoints_max).collect();
        EndpointSlice { metadata, address_type, endpoints, ports, ..EndpointSlice::default() }
    }

    /// The annotations of the slices.
    fn annotations(&self) -> Map {
        let mut annotations = self.endpoints.metadata.annotations.clone();
        annotations.retain(|name, _| name != TRIGGER_TIME && name != LAST_APPLIED);
        annotations
    }

    /// The labels of a slice without those that say whose it is.
    fn labels_of(&self, slice: &EndpointSlice) -> Map {
        let mut labels = slice.metadata.labels.clone();
        labels.retain(|name, _| name != SERVICE_NAME && name != MANAGED_BY);
        labels
    }

    /// Whether Endpoints of the same name owned a slice before.
    fn has_former_owner(&self, slice: &EndpointSlice) -> bool {
        let meta = &self.endpoints.metadata;
        let mut owners = slice.metadata.owner_references.iter();
        owners.any(|owner| owner.kind == "Endpoints" && owner.name == meta.name && owner.uid != meta.uid)
    }
}

impl Plan {
    /// Lets new slices take the place of those of their family that would be deleted.
    pub(super) fn reuse(&mut self) {
        let mut create = Vec::new();
        for mut new in std::mem::take(&mut self.create) {
            match self.delete.iter().position(|old| old.address_type == new.address_type) {
                Some(at) => {
                    name_after(&mut new, &self.delete.remove(at));
                    self.update.push(new);
                }
                None => create.push(new),
            }
        }
        self.create = create;
    }
}

/// Has a slice take another one's place.
fn name_after(new: &mut EndpointSlice, old: &EndpointSlice) {
    new.metadata.name = old.metadata.name.clone();
    // Another manager may have written it meanwhile.
    new.metadata.resource_version = old.metadata.resource_version.clone();
}

fn port(port: &Port) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.clone()),
        port: Some(port.port),
        app_protocol: port.app_protocol.clone(),
    }
}

/// An address as an endpoint; none when it is not one.
fn endpoint(address: &Address, ready: bool) -> Option<(Family, Endpoint)> {
    let ip = parse_ip(&address.ip)?;
    let endpoint = Endpoint {
        addresses: vec![ip.to_string()],
        conditions: EndpointConditions { ready: Some(ready), ..EndpointConditions::default() },
        hostname: (!address.hostname.is_empty()).then(|| address.hostname.clone()),
        target_ref: address.target_ref.clone(),
        node_name: address.node_name.clone(),
        ..Endpoint::default()
    };
    Some((Family::of(&ip), endpoint))
}
