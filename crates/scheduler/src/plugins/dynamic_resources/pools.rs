//! The pools of devices a node can reach.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_model::affinity::{NodeMatcher, NodeSelector};
use bayplan_model::node::Node;
use bayplan_model::quantity::Quantity;
use bayplan_model::resource_slice::{Device, ResourceSlice};
use rustc_hash::FxHashMap;

/// All slices of a cluster, found by node and by pool.
#[derive(Default)]
pub(super) struct Slices {
    by_node: FxHashMap<String, Vec<Arc<ResourceSlice>>>,
    /// Slices that several nodes may need.
    shared: Vec<Arc<ResourceSlice>>,
    by_pool: FxHashMap<PoolId, Vec<Arc<ResourceSlice>>>,
}

/// Driver and name of a pool.
pub(super) type PoolId = (String, String);

fn pool_id(slice: &ResourceSlice) -> PoolId {
    (slice.spec.driver.clone(), slice.spec.pool.name.clone())
}

/// Counters by set and name.
pub(super) type Counters = BTreeMap<(String, String), Quantity>;

/// A pool as a node sees it.
pub(super) struct Pool {
    pub(super) driver: String,
    pub(super) name: String,
    /// Slices with devices the node may use.
    pub(super) slices: Vec<Arc<ResourceSlice>>,
    /// All slices of this generation: partitions elsewhere use the same counters.
    pub(super) all: Vec<Arc<ResourceSlice>>,
    /// What partitions share.
    pub(super) counters: Counters,
    pub(super) is_incomplete: bool,
    pub(super) is_invalid: bool,
}

impl Slices {
    pub(super) fn new<'a>(slices: impl Iterator<Item = &'a Arc<ResourceSlice>>) -> Self {
        let mut index = Slices::default();
        for slice in slices {
            index.by_pool.entry(pool_id(slice)).or_default().push(slice.clone());
            match slice.spec.node_name.as_deref().filter(|name| !name.is_empty()) {
                Some(node) if slice.spec.shared_counters.is_empty() => {
                    index.by_node.entry(node.to_owned()).or_default().push(slice.clone());
                }
                _ => index.shared.push(slice.clone()),
            }
        }
        index
    }

    /// The pools with devices for a node, in the order in which devices are tried.
    pub(super) fn pools(&self, node: &Node) -> Result<Vec<Pool>, String> {
        let mut newest: BTreeMap<PoolId, Vec<Arc<ResourceSlice>>> = BTreeMap::new();
        let own = self.by_node.get(&node.metadata.name).into_iter().flatten();
        for slice in own.chain(&self.shared) {
            if !is_relevant(slice, node)? {
                continue;
            }
            let slices = newest.entry(pool_id(slice)).or_default();
            let known = slices.first().map_or(i64::MIN, |first| first.spec.pool.generation);
            if slice.spec.pool.generation > known {
                slices.clear();
            }
            if slice.spec.pool.generation >= known {
                slices.push(slice.clone());
            }
        }
        let pools = newest.into_iter().filter_map(|(id, slices)| self.pool(id, slices));
        let (late, mut pools): (Vec<Pool>, Vec<Pool>) = pools.partition(Pool::has_binding_conditions);
        pools.extend(late);
        Ok(pools)
    }

    /// A pool of these relevant slices; none when a newer generation is on its way.
    fn pool(&self, (driver, name): PoolId, mut slices: Vec<Arc<ResourceSlice>>) -> Option<Pool> {
        let of_pool = self.by_pool.get(&(driver.clone(), name.clone()))?;
        let (generation, count) = {
            let pool = &slices.first()?.spec.pool;
            (pool.generation, pool.resource_slice_count)
        };
        let mut is_incomplete = false;
        if slices.len() as i64 != count {
            if of_pool.iter().any(|slice| slice.spec.pool.generation > generation) {
                return None;
            }
            let same = of_pool.iter().filter(|slice| slice.spec.pool.generation == generation).count();
            is_incomplete = same as i64 != count;
        }
        let all: Vec<_> = of_pool.iter().filter(|slice| slice.spec.pool.generation == generation).cloned().collect();
        let counters = counters(&all);
        let is_invalid = counters.is_none() || !is_valid(&all, counters.as_ref());
        slices.retain(|slice| slice.spec.shared_counters.is_empty());
        slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Some(Pool { driver, name, slices, all, counters: counters.unwrap_or_default(), is_incomplete, is_invalid })
    }
}

impl Pool {
    fn has_binding_conditions(&self) -> bool {
        self.slices.iter().flat_map(|slice| &slice.spec.devices).any(|device| !device.binding_conditions.is_empty())
    }

    /// `driver/name`, as messages show it.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.driver, self.name)
    }
}

/// What the partitions of a pool share; none when a set is there twice.
fn counters(slices: &[Arc<ResourceSlice>]) -> Option<Counters> {
    let mut sets = BTreeSet::new();
    let mut counters = Counters::new();
    for set in slices.iter().flat_map(|slice| &slice.spec.shared_counters) {
        if !sets.insert(&set.name) {
            return None;
        }
        counters.extend(set.counters.iter().map(|(name, c)| ((set.name.clone(), name.clone()), c.value.clone())));
    }
    Some(counters)
}

/// Device names are unique, and devices consume counters that are there.
fn is_valid(slices: &[Arc<ResourceSlice>], counters: Option<&Counters>) -> bool {
    let mut names = BTreeSet::new();
    let mut devices = slices.iter().flat_map(|slice| &slice.spec.devices);
    devices.all(|device| {
        names.insert(&device.name)
            && consumed(device).all(|(counter, _)| counters.is_some_and(|counters| counters.contains_key(&counter)))
    })
}

/// What a device takes of its pool's counters.
pub(super) fn consumed(device: &Device) -> impl Iterator<Item = ((String, String), &Quantity)> {
    device.consumes_counters.iter().flat_map(|consumption| {
        let set = &consumption.counter_set;
        consumption.counters.iter().map(move |(name, counter)| ((set.clone(), name.clone()), &counter.value))
    })
}

fn is_relevant(slice: &ResourceSlice, node: &Node) -> Result<bool, String> {
    let spec = &slice.spec;
    if !spec.shared_counters.is_empty() {
        return Ok(true);
    }
    let name = &slice.metadata.name;
    if spec.node_name.as_ref().is_some_and(|n| !n.is_empty()) || spec.all_nodes || spec.node_selector.is_some() {
        return reaches(node, spec.node_name.as_deref(), spec.all_nodes, spec.node_selector.as_ref()).map_err(
            |error| format!("gather pool information: failed to perform node selection for slice {name}: {error}"),
        );
    }
    for device in spec.devices.iter().filter(|_| spec.per_device_node_selection) {
        let reached = device_reaches(node, device);
        if reached.map_err(|error| {
            let device = &device.name;
            format!(
                "gather pool information: failed to perform node selection for device {device} in slice {name}: {error}"
            )
        })? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a device that says for itself where it is can be reached from a node.
pub(super) fn device_reaches(node: &Node, device: &Device) -> Result<bool, String> {
    reaches(node, device.node_name.as_deref(), device.all_nodes, device.node_selector.as_ref())
}

fn reaches(node: &Node, name: Option<&str>, all: bool, selector: Option<&NodeSelector>) -> Result<bool, String> {
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        return Ok(node.metadata.name == name);
    }
    if all {
        return Ok(true);
    }
    let Some(selector) = selector else { return Ok(false) };
    let matcher = NodeMatcher::new(selector);
    match matcher.errors().first() {
        Some(error) => Err(format!("failed to parse node selector: {error}")),
        None => Ok(matcher.matches(node)),
    }
}
