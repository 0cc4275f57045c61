//! What to write for one family of a Service's endpoints: as few slices as change.
//!
//! ```text
//!   desired groups ─▶ pack (keep, fill up, add) ─▶ placeholder ─▶ hints ─▶ reuse ─▶ create, update, delete
//! ```

use std::cmp::Reverse;
use std::sync::Arc;

use bayplan_model::meta::{Map, ObjectMeta};

use super::desired::{Desired, Group};
use super::object::{Endpoint, EndpointPort, EndpointSlice, sorted};
use super::{MANAGED_BY, MANAGER, SERVICE_NAME};
use crate::cache::Store;
use crate::error::Error;
use crate::node::Node;
use crate::pod::Pod;
use crate::service::{Family, HEADLESS, Service};
use crate::workload::controller_reference;

/// The longest name that still takes a dash as the prefix of others.
const NAME_LENGTH_MAX: usize = 253;

/// Slices by what becomes of them.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// New ones.
    pub create: Vec<EndpointSlice>,
    /// Those that change.
    pub update: Vec<EndpointSlice>,
    /// Those that nobody needs any more.
    pub delete: Vec<Arc<EndpointSlice>>,
    /// Those that stay.
    pub unchanged: Vec<Arc<EndpointSlice>>,
}

/// The rules by which a Service's endpoints are packed.
#[derive(Clone, Copy, Debug)]
pub struct Packing<'a> {
    /// The Service.
    pub service: &'a Service,
    /// The family of the addresses.
    pub family: Family,
    /// No slice gets more endpoints.
    pub endpoints_max: usize,
}

impl Packing<'_> {
    /// The changes, before hints and reuse; the errors are pods that had to be left out.
    pub fn changes(
        &self,
        pods: &[Arc<Pod>],
        nodes: &Store<Node>,
        existing: Vec<Arc<EndpointSlice>>,
    ) -> (Changes, Vec<Error>) {
        let Desired { groups, by_ports, errors } = Desired::new(self.service, self.family, pods, nodes);
        let count = existing.len();
        let mut changes = Changes::default();
        let mut slices: Vec<Vec<Arc<EndpointSlice>>> = groups.iter().map(|_| Vec::new()).collect();
        for slice in existing {
            let group = by_ports.get(&sorted(slice.ports.clone()));
            match group.filter(|_| is_owned(&slice, self.service)) {
                Some(group) => slices[*group].push(slice),
                None => changes.delete.push(slice),
            }
        }
        for (group, slices) in groups.into_iter().zip(slices) {
            self.pack(group, slices, &mut changes);
        }
        if changes.delete.len() == count && changes.create.is_empty() {
            self.keep_placeholder(&mut changes);
        }
        (changes, errors)
    }

    /// A Service without endpoints has one empty slice.
    fn keep_placeholder(&self, changes: &mut Changes) {
        let placeholder = self.new_slice(Vec::new());
        match &changes.delete[..] {
            [one] if is_owned(one, self.service) && is_placeholder(one, &placeholder) => {
                changes.unchanged.append(&mut changes.delete)
            }
            _ => changes.create.push(placeholder),
        }
    }

    /// Places the endpoints of one group of ports.
    fn pack(&self, group: Group, existing: Vec<Arc<EndpointSlice>>, changes: &mut Changes) {
        let Group { ports, mut endpoints } = group;
        let labels = self.labels();
        let own_labels = without_reserved(&labels);
        let (mut update, mut unchanged) = (Vec::new(), Vec::new());
        for slice in existing {
            let found: Vec<Option<Endpoint>> = slice.endpoints.iter().map(|old| endpoints.take(old)).collect();
            let stays = |(old, new): (&Endpoint, &Option<Endpoint>)| {
                new.as_ref().is_some_and(|new| new.is_equal_beyond_identity(old))
            };
            let changed = !slice.endpoints.iter().zip(&found).all(stays);
            let kept: Vec<Endpoint> = found.into_iter().flatten().collect();
            if changed && kept.is_empty() {
                changes.delete.push(slice);
            } else if changed || without_reserved(&slice.metadata.labels) != own_labels {
                let mut new = EndpointSlice::clone(&slice);
                new.metadata.labels = labels.clone();
                if changed {
                    new.endpoints = kept;
                }
                update.push(new);
            } else {
                unchanged.push(slice);
            }
        }
        if endpoints.len() > 0 {
            self.place(endpoints.rest(), ports, &mut update, &mut unchanged, changes);
        }
        changes.update.append(&mut update);
        changes.unchanged.append(&mut unchanged);
    }

    /// Finds room for new endpoints: first in slices that are written anyway, the fullest first; then in one that takes
    /// all that are left; then in new ones.
    fn place(
        &self,
        mut rest: std::vec::IntoIter<Endpoint>,
        ports: Vec<EndpointPort>,
        update: &mut Vec<EndpointSlice>,
        unchanged: &mut Vec<Arc<EndpointSlice>>,
        changes: &mut Changes,
    ) {
        update.sort_by_key(|slice| Reverse(slice.endpoints.len()));
        for slice in update.iter_mut() {
            let room = self.endpoints_max.saturating_sub(slice.endpoints.len());
            slice.endpoints.extend(rest.by_ref().take(room));
        }
        while rest.len() > 0 {
            let room = |slice: &Arc<EndpointSlice>| self.endpoints_max.checked_sub(slice.endpoints.len() + rest.len());
            let fits = unchanged.iter().enumerate().filter_map(|(at, slice)| Some((room(slice)?, at)));
            match fits.min().filter(|_| rest.len() < self.endpoints_max) {
                Some((_, at)) => {
                    let mut slice = EndpointSlice::clone(&unchanged.remove(at));
                    slice.endpoints.extend(rest.by_ref());
                    update.push(slice);
                }
                None => {
                    let mut slice = self.new_slice(ports.clone());
                    slice.endpoints.extend(rest.by_ref().take(self.endpoints_max.max(1)));
                    changes.create.push(slice);
                }
            }
        }
    }

    fn new_slice(&self, ports: Vec<EndpointPort>) -> EndpointSlice {
        let service = &self.service.metadata;
        let metadata = ObjectMeta {
            generate_name: name_prefix(&service.name),
            namespace: service.namespace.clone(),
            labels: self.labels(),
            owner_references: vec![controller_reference("v1", "Service", service)],
            ..ObjectMeta::default()
        };
        EndpointSlice { metadata, ports, address_type: self.family, ..EndpointSlice::default() }
    }

    /// The labels of a slice: those of the Service, and those that say whose it is.
    fn labels(&self) -> Map {
        let mut labels = without_reserved(&self.service.metadata.labels);
        if !self.service.has_address() {
            labels.insert(HEADLESS.into(), String::new());
        }
        labels.insert(SERVICE_NAME.into(), self.service.metadata.name.clone());
        labels.insert(MANAGED_BY.into(), MANAGER.into());
        labels
    }
}

impl Changes {
    /// Lets new slices take the place of those that would be deleted: their names stay, and clients see one change
    /// instead of two.
    pub fn reuse(&mut self, service: &Service) {
        let mut kept = Vec::new();
        for slice in std::mem::take(&mut self.delete) {
            let family = slice.address_type;
            let Some(mut new) = self.create.pop_if(|new| new.address_type == family && is_owned(&slice, service))
            else {
                kept.push(slice);
                continue;
            };
            new.metadata.name = slice.metadata.name.clone();
            // Another manager may have filled it meanwhile.
            new.metadata.resource_version = slice.metadata.resource_version.clone();
            self.update.push(new);
        }
        self.delete = kept;
    }
}

/// The beginning of a slice's name.
pub(crate) fn name_prefix(name: &str) -> String {
    if name.len() < NAME_LENGTH_MAX { format!("{name}-") } else { name.to_owned() }
}

/// Labels without those that say whose slice it is.
fn without_reserved(labels: &Map) -> Map {
    let own = |(name, _): &(&String, &String)| ![SERVICE_NAME, MANAGED_BY, HEADLESS].contains(&name.as_str());
    labels.iter().filter(own).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether the Service owns a slice: one of the same name may have had it before.
fn is_owned(slice: &EndpointSlice, service: &Service) -> bool {
    let owners = &slice.metadata.owner_references;
    owners.iter().any(|owner| owner.uid == service.metadata.uid && owner.kind == "Service" && owner.api_version == "v1")
}

fn is_placeholder(slice: &EndpointSlice, placeholder: &EndpointSlice) -> bool {
    slice.endpoints.is_empty()
        && slice.ports.is_empty()
        && slice.address_type == placeholder.address_type
        && slice.metadata.labels == placeholder.metadata.labels
        && slice.metadata.namespace == placeholder.metadata.namespace
}
