//! Devices by node and pool, and which of them claims have; kept up to date as slices and claims change.
//!
//! ```text
//!   slices by node ──▶ the devices of a node        pools ──▶ all slices of a pool, and its devices in use
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bayplan_model::affinity::{NodeMatcher, NodeSelector};
use bayplan_model::keyed::KeyedMap;
use bayplan_model::node::Node;
use bayplan_model::quantity::Quantity;
use bayplan_model::resource_claim::DeviceResult;
use bayplan_model::resource_slice::{Device, ResourceSlice};

/// Counters by set and name.
pub(crate) type Counters = BTreeMap<(String, String), Quantity>;
/// Amounts by the name of the capacity.
pub(crate) type DeviceAmounts = BTreeMap<String, Quantity>;

/// The most CEL expressions whose results are cached for a slice. A cluster has a handful, and the results of one take
/// a byte for each device.
const EXPRESSIONS_MAX: usize = 64;

/// The published slices, and the devices in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices {
    by_node: KeyedMap<String, Vec<Arc<PublishedSlice>>>,
    /// Slices for more than one node.
    shared: Vec<Arc<PublishedSlice>>,
    /// By driver and name.
    pools: KeyedMap<String, KeyedMap<String, DevicePool>>,
}

/// A pool of devices.
#[derive(Clone, Debug, Default)]
pub(crate) struct DevicePool {
    slices: Vec<Arc<PublishedSlice>>,
    /// Computed on first use after a change.
    generations: OnceLock<BTreeMap<i64, PoolGeneration>>,
    in_use: KeyedMap<String, DeviceUse>,
}

/// The slices of one generation of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolGeneration {
    /// By name.
    pub(crate) slices: Vec<Arc<PublishedSlice>>,
    /// The counters that partitions of devices share.
    pub(crate) counters: Counters,
    /// True when device names are not unique, or devices consume counters that do not exist.
    pub(crate) is_invalid: bool,
}

/// What claims have allocated of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceUse {
    exclusive: u32,
    shares: u32,
    amounts: DeviceAmounts,
}

impl DeviceUse {
    /// True when a claim has the whole device.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.exclusive > 0
    }

    /// The amounts that claims have allocated, if they share the device.
    pub(crate) fn shared(&self) -> Option<&DeviceAmounts> {
        (self.shares > 0).then_some(&self.amounts)
    }

    fn change(&mut self, result: &DeviceResult, added: bool) {
        let count = |n: &mut u32| *n = if added { *n + 1 } else { n.saturating_sub(1) };
        if result.share_id.is_none() {
            return count(&mut self.exclusive);
        }
        count(&mut self.shares);
        for (name, amount) in &result.consumed_capacity {
            let sum = self.amounts.entry(name.clone()).or_insert_with(|| Quantity::new(0, amount.format()));
            if added { sum.add(amount) } else { sum.sub(amount) }
        }
    }
}

/// A ResourceSlice with what is computed from it once.
#[derive(Debug)]
pub(crate) struct PublishedSlice {
    pub(crate) slice: Arc<ResourceSlice>,
    nodes: NodeSelection,
    /// The nodes of each device, with `perDeviceNodeSelection`.
    devices: Vec<NodeSelection>,
    /// The results of CEL expressions, by device.
    selector_results: Mutex<SelectorResults>,
}

/// What expressions answered for the devices of a slice; those that were asked last are kept.
#[derive(Debug, Default)]
struct SelectorResults {
    by_expression: KeyedMap<Arc<str>, ExpressionResults>,
    clock: u64,
}

#[derive(Debug)]
struct ExpressionResults {
    used: u64,
    /// By device: whether it matches.
    answers: Vec<Option<bool>>,
    /// The devices for which the expression fails; a search ends at the first.
    errors: BTreeMap<usize, String>,
}

impl SelectorResults {
    fn get(&mut self, expression: &str, device: usize) -> Option<Result<bool, String>> {
        self.clock += 1;
        let results = self.by_expression.get_mut(expression)?;
        results.used = self.clock;
        match results.answers[device] {
            Some(answer) => Some(Ok(answer)),
            None => results.errors.get(&device).map(|error| Err(error.clone())),
        }
    }

    fn keep(&mut self, expression: &Arc<str>, device: usize, devices: usize, answer: Result<bool, String>) {
        if !self.by_expression.contains_key(expression) && self.by_expression.len() >= EXPRESSIONS_MAX {
            let oldest = self.by_expression.iter().min_by_key(|(_, results)| results.used);
            if let Some(oldest) = oldest.map(|(expression, _)| expression.clone()) {
                self.by_expression.remove(&oldest);
            }
        }
        let used = self.clock;
        let results = self.by_expression.entry(expression.clone()).or_insert_with(|| ExpressionResults {
            used,
            answers: vec![None; devices],
            errors: BTreeMap::new(),
        });
        match answer {
            Ok(answer) => results.answers[device] = Some(answer),
            Err(error) => drop(results.errors.insert(device, error)),
        }
    }
}

/// The nodes that can access a slice or a device.
#[derive(Debug)]
enum NodeSelection {
    Node(String),
    Everywhere,
    Matching(NodeMatcher),
    Unreadable(String),
    Nowhere,
}

impl NodeSelection {
    fn new(name: Option<&str>, all: bool, selector: Option<&NodeSelector>) -> Self {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            return NodeSelection::Node(name.to_owned());
        }
        if all {
            return NodeSelection::Everywhere;
        }
        let Some(selector) = selector else { return NodeSelection::Nowhere };
        let matcher = NodeMatcher::new(selector);
        match matcher.errors().first() {
            Some(error) => NodeSelection::Unreadable(format!("failed to parse node selector: {error}")),
            None => NodeSelection::Matching(matcher),
        }
    }

    fn includes(&self, node: &Node) -> Result<bool, String> {
        match self {
            NodeSelection::Node(name) => Ok(node.metadata.name == *name),
            NodeSelection::Everywhere => Ok(true),
            NodeSelection::Matching(matcher) => Ok(matcher.matches(node)),
            NodeSelection::Unreadable(error) => Err(error.clone()),
            NodeSelection::Nowhere => Ok(false),
        }
    }
}

impl PublishedSlice {
    fn new(slice: Arc<ResourceSlice>) -> Self {
        let spec = &slice.spec;
        let of_device = |d: &Device| NodeSelection::new(d.node_name.as_deref(), d.all_nodes, d.node_selector.as_ref());
        PublishedSlice {
            nodes: NodeSelection::new(spec.node_name.as_deref(), spec.all_nodes, spec.node_selector.as_ref()),
            devices: spec.devices.iter().filter(|_| spec.per_device_node_selection).map(of_device).collect(),
            selector_results: Mutex::default(),
            slice,
        }
    }

    /// True when the slice may matter for a node.
    pub(crate) fn is_relevant(&self, node: &Node) -> Result<bool, String> {
        let spec = &self.slice.spec;
        if !spec.shared_counters.is_empty() {
            return Ok(true);
        }
        let name = &self.slice.metadata.name;
        if spec.node_name.as_ref().is_some_and(|n| !n.is_empty()) || spec.all_nodes || spec.node_selector.is_some() {
            return self.nodes.includes(node).map_err(|error| {
                format!("gather pool information: failed to perform node selection for slice {name}: {error}")
            });
        }
        for (device, nodes) in spec.devices.iter().zip(&self.devices) {
            let device = &device.name;
            if nodes.includes(node).map_err(|error| {
                format!(
                    "gather pool information: failed to perform node selection for device {device} in slice {name}: \
                     {error}"
                )
            })? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True when a node that can access the slice can access a device of it.
    pub(crate) fn device_is_accessible(&self, device: usize, node: &Node) -> Result<bool, String> {
        self.devices.get(device).map_or(Ok(true), |nodes| nodes.includes(node))
    }

    /// What a CEL expression answered for a device, if it was asked.
    pub(crate) fn selector_result(&self, expression: &str, device: usize) -> Option<Result<bool, String>> {
        self.results().get(expression, device)
    }

    /// Keeps what an expression answered for a device; the slice does not change, and so neither does the answer.
    pub(crate) fn keep_selector_result(&self, expression: &Arc<str>, device: usize, answer: Result<bool, String>) {
        self.results().keep(expression, device, self.slice.spec.devices.len(), answer);
    }

    fn results(&self) -> MutexGuard<'_, SelectorResults> {
        // After a panic the map is still valid: each result is written at once.
        self.selector_results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self) -> (&str, &str) {
        (&self.slice.metadata.namespace, &self.slice.metadata.name)
    }
}

fn insert(list: &mut Vec<Arc<PublishedSlice>>, slice: &Arc<PublishedSlice>) {
    let at = list.partition_point(|known| known.key() < slice.key());
    list.insert(at, slice.clone());
}

fn remove(list: &mut Vec<Arc<PublishedSlice>>, slice: &ResourceSlice) {
    let meta = &slice.metadata;
    list.retain(|known| known.key() != (meta.namespace.as_str(), meta.name.as_str()));
}

impl PoolGeneration {
    fn new(slices: Vec<Arc<PublishedSlice>>) -> Self {
        let counters = counters(&slices);
        let is_invalid = counters.as_ref().is_none_or(|counters| !is_valid(&slices, counters));
        PoolGeneration { slices, counters: counters.unwrap_or_default(), is_invalid }
    }
}

/// The shared counters of a pool; none when a set is defined twice.
fn counters(slices: &[Arc<PublishedSlice>]) -> Option<Counters> {
    let mut sets = BTreeSet::new();
    let mut counters = Counters::new();
    for set in slices.iter().flat_map(|known| &known.slice.spec.shared_counters) {
        if !sets.insert(&set.name) {
            return None;
        }
        counters.extend(set.counters.iter().map(|(name, c)| ((set.name.clone(), name.clone()), c.value.clone())));
    }
    Some(counters)
}

/// True when device names are unique, and devices consume only counters that exist.
fn is_valid(slices: &[Arc<PublishedSlice>], counters: &Counters) -> bool {
    let mut names = BTreeSet::new();
    let mut devices = slices.iter().flat_map(|known| &known.slice.spec.devices);
    devices.all(|device| {
        names.insert(&device.name) && consumed(device).all(|(counter, _)| counters.contains_key(&counter))
    })
}

/// What a device consumes of its pool's counters.
pub(crate) fn consumed(device: &Device) -> impl Iterator<Item = ((String, String), &Quantity)> {
    device.consumes_counters.iter().flat_map(|consumption| {
        let set = &consumption.counter_set;
        consumption.counters.iter().map(move |(name, counter)| ((set.clone(), name.clone()), &counter.value))
    })
}

impl DevicePool {
    /// A generation of the pool's slices.
    pub(crate) fn generation(&self, number: i64) -> Option<&PoolGeneration> {
        let generations = self.generations.get_or_init(|| {
            let mut slices: BTreeMap<i64, Vec<Arc<PublishedSlice>>> = BTreeMap::new();
            for known in &self.slices {
                slices.entry(known.slice.spec.pool.generation).or_default().push(known.clone());
            }
            slices.into_iter().map(|(number, slices)| (number, PoolGeneration::new(slices))).collect()
        });
        generations.get(&number)
    }

    /// True when there are slices of a later generation.
    pub(crate) fn has_later(&self, generation: i64) -> bool {
        self.slices.iter().any(|known| known.slice.spec.pool.generation > generation)
    }

    /// What claims have allocated of a device, if anything.
    pub(crate) fn in_use(&self, device: &str) -> Option<&DeviceUse> {
        self.in_use.get(device)
    }

    fn is_empty(&self) -> bool {
        self.slices.is_empty() && self.in_use.is_empty()
    }
}

impl Devices {
    /// The slices for a node: its own, then the shared ones; each group by name.
    pub(crate) fn slices_for(&self, node: &str) -> impl Iterator<Item = &Arc<PublishedSlice>> {
        self.by_node.get(node).into_iter().flatten().chain(&self.shared)
    }

    /// A pool by driver and name.
    pub(crate) fn pool(&self, driver: &str, name: &str) -> Option<&DevicePool> {
        self.pools.get(driver)?.get(name)
    }

    /// Changes a pool; an empty one is removed.
    fn change_pool(&mut self, driver: &str, name: &str, change: impl FnOnce(&mut DevicePool)) {
        if !self.pools.contains_key(driver) {
            self.pools.insert(driver.to_owned(), KeyedMap::default());
        }
        let Some(of_driver) = self.pools.get_mut(driver) else { return };
        if !of_driver.contains_key(name) {
            of_driver.insert(name.to_owned(), DevicePool::default());
        }
        let Some(pool) = of_driver.get_mut(name) else { return };
        change(pool);
        if pool.is_empty() {
            of_driver.remove(name);
            if of_driver.is_empty() {
                self.pools.remove(driver);
            }
        }
    }

    pub(super) fn slice_changed(&mut self, old: Option<&ResourceSlice>, new: Option<&Arc<ResourceSlice>>) {
        if let Some(old) = old {
            match own_node(old) {
                None => remove(&mut self.shared, old),
                Some(node) => {
                    if let Some(list) = self.by_node.get_mut(node) {
                        remove(list, old);
                        if list.is_empty() {
                            self.by_node.remove(node);
                        }
                    }
                }
            }
            self.change_pool(&old.spec.driver, &old.spec.pool.name, |pool| {
                remove(&mut pool.slices, old);
                pool.generations = OnceLock::new();
            });
        }
        if let Some(new) = new {
            let known = Arc::new(PublishedSlice::new(new.clone()));
            match own_node(new) {
                None => insert(&mut self.shared, &known),
                Some(node) => insert(self.by_node.entry(node.to_owned()).or_default(), &known),
            }
            self.change_pool(&new.spec.driver, &new.spec.pool.name, |pool| {
                insert(&mut pool.slices, &known);
                pool.generations = OnceLock::new();
            });
        }
    }

    /// Counts the devices of a claim's allocation, or takes them away. Admin access does not use devices.
    pub(super) fn count(&mut self, results: &[DeviceResult], added: bool) {
        for result in results.iter().filter(|result| result.admin_access != Some(true)) {
            self.change_pool(&result.driver, &result.pool, |pool| {
                if !pool.in_use.contains_key(&result.device) {
                    pool.in_use.insert(result.device.clone(), DeviceUse::default());
                }
                let Some(in_use) = pool.in_use.get_mut(&result.device) else { return };
                in_use.change(result, added);
                if in_use.exclusive == 0 && in_use.shares == 0 {
                    pool.in_use.remove(&result.device);
                }
            });
        }
    }
}

/// The only node of a slice.
fn own_node(slice: &ResourceSlice) -> Option<&str> {
    let node = slice.spec.node_name.as_deref().filter(|name| !name.is_empty());
    node.filter(|_| slice.spec.shared_counters.is_empty())
}
