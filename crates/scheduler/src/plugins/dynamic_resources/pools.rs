//! The resource pools that a node can reach.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::node::Node;

use crate::cluster::devices::{self, Devices, PoolGeneration, PublishedSlice};

/// A pool as a node sees it.
pub(super) struct Pool<'a> {
    pub(super) driver: &'a str,
    pub(super) name: &'a str,
    /// The slices with devices that the node may use, by name.
    pub(super) slices: Vec<&'a Arc<PublishedSlice>>,
    /// The pool over all nodes.
    pub(super) known: &'a devices::DevicePool,
    /// All slices of this generation: partitions elsewhere use the same counters.
    pub(super) generation: &'a PoolGeneration,
    pub(super) is_incomplete: bool,
}

/// The pools with devices for a node, in the order in which devices are tried.
pub(super) fn pools<'a>(devices: &'a Devices, node: &Node) -> Result<Vec<Pool<'a>>, String> {
    let mut newest: BTreeMap<(&str, &str), Vec<&Arc<PublishedSlice>>> = BTreeMap::new();
    for known in devices.slices_for(&node.metadata.name) {
        if !known.is_relevant(node)? {
            continue;
        }
        let spec = &known.slice.spec;
        let slices = newest.entry((&spec.driver, &spec.pool.name)).or_default();
        let latest = slices.first().map_or(i64::MIN, |first| first.slice.spec.pool.generation);
        if spec.pool.generation > latest {
            slices.clear();
        }
        if spec.pool.generation >= latest {
            slices.push(known);
        }
    }
    let pools = newest.into_iter().filter_map(|(id, slices)| pool(devices, id, slices));
    let (late, mut pools): (Vec<Pool<'a>>, Vec<Pool<'a>>) = pools.partition(Pool::has_binding_conditions);
    pools.extend(late);
    Ok(pools)
}

/// A pool of these slices; none when a newer generation of it exists.
fn pool<'a>(
    devices: &'a Devices,
    (driver, name): (&'a str, &'a str),
    mut slices: Vec<&'a Arc<PublishedSlice>>,
) -> Option<Pool<'a>> {
    let known = devices.pool(driver, name)?;
    let pool = &slices.first()?.slice.spec.pool;
    let (number, count) = (pool.generation, pool.resource_slice_count);
    let generation = known.generation(number)?;
    let mut is_incomplete = false;
    if slices.len() as i64 != count {
        if known.has_later(number) {
            return None;
        }
        is_incomplete = generation.slices.len() as i64 != count;
    }
    slices.retain(|known| known.slice.spec.shared_counters.is_empty());
    slices.sort_by(|a, b| a.slice.metadata.name.cmp(&b.slice.metadata.name));
    Some(Pool { driver, name, slices, known, generation, is_incomplete })
}

impl Pool<'_> {
    fn has_binding_conditions(&self) -> bool {
        let devices = self.slices.iter().flat_map(|known| &known.slice.spec.devices);
        devices.into_iter().any(|device| !device.binding_conditions.is_empty())
    }

    /// Whether its slices contradict each other, by duplicate names or unknown counters.
    pub(super) fn is_invalid(&self) -> bool {
        self.generation.is_invalid
    }

    /// `driver/name`, as messages show it.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.driver, self.name)
    }
}
