//! Devices as drivers publish them: resource slices, and the classes they are asked for by.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::affinity::NodeSelector;
use crate::meta::ObjectMeta;
use crate::quantity::Quantity;
use crate::taint::Taint;
use crate::view::{has_meta, views};

has_meta!(ResourceSlice, DeviceClass);

views! {
    /// A ResourceSlice: some devices of a driver's pool.
    struct ResourceSlice {
        metadata: ObjectMeta,
        /// The devices and where they are.
        spec: ResourceSliceSpec,
    }

    /// The devices of a slice and where they can be reached.
    struct ResourceSliceSpec {
        /// Who publishes it.
        driver: String,
        /// The pool it is a part of.
        pool: ResourcePool,
        /// The only node.
        node_name: Option<String>,
        /// Or the nodes that match.
        node_selector: Option<NodeSelector>,
        /// Or all nodes.
        all_nodes: bool,
        /// Or each device says for itself.
        per_device_node_selection: bool,
        /// The devices.
        devices: Vec<Device>,
        /// What partitions of devices share; a slice has either these or devices.
        shared_counters: Vec<CounterSet>,
    }

    /// A pool of devices, of which a slice is a part.
    struct ResourcePool {
        /// Its name, unique for the driver.
        name: String,
        /// Slices of a lower generation are outdated.
        generation: i64,
        /// How many slices the pool has in this generation.
        resource_slice_count: i64,
    }

    /// Counters that partitions of devices share.
    struct CounterSet {
        /// Its name, unique in the pool.
        name: String,
        /// How much there is of each.
        counters: BTreeMap<String, Counter>,
    }

    /// How much there is of something.
    struct Counter {
        /// The amount.
        value: Quantity,
    }

    /// A device.
    struct Device {
        /// Its name, unique in the pool.
        name: String,
        /// What it is.
        attributes: BTreeMap<String, DeviceAttribute>,
        /// What it has.
        capacity: BTreeMap<String, DeviceCapacity>,
        /// What it takes of shared counters.
        consumes_counters: Vec<CounterConsumption>,
        /// The only node.
        node_name: Option<String>,
        /// Or the nodes that match.
        node_selector: Option<NodeSelector>,
        /// Or all nodes.
        all_nodes: bool,
        /// What repels claims.
        taints: Vec<Taint>,
        /// Can only be used on the node it was allocated for.
        binds_to_node: bool,
        /// What must come true before pods that use it are bound.
        binding_conditions: Vec<String>,
        /// What means that this will not happen.
        binding_failure_conditions: Vec<String>,
        /// Several claims may share it.
        allow_multiple_allocations: bool,
    }

    /// What a device takes of one set of counters.
    struct CounterConsumption {
        /// The set.
        counter_set: String,
        /// How much of each counter.
        counters: BTreeMap<String, Counter>,
    }

    /// The value of an attribute: exactly one of these.
    struct DeviceAttribute {
        /// A number.
        int: Option<i64>,
        /// A truth value.
        bool: Option<bool>,
        /// A text.
        string: Option<String>,
        /// A semantic version.
        version: Option<String>,
    }

    /// How much a device has of something.
    struct DeviceCapacity {
        /// The amount.
        value: Quantity,
        /// How it may be divided.
        request_policy: Option<CapacityRequestPolicy>,
    }

    /// How a capacity may be divided among claims.
    struct CapacityRequestPolicy {
        /// What a claim gets that does not say.
        default: Option<Quantity>,
        /// The only amounts.
        valid_values: Vec<Quantity>,
        /// Or a range of them.
        valid_range: Option<CapacityRange>,
    }

    /// A range of amounts.
    struct CapacityRange {
        /// The least.
        min: Option<Quantity>,
        /// The most.
        max: Option<Quantity>,
        /// From the least in steps of this.
        step: Option<Quantity>,
    }

    /// A DeviceClass: devices of one kind, and how they are set up.
    struct DeviceClass {
        metadata: ObjectMeta,
        /// Which devices.
        spec: DeviceClassSpec,
    }

    /// Which devices are of a class.
    struct DeviceClassSpec {
        /// All of these must hold.
        selectors: Vec<DeviceSelector>,
        /// Settings for the driver.
        config: Vec<Value>,
        /// The extended resource that devices of the class back.
        extended_resource_name: Option<String>,
    }

    /// A condition on devices.
    struct DeviceSelector {
        /// As an expression.
        cel: Option<CelSelector>,
    }

    /// A condition as an expression over `device`.
    struct CelSelector {
        /// The expression.
        expression: String,
    }
}

impl Device {
    /// An attribute by its full name, `domain/id`; a driver need not write its own domain.
    pub fn attribute(&self, name: &str, driver: &str) -> Option<&DeviceAttribute> {
        self.attributes.get(name).or_else(|| {
            let (domain, id) = name.split_once('/')?;
            if domain == driver { self.attributes.get(id) } else { None }
        })
    }
}
