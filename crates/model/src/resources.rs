//! What pods ask of nodes: resource lists, and the rules that turn a pod into one request.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::label::key_errors;
use crate::pod::{Container, ContainerStatus, Pod};
use crate::quantity::{Format, Quantity};
use crate::sorted_map::SortedMap;
use crate::view::views;

/// Quantities by resource name.
pub type ResourceList = SortedMap<Quantity>;

/// Processing time.
pub const CPU: &str = "cpu";
/// Memory in bytes.
pub const MEMORY: &str = "memory";
/// Node-local storage in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// How many pods a node takes.
pub const PODS: &str = "pods";

/// What a container that asks for no cpu counts as in scoring.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// What a container that asks for no memory counts as in scoring: 200 MiB.
pub const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

views! {
    /// Requests, limits and claims of a container or pod.
    struct ResourceRequirements {
        /// What is set aside.
        requests: ResourceList,
        /// What may be used at most.
        limits: ResourceList,
        /// Device claims used.
        claims: Vec<ClaimName>,
    }

    /// A device claim a container uses.
    struct ClaimName {
        /// The entry of `spec.resourceClaims`.
        name: String,
        /// One request of the claim; all when empty.
        request: String,
    }
}

/// A resource list in the integers that the scheduler computes with: cpu in millis, all else in units, rounded up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a cpu.
    pub milli_cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of node-local storage.
    pub ephemeral_storage: i64,
    /// Number of pods; only allocatable has it.
    pub pods: i64,
    /// Extended resources, huge pages and the like.
    pub scalars: BTreeMap<Arc<str>, i64>,
}

impl Amounts {
    /// Reads a resource list; names the scheduler does not know are left out.
    pub fn of(list: &ResourceList) -> Self {
        let mut amounts = Amounts::default();
        for (name, quantity) in list {
            match name.as_str() {
                CPU => amounts.milli_cpu = quantity.milli_value(),
                MEMORY => amounts.memory = quantity.value(),
                EPHEMERAL_STORAGE => amounts.ephemeral_storage = quantity.value(),
                PODS => amounts.pods = quantity.value(),
                _ if is_scalar(name) => drop(amounts.scalars.insert(name.as_str().into(), quantity.value())),
                _ => {}
            }
        }
        amounts
    }

    /// The amount of one resource; 0 when absent.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            CPU => self.milli_cpu,
            MEMORY => self.memory,
            EPHEMERAL_STORAGE => self.ephemeral_storage,
            PODS => self.pods,
            name => self.scalars.get(name).copied().unwrap_or(0),
        }
    }

    /// The amount of a resource by its index.
    #[inline]
    pub fn amount(&self, resource: &Resource) -> i64 {
        match resource {
            Resource::Cpu => self.milli_cpu,
            Resource::Memory => self.memory,
            Resource::EphemeralStorage => self.ephemeral_storage,
            Resource::Pods => self.pods,
            Resource::Scalar(name) => self.scalars.get(name).copied().unwrap_or(0),
        }
    }

    /// Adds another request; sums beyond 64 bits stay at the end of the range.
    pub fn add(&mut self, other: &Amounts) {
        self.combine(other, i64::saturating_add);
    }

    /// Subtracts a request.
    pub fn sub(&mut self, other: &Amounts) {
        self.combine(other, i64::saturating_sub);
    }

    fn combine(&mut self, other: &Amounts, op: impl Fn(i64, i64) -> i64) {
        self.milli_cpu = op(self.milli_cpu, other.milli_cpu);
        self.memory = op(self.memory, other.memory);
        self.ephemeral_storage = op(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.scalars {
            match self.scalars.get_mut(name) {
                Some(own) => *own = op(*own, *amount),
                None => drop(self.scalars.insert(name.clone(), op(0, *amount))),
            }
        }
    }
}

/// The index of a resource in [`Amounts`]: looked up once by name, read on every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// `cpu`
    Cpu,
    /// `memory`
    Memory,
    /// `ephemeral-storage`
    EphemeralStorage,
    /// `pods`
    Pods,
    /// All others.
    Scalar(Arc<str>),
}

impl Resource {
    /// The resource of a name.
    pub fn named(name: &str) -> Self {
        match name {
            CPU => Resource::Cpu,
            MEMORY => Resource::Memory,
            EPHEMERAL_STORAGE => Resource::EphemeralStorage,
            PODS => Resource::Pods,
            name => Resource::Scalar(name.into()),
        }
    }

    /// Key of the resource in a `ResourceList`.
    pub fn name(&self) -> &str {
        match self {
            Resource::Cpu => CPU,
            Resource::Memory => MEMORY,
            Resource::EphemeralStorage => EPHEMERAL_STORAGE,
            Resource::Pods => PODS,
            Resource::Scalar(name) => name,
        }
    }

    /// True for cpu, memory and node-local storage, which every pod takes some of.
    pub fn is_basic(&self) -> bool {
        matches!(self, Resource::Cpu | Resource::Memory | Resource::EphemeralStorage)
    }
}

/// True for extended resources, which vendors define outside of the `kubernetes.io` domain: `example.com/gpu`.
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && key_errors(&format!("requests.{name}")).is_empty()
}

/// True for every resource beside cpu, memory and storage that the scheduler counts.
pub fn is_scalar(name: &str) -> bool {
    is_extended(name)
        || name.starts_with("hugepages-")
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Resources a pod may ask for as a whole.
fn is_pod_level(name: &str) -> bool {
    name == CPU || name == MEMORY || name.starts_with("hugepages-")
}

/// How a pod's request is computed.
#[derive(Clone, Debug, Default)]
pub struct RequestRules {
    /// Count what kubelets report of resized containers; for pods on a node, not for pending ones.
    pub with_status: bool,
    /// Leave pod-level resources out, as the scorer of NodeResourcesFit does.
    pub without_pod_level: bool,
    /// Requests that containers without one are taken to have.
    pub defaults: ResourceList,
}

impl RequestRules {
    /// Cpu and memory that scoring assumes for containers that ask for none.
    pub fn scoring_defaults() -> ResourceList {
        [
            (CPU, Quantity::milli(DEFAULT_MILLI_CPU, Format::DecimalSI)),
            (MEMORY, Quantity::new(DEFAULT_MEMORY, Format::DecimalSI)),
        ]
        .map(|(name, quantity)| (name.to_owned(), quantity))
        .into()
    }

    /// The whole request of a pod: the larger of what runs together and what each init step needs, plus overhead.
    pub fn requests(&self, pod: &Pod) -> ResourceList {
        let mut total = aggregate(pod, |container, statuses| self.container(pod, container, statuses));
        if !self.without_pod_level
            && let Some(resources) = &pod.spec.resources
            && resources.requests.keys().any(|name| is_pod_level(name))
        {
            let mut in_force = self.pod_level(pod, &resources.requests);
            // What kubelets report counts only for resources the pod asks for as a whole.
            in_force.retain(|name, _| is_pod_level(name) && resources.requests.contains_key(name));
            total.extend(in_force);
        }
        add(&mut total, &pod.spec.overhead);
        total
    }

    fn container(&self, pod: &Pod, container: &Container, statuses: Option<&[ContainerStatus]>) -> ResourceList {
        let status = statuses.filter(|_| self.with_status).into_iter().flatten().find(|s| s.name == container.name);
        let mut requests = match status {
            Some(ContainerStatus { resources: Some(actual), allocated_resources, .. }) => {
                in_force(pod, &container.resources.requests, &actual.requests, allocated_resources)
            }
            _ => container.resources.requests.clone(),
        };
        for (name, quantity) in &self.defaults {
            if !requests.contains_key(name) {
                requests.insert(name.clone(), quantity.clone());
            }
        }
        requests
    }

    fn pod_level(&self, pod: &Pod, requests: &ResourceList) -> ResourceList {
        match &pod.status.resources {
            Some(actual) if self.with_status => {
                in_force(pod, requests, &actual.requests, &pod.status.allocated_resources)
            }
            _ => requests.clone(),
        }
    }
}

/// The largest of what is asked, in force and set aside; what is asked does not count once it was found infeasible.
fn in_force(pod: &Pod, asked: &ResourceList, actual: &ResourceList, allocated: &ResourceList) -> ResourceList {
    let infeasible = pod.condition("PodResizePending").is_some_and(|c| c.reason == "Infeasible");
    let mut result = if infeasible { ResourceList::new() } else { asked.clone() };
    raise(&mut result, actual);
    raise(&mut result, allocated);
    result
}

/// What a pod may use at most.
pub fn limits(pod: &Pod) -> ResourceList {
    let mut total = aggregate(pod, |container, _| container.resources.limits.clone());
    if let Some(resources) = &pod.spec.resources {
        total.extend(
            resources.limits.iter().filter(|(name, _)| is_pod_level(name)).map(|(n, q)| (n.clone(), q.clone())),
        );
    }
    for (name, quantity) in &pod.spec.overhead {
        // As upstream: a limit of zero is none, and overhead makes it no other.
        if let Some(limit) = total.get_mut(name).filter(|limit| !limit.is_zero()) {
            limit.add(quantity);
        }
    }
    total
}

/// Sums containers and sidecars, and takes the larger of that and of every init step with the sidecars before it.
///
/// The statuses handed to `of` are those of the container's own list; ordinary init containers have none.
fn aggregate<'p>(
    pod: &'p Pod,
    of: impl Fn(&'p Container, Option<&'p [ContainerStatus]>) -> ResourceList,
) -> ResourceList {
    let mut total = ResourceList::new();
    for container in &pod.spec.containers {
        add(&mut total, &of(container, Some(&pod.status.container_statuses)));
    }
    let mut sidecars = ResourceList::new();
    let mut init = ResourceList::new();
    for container in &pod.spec.init_containers {
        if container.is_sidecar() {
            let request = of(container, Some(&pod.status.init_container_statuses));
            add(&mut total, &request);
            add(&mut sidecars, &request);
            raise(&mut init, &sidecars);
        } else {
            let mut step = of(container, None);
            add(&mut step, &sidecars);
            raise(&mut init, &step);
        }
    }
    raise(&mut total, &init);
    total
}

fn add(total: &mut ResourceList, other: &ResourceList) {
    for (name, quantity) in other {
        match total.get_mut(name) {
            Some(own) => own.add(quantity),
            None => drop(total.insert(name.clone(), quantity.clone())),
        }
    }
}

fn raise(total: &mut ResourceList, other: &ResourceList) {
    for (name, quantity) in other {
        match total.get_mut(name) {
            Some(own) if *own >= *quantity => {}
            Some(own) => *own = quantity.clone(),
            None => drop(total.insert(name.clone(), quantity.clone())),
        }
    }
}

/// What a pod takes of the node it is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// What counts against allocatable.
    pub requested: Amounts,
    /// Cpu that counts in scoring.
    pub non_zero_milli_cpu: i64,
    /// Memory that counts in scoring.
    pub non_zero_memory: i64,
}

impl PodUsage {
    /// Computes both views of a pod on a node, with the status of resized containers honoured.
    pub fn of(pod: &Pod) -> Self {
        let rules = RequestRules { with_status: true, ..RequestRules::default() };
        let requests = rules.requests(pod);
        let mut defaults = RequestRules::scoring_defaults();
        if pod.spec.resources.as_ref().is_some_and(|r| r.requests.keys().any(|name| is_pod_level(name))) {
            defaults.retain(|name, _| !requests.contains_key(name));
        }
        let requested = Amounts::of(&requests);
        let non_zero = match defaults.is_empty() {
            true => requested.clone(),
            false => Amounts::of(&RequestRules { defaults, ..rules }.requests(pod)),
        };
        PodUsage { requested, non_zero_milli_cpu: non_zero.milli_cpu, non_zero_memory: non_zero.memory }
    }
}
