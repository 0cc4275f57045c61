//! Hints by `spec.trafficDistribution`: clients near an endpoint prefer it.

use std::sync::Arc;

use super::changes::Changes;
use super::object::{Endpoint, EndpointHints, EndpointSlice, Place};

/// What a Service says about where its clients find endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrafficDistribution {
    /// In their own zone.
    SameZone,
    /// On their own node, or else in their own zone.
    SameNode,
}

impl TrafficDistribution {
    /// Reads the field; none when it says nothing that is known.
    pub(super) fn of(text: Option<&str>) -> Option<Self> {
        match text? {
            "PreferClose" | "PreferSameZone" => Some(TrafficDistribution::SameZone),
            "PreferSameNode" => Some(TrafficDistribution::SameNode),
            _ => None,
        }
    }

    /// The hints that a ready endpoint should have.
    fn hints(self, endpoint: &Endpoint) -> Option<EndpointHints> {
        let place = |name: &Option<String>| name.iter().map(|name| Place { name: name.clone() }).collect();
        let hints = EndpointHints {
            for_zones: place(&endpoint.zone),
            for_nodes: if self == TrafficDistribution::SameNode { place(&endpoint.node_name) } else { Vec::new() },
        };
        (hints != EndpointHints::default()).then_some(hints)
    }

    /// Gives ready endpoints their hints. Slices with others are written, too.
    pub(super) fn apply(self, changes: &mut Changes) {
        let wrong = |slice: &EndpointSlice| {
            let mut ready = slice.endpoints.iter().filter(|endpoint| endpoint.is_ready());
            ready.any(|endpoint| endpoint.hints.clone().unwrap_or_default() != self.hints(endpoint).unwrap_or_default())
        };
        write_also(changes, wrong);
        for slice in changes.create.iter_mut().chain(&mut changes.update) {
            for endpoint in slice.endpoints.iter_mut().filter(|endpoint| endpoint.is_ready()) {
                endpoint.hints = self.hints(endpoint);
            }
        }
    }
}

/// Takes all hints away. Slices that have any are written.
pub(super) fn remove(changes: &mut Changes) {
    write_also(changes, |slice| slice.endpoints.iter().any(|endpoint| endpoint.hints.is_some()));
    for slice in changes.create.iter_mut().chain(&mut changes.update) {
        for endpoint in &mut slice.endpoints {
            endpoint.hints = None;
        }
    }
}

/// Has unchanged slices written that need it.
pub(super) fn write_also(changes: &mut Changes, mut needs: impl FnMut(&EndpointSlice) -> bool) {
    let (also, unchanged): (Vec<_>, Vec<_>) =
        std::mem::take(&mut changes.unchanged).into_iter().partition(|slice| needs(slice));
    changes.unchanged = unchanged;
    changes.update.extend(also.iter().map(|slice: &Arc<EndpointSlice>| EndpointSlice::clone(slice)));
}
