//! Hints by annotation `service.kubernetes.io/topology-mode: Auto`: each zone gets a share of the endpoints as large as
//! its share of the cluster's processors.

use std::collections::BTreeMap;

use bayplan_model::api::EventType;
use bayplan_model::keyed::{KeyedMap, KeyedSet};
use bayplan_model::node::LABEL_ZONE;
use bayplan_model::quantity::Quantity;

use super::changes::Changes;
use super::hints;
use super::object::{Endpoint, EndpointHints, EndpointSlice, Place};
use crate::cache::Store;
use crate::node::Node;
use crate::service::Family;

/// No endpoint may get more than its share of the load by more than this part.
const OVERLOAD_MAX: f64 = 0.2;

/// Nodes with these labels do not count: no ordinary pods run there.
const EXCLUDED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Endpoints by zone.
type ByZone = BTreeMap<String, usize>;

/// An event that tells of the hints of a Service.
pub(super) type HintEvent = (EventType, &'static str, String);

/// The zones, and the hints that were given.
#[derive(Debug)]
pub(super) struct Topology {
    /// The share of the processors in each zone; none when nodes do not say enough.
    ratios: Option<BTreeMap<String, f64>>,
    /// By Service and family.
    given: KeyedMap<String, BTreeMap<Family, ByZone>>,
    /// The Services of which it was said that they have hints.
    populated: KeyedSet<String>,
}

impl Default for Topology {
    fn default() -> Self {
        Topology { ratios: Some(BTreeMap::new()), given: KeyedMap::default(), populated: KeyedSet::default() }
    }
}

/// How many endpoints a zone should have.
#[derive(Clone, Copy, Debug, Default)]
struct Allocation {
    minimum: usize,
    maximum: usize,
    desired: f64,
}

/// The event that says why there are no hints.
fn disabled(why: &str, family: Family) -> HintEvent {
    (EventType::Warning, "TopologyAwareHintsDisabled", format!("{why}, addressType: {family}"))
}

#[allow(clippy::cast_precision_loss, reason = "numbers of endpoints and thousandths of processors are far below 2^52")]
fn float(number: impl TryInto<u64>) -> f64 {
    number.try_into().map_or(0.0, |number| number as f64)
}

/// The least whole number that is not below; numbers here are small and positive.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a number of endpoints")]
fn ceiling(number: f64) -> usize {
    number.ceil() as usize
}

impl Topology {
    /// Reads the nodes again; the keys of Services whose hints overload a zone now.
    pub(super) fn set_nodes(&mut self, nodes: &Store<Node>) -> Vec<String> {
        self.ratios = ratios(nodes);
        let overloads = |zones: &ByZone| is_overloaded(zones, self.ratios.as_ref());
        let overloaded = self.given.iter().filter(|(_, families)| families.values().any(overloads));
        let mut keys: Vec<String> = overloaded.map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys
    }

    /// Forgets the hints of a Service.
    pub(super) fn forget(&mut self, service: &str, family: Family) {
        if let Some(families) = self.given.get_mut(service) {
            families.remove(&family);
            if families.is_empty() {
                self.given.remove(service);
            }
        }
        self.populated.remove(service);
    }

    /// Gives every ready endpoint a zone, or takes all hints away and says why.
    pub(super) fn apply(&mut self, service: &str, family: Family, changes: &mut Changes) -> Option<HintEvent> {
        match self.allocate(changes) {
            Ok(by_zone) => {
                self.given.entry(service.to_owned()).or_default().insert(family, by_zone);
                let said = format!("Topology Aware Hints has been enabled, addressType: {family}");
                let event = (EventType::Normal, "TopologyAwareHintsEnabled", said);
                self.populated.insert(service.to_owned()).then_some(event)
            }
            Err(why) => {
                self.forget(service, family);
                hints::remove(changes);
                Some(disabled(&why, family))
            }
        }
    }

    /// The Service asks for no such hints any more.
    pub(super) fn withdraw(&mut self, service: &str, family: Family) -> Option<HintEvent> {
        let event = disabled("Topology Aware Hints has been disabled", family);
        let said = self.populated.contains(service).then_some(event);
        self.forget(service, family);
        said
    }

    fn allocate(&self, changes: &mut Changes) -> Result<ByZone, String> {
        let unchanged = changes.unchanged.iter().map(AsRef::as_ref);
        let all = changes.create.iter().chain(&changes.update).chain(unchanged);
        let ready = all.flat_map(|slice| &slice.endpoints).filter(|endpoint| endpoint.is_ready()).count();
        let allocations = self.allocations(ready)?;
        let mut by_zone = ByZone::new();
        hints::write_also(changes, |slice| match hints_by_zone(slice, &by_zone, &allocations) {
            Some(found) => {
                found.into_iter().for_each(|(zone, count)| *by_zone.entry(zone).or_default() += count);
                false
            }
            None => true,
        });
        let written = changes.create.iter_mut().chain(&mut changes.update);
        for endpoint in written.flat_map(|slice| &mut slice.endpoints).filter(|endpoint| endpoint.is_ready()) {
            let Some(zone) = endpoint.zone.clone().filter(|zone| !zone.is_empty()) else {
                return Err("One or more endpoints do not have a zone specified".into());
            };
            *by_zone.entry(zone.clone()).or_default() += 1;
            endpoint.hints = Some(for_zone(&zone));
        }
        redistribute(changes, &allocations, &mut by_zone);
        if by_zone.is_empty() {
            return Err("No hints allocated for zones".into());
        }
        Ok(by_zone)
    }

    /// How many of so many endpoints each zone should have; the error is why there is no answer.
    fn allocations(&self, endpoints: usize) -> Result<BTreeMap<String, Allocation>, String> {
        let Some(ratios) = &self.ratios else {
            let why = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
            return Err(why.into());
        };
        let counts = format!("({endpoints} endpoints, {} zones)", ratios.len());
        if ratios.len() < 2 {
            return Err("Nodes only ready in one zone".into());
        }
        if ratios.len() > endpoints {
            return Err(format!("Insufficient number of endpoints {counts}"));
        }
        let mut allocations = BTreeMap::new();
        let mut minimum_total = 0;
        for (zone, ratio) in ratios {
            let desired = ratio * float(endpoints);
            let minimum = ceiling(desired * (1.0 / (1.0 + OVERLOAD_MAX)));
            minimum_total += minimum;
            let desired = desired.max(float(minimum));
            allocations.insert(zone.clone(), Allocation { minimum, desired, maximum: 0 });
        }
        let Some(spare) = endpoints.checked_sub(minimum_total) else {
            let why = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";
            return Err(format!("{why} {counts}"));
        };
        for allocation in allocations.values_mut() {
            allocation.maximum = allocation.minimum + spare;
        }
        Ok(allocations)
    }
}

fn for_zone(zone: &str) -> EndpointHints {
    EndpointHints { for_zones: vec![Place { name: zone.to_owned() }], for_nodes: Vec::new() }
}

/// The share of each zone in the processors of ready nodes; none when one of them does not say where it is or what it
/// has, or when all are in one zone.
fn ratios(nodes: &Store<Node>) -> Option<BTreeMap<String, f64>> {
    let mut by_zone: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut total = Quantity::default();
    for node in nodes.all() {
        let labels = &node.metadata.labels;
        if EXCLUDED.iter().any(|excluded| labels.contains_key(excluded)) || !node.is_ready() {
            continue;
        }
        let zone = labels.get(LABEL_ZONE).filter(|zone| !zone.is_empty())?;
        let cpu = node.status.allocatable.cpu.as_ref().filter(|cpu| !cpu.is_zero())?;
        total.add(cpu);
        by_zone.entry(zone).or_default().add(cpu);
    }
    let total = float(total.milli_value());
    let ratio = |(zone, cpu): (&str, Quantity)| (zone.to_owned(), float(cpu.milli_value()) / total);
    (by_zone.len() >= 2 && total > 0.0).then(|| by_zone.into_iter().map(ratio).collect())
}

/// Whether a zone has fewer endpoints than it needs.
fn is_overloaded(zones: &ByZone, ratios: Option<&BTreeMap<String, f64>>) -> bool {
    if zones.is_empty() {
        return false;
    }
    let Some(ratios) = ratios.filter(|ratios| !ratios.is_empty()) else { return true };
    let total = float(zones.values().sum::<usize>());
    ratios.iter().any(|(zone, ratio)| {
        let minimum = ceiling(total * ratio * (1.0 / (1.0 + OVERLOAD_MAX)));
        zones.get(zone).is_none_or(|count| *count < minimum)
    })
}

/// The hints of a slice that needs no change; none when one of them is missing, is for a zone that should have none, or
/// is one too many.
fn hints_by_zone(slice: &EndpointSlice, others: &ByZone, allocations: &BTreeMap<String, Allocation>) -> Option<ByZone> {
    let mut by_zone = ByZone::new();
    for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.is_ready()) {
        let zones = endpoint.hints.as_ref().map(|hints| &hints.for_zones).filter(|zones| !zones.is_empty())?;
        for zone in zones {
            allocations.get(&zone.name)?;
            *by_zone.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = |(zone, count): (&String, &usize)| {
        let others = others.get(zone).copied().unwrap_or(0);
        allocations.get(zone).is_some_and(|allocation| count + others <= allocation.maximum)
    };
    by_zone.iter().all(fits).then_some(by_zone)
}

/// Moves single endpoints from zones that have too many to zones that have too few.
fn redistribute(changes: &mut Changes, allocations: &BTreeMap<String, Allocation>, by_zone: &mut ByZone) {
    let (mut giving, mut receiving) = moves(allocations, by_zone);
    let written = changes.create.iter_mut().chain(&mut changes.update);
    // Which of a zone's endpoints move is arbitrary; those that came last do.
    let last_first = written.flat_map(|slice| &mut slice.endpoints).filter(|endpoint| endpoint.is_ready()).rev();
    for endpoint in last_first {
        let Endpoint { zone: Some(from), hints, .. } = endpoint else { continue };
        if !giving.contains_key(from) {
            continue;
        }
        let Some(to) = receiving.keys().next().cloned() else { return };
        *hints = Some(for_zone(&to));
        take_one(&mut giving, from);
        take_one(&mut receiving, &to);
        *by_zone.entry(to).or_default() += 1;
        by_zone.entry(from.clone()).and_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Takes one away; what is used up is gone.
fn take_one(counts: &mut ByZone, zone: &str) {
    if let Some(count) = counts.get_mut(zone) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(zone);
        }
    }
}

/// How many endpoints each zone gives to others, and how many each gets.
fn moves(allocations: &BTreeMap<String, Allocation>, by_zone: &ByZone) -> (ByZone, ByZone) {
    let (mut surplus, mut lack): (BTreeMap<&str, f64>, BTreeMap<&str, f64>) = Default::default();
    for (zone, allocation) in allocations {
        let difference = float(by_zone.get(zone).copied().unwrap_or(0)) - allocation.desired;
        if difference > 0.0 {
            surplus.insert(zone, difference);
        } else if difference < 0.0 {
            lack.insert(zone, -difference);
        }
    }
    let (mut giving, mut receiving) = (ByZone::new(), ByZone::new());
    while let (Some((from, most)), Some((to, least))) = (largest(&mut surplus), largest(&mut lack)) {
        if (*most < 1.0 && *least < 1.0) || *most < 0.5 || *least < 0.5 {
            break;
        }
        *giving.entry(from.to_owned()).or_default() += 1;
        *receiving.entry(to.to_owned()).or_default() += 1;
        *most -= 1.0;
        *least -= 1.0;
    }
    (giving, receiving)
}

/// The first zone with the largest number above zero.
fn largest<'a, 'b>(numbers: &'b mut BTreeMap<&'a str, f64>) -> Option<(&'a str, &'b mut f64)> {
    let first_largest = |best: Option<(&'a str, &'b mut f64)>, (zone, number): (&&'a str, &'b mut f64)| match best {
        Some((known, largest)) if *largest >= *number => Some((known, largest)),
        _ => Some((*zone, number)),
    };
    numbers.iter_mut().fold(None, first_largest).filter(|(_, number)| **number > 0.0)
}
