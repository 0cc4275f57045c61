//! Allocates devices of one node to the claims of a pod: the first solution of an ordered search.
//!
//! Claims, requests, alternatives and devices are tried in order, depth first. Within a request, the search goes on
//! after the device chosen last, so that it tries no set of devices twice.

use std::collections::BTreeMap;

use bayplan_model::affinity::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use bayplan_model::node::Node;
use bayplan_model::resource_claim::{AllocationResult, DeviceAllocationResult, DeviceResult};
use bayplan_model::resource_slice::Device;
use bayplan_model::taint::untolerated;
use rustc_hash::FxHashMap;

use super::capacity::{Amounts, consumption, fits};
use super::constraint::ConstraintState;
use super::device_config::device_config;
use super::pools::{Pool, pools};
use super::requests::{Alternative, ClaimRequests, Refusal};
use super::work::{CHOICE, Work};
use crate::cluster::devices::{Counters, DeviceUse, Devices, PublishedSlice, consumed};

/// The most devices a claim may have: the API's `AllocationResultsMaxSize`.
const DEVICES_MAX: usize = 32;

/// Why nothing was allocated.
#[derive(Debug)]
pub(super) enum AllocationError {
    /// No set of devices satisfies all claims.
    NoSolution,
    /// The same, but some pool of the node is invalid and was left out.
    InvalidPools,
    /// The search used up its share of work.
    TimedOut,
    /// A claim or a slice is invalid.
    Error(String),
}

impl From<String> for AllocationError {
    fn from(error: String) -> Self {
        AllocationError::Error(error)
    }
}

impl From<Stop> for AllocationError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::TooMany => AllocationError::NoSolution,
            Stop::TimedOut => AllocationError::TimedOut,
            Stop::Error(error) => AllocationError::Error(error),
        }
    }
}

/// What a claim gets.
#[derive(Clone, Debug, Default)]
pub(super) struct Allocation {
    pub(super) result: AllocationResult,
    /// `devices.config` of the result.
    pub(super) config: Vec<serde_json::Value>,
    /// By request with `firstAvailable`: the index of the alternative that was chosen.
    pub(super) chosen: BTreeMap<String, usize>,
}

/// Finds devices for claims on a node.
pub(super) fn allocate(
    devices: &Devices,
    claims: &[&ClaimRequests],
    node: &Node,
    work: &mut Work,
) -> Result<Vec<Allocation>, AllocationError> {
    let pools = pools(devices, node)?;
    let mut search = DeviceSearch::new(&pools, claims, node, work);
    search.prepare()?;
    match search.claim(0) {
        Ok(true) => Ok(search.results()?),
        Ok(false) | Err(Stop::TooMany) if pools.iter().any(Pool::is_invalid) => Err(AllocationError::InvalidPools),
        Ok(false) => Err(AllocationError::NoSolution),
        Err(stop) => Err(stop.into()),
    }
}

/// Why a branch of the search ends.
enum Stop {
    /// The claim would have too many devices; another alternative may need fewer.
    TooMany,
    TimedOut,
    Error(String),
}

impl From<String> for Stop {
    fn from(error: String) -> Self {
        Stop::Error(error)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TimedOut => Stop::TimedOut,
            Refusal::Error(error) => Stop::Error(error),
        }
    }
}

/// A device of the node, in the order in which devices are tried.
struct CandidateDevice<'a> {
    pool: usize,
    slice: &'a PublishedSlice,
    device: &'a Device,
    /// The device's index in its slice.
    at: usize,
    /// An allocated claim uses it exclusively.
    taken: bool,
    /// The capacity that allocated claims consume, when it is shared.
    shared: Option<&'a Amounts>,
    /// The claims of this search that have chosen it.
    users: Vec<usize>,
    /// The capacity that each choice of this search consumes, when it is shared.
    taking: Vec<Amounts>,
}

/// A device chosen for a request.
struct Choice {
    candidate: usize,
    request: usize,
    alternative: usize,
    consumed: Option<Amounts>,
    counted: bool,
}

/// Where the search is: a request of a claim, one of its alternatives, and how many devices that has so far.
#[derive(Clone, Copy)]
struct RequestPosition {
    claim: usize,
    request: usize,
    alternative: usize,
    device: usize,
}

struct DeviceSearch<'a> {
    node: &'a Node,
    pools: &'a [Pool<'a>],
    claims: &'a [&'a ClaimRequests],
    candidates: Vec<CandidateDevice<'a>>,
    /// By claim.
    constraints: Vec<Vec<ConstraintState<'a>>>,
    /// By (claim, request, alternative) with mode `All`: its candidates.
    all: FxHashMap<(usize, usize, usize), Vec<usize>>,
    selectable: FxHashMap<(usize, usize, usize, usize), bool>,
    /// By pool: the counters that allocated devices leave, and what this search consumes of them.
    available: FxHashMap<usize, Counters>,
    consumed: FxHashMap<usize, Counters>,
    /// By claim.
    chosen: Vec<Vec<Choice>>,
    work: &'a mut Work,
}

impl<'a> DeviceSearch<'a> {
    fn new(pools: &'a [Pool<'a>], claims: &'a [&'a ClaimRequests], node: &'a Node, work: &'a mut Work) -> Self {
        let mut candidates = Vec::new();
        for (i, pool) in pools.iter().enumerate() {
            for slice in &pool.slices {
                for (at, device) in slice.slice.spec.devices.iter().enumerate() {
                    let held = pool.known.in_use(&device.name);
                    candidates.push(CandidateDevice {
                        pool: i,
                        slice,
                        device,
                        at,
                        taken: held.is_some_and(DeviceUse::is_exclusive),
                        shared: held.and_then(DeviceUse::shared),
                        users: Vec::new(),
                        taking: Vec::new(),
                    });
                }
            }
        }
        DeviceSearch {
            node,
            pools,
            claims,
            candidates,
            constraints: Vec::new(),
            all: FxHashMap::default(),
            selectable: FxHashMap::default(),
            available: FxHashMap::default(),
            consumed: FxHashMap::default(),
            chosen: claims.iter().map(|_| Vec::new()).collect(),
            work,
        }
    }

    /// Validates the claims, and finds the candidates of requests with mode `All`.
    fn prepare(&mut self) -> Result<(), Stop> {
        let claims = self.claims;
        for (claim, of) in claims.iter().enumerate() {
            let key = of.claim.metadata.key();
            let mut least = 0usize;
            for (request, wanted) in of.requests.iter().enumerate() {
                let mut fewest = usize::MAX;
                for alternative in 0..wanted.alternatives.len() {
                    let at = RequestPosition { claim, request, alternative, device: 0 };
                    fewest = fewest.min(self.prepare_alternative(at, &key)?);
                }
                least = least.saturating_add(if wanted.alternatives.is_empty() { 0 } else { fewest });
            }
            if least > DEVICES_MAX {
                let error = format!(
                    "claim {key}: number of requested devices {least} exceeds the claim limit of {DEVICES_MAX}"
                );
                return Err(error.into());
            }
            let mut constraints = Vec::new();
            for (i, constraint) in of.claim.spec.devices.constraints.iter().enumerate() {
                constraints.push(ConstraintState::new(constraint).ok_or_else(|| {
                    format!("claim {key}, constraint #{i}: empty constraint (unsupported constraint type?)")
                })?);
            }
            self.constraints.push(constraints);
        }
        Ok(())
    }

    /// How many devices an alternative needs.
    fn prepare_alternative(&mut self, at: RequestPosition, claim: &str) -> Result<usize, Stop> {
        let alternative = self.alternative(at);
        let request = &alternative.short_name;
        if let Some(i) = alternative.unknown_selector() {
            return Err(Stop::Error(format!(
                "claim {claim}, request {request}, selector #{i}: CEL expression empty (unsupported selector type?)"
            )));
        }
        let class = &alternative.wanted.device_class_name;
        if class.is_empty() {
            return Err(Stop::Error(format!(
                "claim {claim}, request {request}: missing device class name (unsupported request type?)"
            )));
        }
        if alternative.class.is_none() {
            return Err(Stop::Error(format!(
                "claim {claim}, request {request}: could not retrieve device class {class}: \
                 deviceclass.resource.k8s.io {class:?} not found"
            )));
        }
        match alternative.wanted.allocation_mode.as_str() {
            "ExactCount" => Ok(usize::try_from(alternative.wanted.count).unwrap_or(0)),
            "All" => {
                let all = self.all_devices(at, claim)?;
                let count = all.len();
                self.all.insert((at.claim, at.request, at.alternative), all);
                Ok(count)
            }
            mode => Err(Stop::Error(format!("claim {claim}, request {request}: unsupported count mode {mode}"))),
        }
    }

    fn all_devices(&mut self, at: RequestPosition, claim: &str) -> Result<Vec<usize>, Stop> {
        let alternative = self.alternative(at);
        for pool in self.pools {
            let state = match (pool.is_incomplete, pool.is_invalid()) {
                (true, _) => "being updated",
                (_, true) => "invalid",
                _ => continue,
            };
            let (request, pool) = (&alternative.short_name, pool.key());
            return Err(Stop::Error(format!(
                "claim {claim}, request {request}: asks for all devices, but resource pool {pool} is currently {state}"
            )));
        }
        let mut all = Vec::new();
        for candidate in 0..self.candidates.len() {
            self.spend(1)?;
            if self.is_selectable(at, candidate)? && self.consumption(at, candidate).is_some() {
                all.push(candidate);
            }
        }
        Ok(all)
    }

    fn alternative(&self, at: RequestPosition) -> &'a Alternative {
        &self.claims[at.claim].requests[at.request].alternatives[at.alternative]
    }

    /// Whether class, request and node selection of a device match; evaluated once.
    fn is_selectable(&mut self, at: RequestPosition, candidate: usize) -> Result<bool, Stop> {
        let key = (at.claim, at.request, at.alternative, candidate);
        if let Some(known) = self.selectable.get(&key) {
            return Ok(*known);
        }
        let CandidateDevice { slice, at: device, .. } = self.candidates[candidate];
        let claim = &self.claims[at.claim].claim;
        let selectable = self.alternative(at).selects(claim, slice, device, self.work)?
            && slice.device_is_accessible(device, self.node)?;
        self.selectable.insert(key, selectable);
        Ok(selectable)
    }

    /// The capacity that the request consumes of the device; none when the device cannot provide it.
    fn consumption(&self, at: RequestPosition, candidate: usize) -> Option<Amounts> {
        let candidate = &self.candidates[candidate];
        let wanted = consumption(candidate.device, self.alternative(at).wanted.capacity.as_ref())?;
        let taken = candidate.shared.into_iter().chain(&candidate.taking);
        fits(candidate.device, &wanted, taken).then_some(wanted)
    }

    fn spend(&mut self, units: u64) -> Result<(), Stop> {
        if self.work.spend(units) { Ok(()) } else { Err(Stop::TimedOut) }
    }

    /// Allocates this claim and all after it.
    fn claim(&mut self, claim: usize) -> Result<bool, Stop> {
        if claim >= self.claims.len() {
            return Ok(true);
        }
        self.request(claim, 0)
    }

    /// Allocates this request and all after it: the first alternative that leads to a solution.
    fn request(&mut self, claim: usize, request: usize) -> Result<bool, Stop> {
        let Some(wanted) = self.claims[claim].requests.get(request) else {
            return match self.claim(claim + 1) {
                // Another choice for this claim may leave devices for alternatives of later claims.
                Err(Stop::TooMany) => Ok(false),
                result => result,
            };
        };
        let mut all_too_many = !wanted.alternatives.is_empty();
        for alternative in 0..wanted.alternatives.len() {
            match self.device(RequestPosition { claim, request, alternative, device: 0 }, 0) {
                Err(Stop::TooMany) => {}
                Ok(false) => all_too_many = false,
                result => return result,
            }
        }
        if all_too_many { Err(Stop::TooMany) } else { Ok(false) }
    }

    /// Allocates the next device of an alternative, from `start` on, and all after it.
    fn device(&mut self, at: RequestPosition, start: usize) -> Result<bool, Stop> {
        self.spend(1)?;
        let wanted = &self.alternative(at).wanted;
        let all = self.all.get(&(at.claim, at.request, at.alternative));
        if all.is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        let count = all.map_or(usize::try_from(wanted.count).unwrap_or(0), Vec::len);
        if at.device >= count {
            return self.request(at.claim, at.request + 1);
        }
        if self.chosen[at.claim].len().saturating_add(count - at.device) > DEVICES_MAX {
            return Err(Stop::TooMany);
        }
        if let Some(candidate) = all.map(|all| all[at.device]) {
            return Ok(self.choose(at, candidate, true)? && self.next(at, start)?);
        }
        // Most candidates are in use, and skipped sixteen in the time of a unit.
        self.spend((self.candidates.len() - start) as u64 / 16)?;
        for candidate in start..self.candidates.len() {
            let pool = &self.pools[self.candidates[candidate].pool];
            if pool.is_incomplete || pool.is_invalid() || self.is_in_use(at, candidate) {
                continue;
            }
            if self.is_selectable(at, candidate)?
                && self.choose(at, candidate, false)?
                && self.next(at, candidate + 1)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Continues after a device was chosen; gives it back when there is no solution with it.
    fn next(&mut self, at: RequestPosition, start: usize) -> Result<bool, Stop> {
        let result = self.device(RequestPosition { device: at.device + 1, ..at }, start);
        if !matches!(result, Ok(true)) {
            self.take_back(at.claim);
        }
        result
    }

    fn is_in_use(&self, at: RequestPosition, candidate: usize) -> bool {
        let candidate = &self.candidates[candidate];
        match self.alternative(at).admin_access {
            true => candidate.users.contains(&at.claim),
            false => candidate.taken || !candidate.users.is_empty(),
        }
    }

    /// Chooses a device for an alternative if it is free, tolerated and within all constraints.
    fn choose(&mut self, at: RequestPosition, candidate: usize, must: bool) -> Result<bool, Stop> {
        let alternative = self.alternative(at);
        if self.is_in_use(at, candidate) {
            return Ok(false);
        }
        self.spend(CHOICE)?;
        let Some(amounts) = self.consumption(at, candidate) else { return Ok(false) };
        let device = self.candidates[candidate].device;
        let tolerations: Vec<_> = alternative.wanted.tolerations.iter().map(|t| t.as_toleration()).collect();
        if untolerated(&device.taints, &tolerations).is_some() {
            return Ok(false);
        }
        let shares = device.allow_multiple_allocations;
        let in_part =
            shares && (self.candidates[candidate].shared.is_some() || !self.candidates[candidate].taking.is_empty());
        let counted = !in_part && !device.consumes_counters.is_empty();
        if counted && !self.take_counters(candidate) {
            return Ok(false);
        }
        if !self.add_to_constraints(at, candidate) {
            if counted {
                self.give_counters_back(candidate);
            }
            if must {
                let claim = self.claims[at.claim].claim.metadata.key();
                let pool = self.pools[self.candidates[candidate].pool].key();
                return Err(Stop::Error(format!(
                    "claim {claim}, request {}: cannot add device {pool}/{} because a claim constraint would not be \
                     satisfied",
                    alternative.short_name, device.name
                )));
            }
            return Ok(false);
        }
        let consumed = shares.then_some(amounts);
        match &consumed {
            Some(amounts) => self.candidates[candidate].taking.push(amounts.clone()),
            None => self.candidates[candidate].users.push(at.claim),
        }
        let choice = Choice { candidate, request: at.request, alternative: at.alternative, consumed, counted };
        self.chosen[at.claim].push(choice);
        Ok(true)
    }

    fn add_to_constraints(&mut self, at: RequestPosition, candidate: usize) -> bool {
        let claims = self.claims;
        let request = &claims[at.claim].requests[at.request].name;
        let full_name = &self.alternative(at).full_name;
        let CandidateDevice { device, pool, .. } = self.candidates[candidate];
        let driver = self.pools[pool].driver;
        let constraints = &mut self.constraints[at.claim];
        for i in 0..constraints.len() {
            if !constraints[i].add(request, full_name, driver, device) {
                constraints[..i].iter_mut().for_each(|constraint| constraint.remove(request, full_name));
                return false;
            }
        }
        true
    }

    /// Gives back the device that a claim chose last.
    fn take_back(&mut self, claim: usize) {
        let Some(choice) = self.chosen[claim].pop() else { return };
        let claims = self.claims;
        let request = &claims[claim].requests[choice.request];
        let full_name = &request.alternatives[choice.alternative].full_name;
        for constraint in &mut self.constraints[claim] {
            constraint.remove(&request.name, full_name);
        }
        let candidate = &mut self.candidates[choice.candidate];
        match choice.consumed {
            Some(_) => drop(candidate.taking.pop()),
            None => drop(candidate.users.pop()),
        }
        if choice.counted {
            self.give_counters_back(choice.candidate);
        }
    }

    /// Consumes the counters of a device; nothing when some counter does not suffice.
    fn take_counters(&mut self, candidate: usize) -> bool {
        let CandidateDevice { device, pool, .. } = self.candidates[candidate];
        if !self.available.contains_key(&pool) {
            self.available.insert(pool, self.left_in(pool));
        }
        let taking = self.consumed.entry(pool).or_default();
        for (counter, amount) in consumed(device) {
            taking.entry(counter).and_modify(|sum| sum.add(amount)).or_insert_with(|| amount.clone());
        }
        let available = &self.available[&pool];
        let zero = bayplan_model::quantity::Quantity::ZERO;
        let suffices = available.iter().all(|(counter, left)| taking.get(counter).unwrap_or(&zero) <= left);
        if !suffices {
            self.give_counters_back(candidate);
        }
        suffices
    }

    fn give_counters_back(&mut self, candidate: usize) {
        let CandidateDevice { device, pool, .. } = self.candidates[candidate];
        let taking = self.consumed.entry(pool).or_default();
        for (counter, amount) in consumed(device) {
            taking.entry(counter).and_modify(|sum| sum.sub(amount));
        }
    }

    /// The counters of a pool less what allocated devices consume.
    fn left_in(&self, pool: usize) -> Counters {
        let pool = &self.pools[pool];
        let mut left = pool.generation.counters.clone();
        for device in pool.generation.slices.iter().flat_map(|known| &known.slice.spec.devices) {
            if pool.known.in_use(&device.name).is_some() {
                for (counter, amount) in consumed(device) {
                    left.entry(counter).and_modify(|sum| sum.sub(amount));
                }
            }
        }
        left
    }

    fn results(&self) -> Result<Vec<Allocation>, String> {
        self.claims.iter().zip(&self.chosen).map(|(claim, chosen)| self.allocation(claim, chosen)).collect()
    }

    fn allocation(&self, claim: &ClaimRequests, chosen: &[Choice]) -> Result<Allocation, String> {
        let mut allocation = Allocation::default();
        for (i, request) in claim.requests.iter().enumerate() {
            let taken = chosen.iter().find(|choice| choice.request == i).map_or(0, |choice| choice.alternative);
            if request.alternatives.get(taken).is_some_and(|alternative| alternative.full_name != request.name) {
                allocation.chosen.insert(request.name.clone(), taken);
            }
        }
        let results = chosen.iter().map(|choice| self.result(claim, choice)).collect();
        allocation.config = device_config(claim, &allocation.chosen);
        allocation.result = AllocationResult {
            devices: DeviceAllocationResult { results },
            node_selector: self.node_selector(claim, chosen)?,
            allocation_timestamp: None,
        };
        Ok(allocation)
    }

    fn result(&self, claim: &ClaimRequests, choice: &Choice) -> DeviceResult {
        let alternative = &claim.requests[choice.request].alternatives[choice.alternative];
        let CandidateDevice { device, pool, .. } = self.candidates[choice.candidate];
        let pool = &self.pools[pool];
        DeviceResult {
            request: alternative.full_name.clone(),
            driver: pool.driver.to_owned(),
            pool: pool.name.to_owned(),
            device: device.name.clone(),
            admin_access: alternative.admin_access.then_some(true),
            tolerations: alternative.wanted.tolerations.clone(),
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
            share_id: choice.consumed.as_ref().map(|_| String::new()),
            consumed_capacity: choice.consumed.clone().unwrap_or_default(),
        }
    }

    /// The nodes from which all devices of the claim can be reached; none for all nodes.
    fn node_selector(&self, claim: &ClaimRequests, chosen: &[Choice]) -> Result<Option<NodeSelector>, String> {
        let mut common = NodeSelectorTerm::default();
        for choice in chosen {
            let CandidateDevice { slice, device, .. } = self.candidates[choice.candidate];
            let spec = &slice.slice.spec;
            let (name, selector) = match spec.per_device_node_selection {
                true => (&device.node_name, &device.node_selector),
                false => (&spec.node_name, &spec.node_selector),
            };
            if name.is_some() || device.binds_to_node {
                let only = NodeSelectorRequirement {
                    key: "metadata.name".into(),
                    operator: "In".into(),
                    values: vec![self.node.metadata.name.clone()],
                };
                let term = NodeSelectorTerm { match_fields: vec![only], ..NodeSelectorTerm::default() };
                return Ok(Some(NodeSelector { node_selector_terms: vec![term] }));
            }
            match selector.as_ref().map_or(&[][..], |selector| &selector.node_selector_terms) {
                [] => {}
                [term] => {
                    add_new(&mut common.match_fields, &term.match_fields);
                    add_new(&mut common.match_expressions, &term.match_expressions);
                }
                terms => {
                    return Err(format!(
                        "create NodeSelector for claim {}: unsupported ResourceSlice.NodeSelector with {} terms",
                        claim.claim.metadata.name,
                        terms.len()
                    ));
                }
            }
        }
        Ok((!common.is_empty()).then(|| NodeSelector { node_selector_terms: vec![common] }))
    }
}

fn add_new(to: &mut Vec<NodeSelectorRequirement>, from: &[NodeSelectorRequirement]) {
    for requirement in from {
        if !to.contains(requirement) {
            to.push(requirement.clone());
        }
    }
}
