//! How full a cluster is: utilisation, the largest hole, and what of the free resources nobody can use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_model::quantity::{Format, Quantity};
use bayplan_model::resources::{Amounts, CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use bayplan_scheduler::{Cluster, NodeInfo};
use serde::Serialize;

/// Numbers by resource name.
pub type Shares = BTreeMap<String, f64>;

/// A cluster in numbers; `State` of `bayplan.dev/v1`.
///
/// Shares and holes are of the nodes that take pods: cordoned ones are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// All nodes.
    pub nodes: usize,
    /// The pods on them.
    pub pods: usize,
    /// The pods without a node.
    pub pending: usize,
    /// What is requested of what can be allocated.
    pub utilisation: Shares,
    /// The most of each resource that one node has free.
    pub largest_hole: BTreeMap<String, String>,
    /// The node that has it.
    pub largest_hole_nodes: BTreeMap<String, String>,
    /// The share of each free resource that lies on nodes where no pod of the mix that asks for it fits.
    pub fragmented: Shares,
}

/// One pod's request: resources and amounts.
type Request = [(Arc<str>, i64)];

/// Requests by resource.
type RequestsFor<'a> = BTreeMap<&'a str, Vec<&'a Request>>;

/// What pods ask for: of all requests that were seen, those that are smallest in some way.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    seen: BTreeSet<Vec<(Arc<str>, i64)>>,
}

impl Mix {
    /// The pods of a cluster.
    pub fn of(cluster: &Cluster) -> Self {
        let mut mix = Mix::default();
        let mut last: *const Amounts = std::ptr::null();
        for pod in cluster.nodes().flat_map(NodeInfo::pods) {
            let requested = &pod.usage.requested;
            if !std::ptr::eq(last, requested) {
                mix.add(requested);
            }
            last = requested;
        }
        mix
    }

    /// Adds a pod's request.
    pub fn add(&mut self, requested: &Amounts) {
        let entries = amounts(requested).filter(|(_, amount)| *amount > 0);
        self.seen.insert(entries.map(|(name, amount)| (Arc::from(name), amount)).collect());
    }

    /// For each resource, the requests for it that no smaller one makes superfluous.
    fn smallest(&self) -> RequestsFor<'_> {
        let mut smallest = RequestsFor::new();
        for request in &self.seen {
            for (resource, _) in request {
                let kept = smallest.entry(resource).or_default();
                if kept.iter().any(|other| at_most(other, request)) {
                    continue;
                }
                kept.retain(|other| !at_most(request, other));
                kept.push(request);
            }
        }
        smallest
    }
}

/// Whether a request asks for no more of anything than another.
fn at_most(request: &Request, other: &Request) -> bool {
    request.iter().all(|(name, amount)| other.iter().any(|(of, bound)| of == name && amount <= bound))
}

/// All amounts but the number of pods, by name.
fn amounts(amounts: &Amounts) -> impl Iterator<Item = (&str, i64)> {
    let basic = [(CPU, amounts.milli_cpu), (MEMORY, amounts.memory), (EPHEMERAL_STORAGE, amounts.ephemeral_storage)];
    basic.into_iter().chain(amounts.scalars.iter().map(|(name, amount)| (&**name, *amount)))
}

/// The sums over the nodes that take pods.
#[derive(Default)]
struct Totals {
    allocatable: BTreeMap<String, i128>,
    requested: BTreeMap<String, i128>,
    free: BTreeMap<String, i128>,
    unusable: BTreeMap<String, i128>,
}

impl Capacity {
    /// Measures a cluster.
    pub fn of(cluster: &Cluster, pending: usize, mix: &Mix) -> Self {
        let smallest = mix.smallest();
        let mut totals = Totals::default();
        let mut holes: BTreeMap<String, (i64, Arc<str>)> = BTreeMap::new();
        let mut pods = 0;
        for node in cluster.nodes() {
            pods += node.pods().len();
            if node.node().spec.unschedulable {
                continue;
            }
            totals.add(node, &smallest);
            let has_slot = (node.pods().len() as i64) < node.allocatable.pods;
            for (name, free) in free(node).filter(|_| has_slot) {
                let known = holes.entry(name.to_owned()).or_insert_with(|| (0, node.name.clone()));
                if free > known.0 {
                    *known = (free, node.name.clone());
                }
            }
        }
        holes.retain(|name, _| totals.allocatable.contains_key(name));
        Capacity {
            nodes: cluster.node_count(),
            pods,
            pending,
            utilisation: shares(&totals.requested, &totals.allocatable),
            largest_hole: holes.iter().map(|(name, (free, _))| (name.clone(), quantity(name, *free))).collect(),
            largest_hole_nodes: holes.into_iter().map(|(name, (_, node))| (name, node.to_string())).collect(),
            fragmented: shares(&totals.unusable, &totals.free),
        }
    }
}

impl Totals {
    fn add(&mut self, node: &NodeInfo, smallest: &RequestsFor<'_>) {
        let sum = |into: &mut BTreeMap<String, i128>, name: &str, amount: i64| match into.get_mut(name) {
            Some(sum) => *sum += i128::from(amount),
            None => drop(into.insert(name.to_owned(), i128::from(amount))),
        };
        for (name, amount) in amounts(&node.allocatable).filter(|(_, amount)| *amount > 0) {
            sum(&mut self.allocatable, name, amount);
            sum(&mut self.requested, name, node.requested.get(name));
        }
        sum(&mut self.allocatable, PODS, node.allocatable.pods);
        sum(&mut self.requested, PODS, node.pods().len() as i64);
        let has_slot = (node.pods().len() as i64) < node.allocatable.pods;
        for (name, free) in free(node).filter(|(_, free)| *free > 0) {
            // Without a pod that asks for it there is nothing to say.
            let Some(requests) = smallest.get(name) else { continue };
            sum(&mut self.free, name, free);
            let fits = has_slot && requests.iter().any(|request| fits(node, request));
            sum(&mut self.unusable, name, if fits { 0 } else { free });
        }
    }
}

fn fits(node: &NodeInfo, request: &Request) -> bool {
    request.iter().all(|(name, amount)| *amount <= node.allocatable.get(name).saturating_sub(node.requested.get(name)))
}

/// What a node has free of each resource.
fn free(node: &NodeInfo) -> impl Iterator<Item = (&str, i64)> {
    amounts(&node.allocatable).map(|(name, amount)| (name, amount.saturating_sub(node.requested.get(name)).max(0)))
}

/// Parts of wholes, to six digits; a whole of nothing has no share.
fn shares(parts: &BTreeMap<String, i128>, wholes: &BTreeMap<String, i128>) -> Shares {
    let share = |(name, whole): (&String, &i128)| {
        let part = parts.get(name).copied().unwrap_or(0);
        (*whole > 0).then(|| (name.clone(), (part as f64 / *whole as f64 * 1e6).round() / 1e6))
    };
    wholes.iter().filter_map(share).collect()
}

/// An amount as Kubernetes writes it.
pub(crate) fn quantity(resource: &str, amount: i64) -> String {
    match resource {
        CPU => Quantity::milli(amount, Format::DecimalSI),
        MEMORY | EPHEMERAL_STORAGE => Quantity::new(amount, Format::BinarySI),
        name if name.starts_with("hugepages-") => Quantity::new(amount, Format::BinarySI),
        _ => Quantity::new(amount, Format::DecimalSI),
    }
    .to_string()
}
