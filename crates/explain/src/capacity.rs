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

    /// Leaves out what does not count: requests that ask for more than others in every way.
    pub(crate) fn reduce(&mut self) {
        let kept: BTreeSet<Vec<(Arc<str>, i64)>> = self.smallest().into_values().flatten().map(<[_]>::to_vec).collect();
        self.seen = kept;
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

/// The sums of one resource over the nodes that take pods.
struct Sums {
    name: String,
    /// Whether a node has any of it to allocate.
    is_allocatable: bool,
    allocatable: i128,
    requested: i128,
    free: i128,
    unusable: i128,
    /// The most that one node has free, and which.
    hole: Option<(i64, Arc<str>)>,
}

/// The sums by resource. Clusters have few resources: a list is searched faster than a map.
#[derive(Default)]
struct Totals(Vec<Sums>);

impl Capacity {
    /// Measures a cluster.
    pub fn of(cluster: &Cluster, pending: usize, mix: &Mix) -> Self {
        let smallest = mix.smallest();
        let mut totals = Totals::default();
        let mut pods = 0;
        for node in cluster.nodes() {
            pods += node.pods().len();
            if !node.node().spec.unschedulable {
                totals.add(node, &smallest);
            }
        }
        let Totals(mut all) = totals;
        all.sort_by(|one, other| one.name.cmp(&other.name));
        let holes = || {
            let allocatable = all.iter().filter(|sums| sums.is_allocatable);
            allocatable.filter_map(|sums| sums.hole.as_ref().map(|(free, node)| (&sums.name, *free, node)))
        };
        Capacity {
            nodes: cluster.node_count(),
            pods,
            pending,
            utilisation: shares(&all, |sums| (sums.requested, sums.allocatable)),
            largest_hole: holes().map(|(name, free, _)| (name.clone(), quantity(name, free))).collect(),
            largest_hole_nodes: holes().map(|(name, _, node)| (name.clone(), node.to_string())).collect(),
            fragmented: shares(&all, |sums| (sums.unusable, sums.free)),
        }
    }
}

impl Totals {
    fn of(&mut self, name: &str) -> &mut Sums {
        let at = self.0.iter().position(|sums| sums.name == name).unwrap_or_else(|| {
            let name = name.to_owned();
            let (allocatable, requested, free, unusable) = (0, 0, 0, 0);
            self.0.push(Sums { name, is_allocatable: false, allocatable, requested, free, unusable, hole: None });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    fn add(&mut self, node: &NodeInfo, smallest: &RequestsFor<'_>) {
        let pods = node.pods().len() as i64;
        let has_slot = pods < node.allocatable.pods;
        let slots = self.of(PODS);
        slots.allocatable += i128::from(node.allocatable.pods);
        slots.requested += i128::from(pods);
        for (name, amount) in amounts(&node.allocatable) {
            let requested = node.requested.get(name);
            let free = amount.saturating_sub(requested).max(0);
            let sums = self.of(name);
            if amount > 0 {
                sums.is_allocatable = true;
                sums.allocatable += i128::from(amount);
                sums.requested += i128::from(requested);
            }
            if has_slot && sums.hole.as_ref().is_none_or(|(most, _)| free > *most) {
                sums.hole = Some((free, node.name.clone()));
            }
            // Without a pod that asks for it there is nothing to say.
            let Some(requests) = smallest.get(name).filter(|_| free > 0) else { continue };
            sums.free += i128::from(free);
            if !(has_slot && requests.iter().any(|request| fits(node, request))) {
                sums.unusable += i128::from(free);
            }
        }
    }
}

fn fits(node: &NodeInfo, request: &Request) -> bool {
    request.iter().all(|(name, amount)| *amount <= node.allocatable.get(name).saturating_sub(node.requested.get(name)))
}

/// Parts of wholes, to six digits; a whole of nothing has no share.
fn shares(all: &[Sums], of: impl Fn(&Sums) -> (i128, i128)) -> Shares {
    let share = |sums: &Sums| {
        let (part, whole) = of(sums);
        (whole > 0).then(|| (sums.name.clone(), (part as f64 / whole as f64 * 1e6).round() / 1e6))
    };
    all.iter().filter_map(share).collect()
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
