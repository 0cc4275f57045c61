//! The environment of device selectors: the variable `device`, its types and their largest sizes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::resource_slice::{Device, DeviceAttribute};
use semver::Version;

use crate::declarations::{Declared, Environment};
use crate::regexes::Regexes;
use crate::types::Type;
use crate::value::{Key, Value, map, string_key};
use crate::{Error, Program, SELECTOR_COST_MAX};

/// The longest domain of an attribute, and the longest name of a driver.
const DOMAIN_MAX: u64 = 63;
/// The longest name of an attribute without its domain.
const ID_MAX: u64 = 32;
/// The longest value of an attribute.
const VALUE_MAX: u64 = 64;
/// The most attributes and capacities of a device.
const ATTRIBUTES_MAX: u64 = 32;

/// The environment of a device selector; one that is stored already may use more.
pub fn environment(stored: bool) -> Environment {
    let text = |max| Declared::simple(Type::String, max);
    let by_domain = |values: Declared, sizes_by_name| {
        let inner = Declared { sizes_by_name, ..Declared::map(text(ID_MAX), values, ATTRIBUTES_MAX) };
        Declared::map(text(DOMAIN_MAX), inner, ATTRIBUTES_MAX)
    };
    let device = Declared::object(
        "kubernetes.DRADevice",
        vec![
            ("driver", text(DOMAIN_MAX)),
            ("allowMultipleAllocations", Declared::simple(Type::Bool, 1)),
            ("attributes", by_domain(Declared::simple(Type::Any, VALUE_MAX), true)),
            ("capacity", by_domain(Declared::simple(Type::Named("kubernetes.Quantity"), 0), false)),
        ],
    );
    Environment { variables: vec![("device", device)], stored }
}

/// The variable `device`: names without a domain are the driver's own, and unknown domains are empty.
pub(crate) fn value(driver: &str, device: &Device) -> Value {
    let by_domain = |values: Vec<(&String, Value)>| {
        let mut domains: BTreeMap<Key, BTreeMap<Key, Value>> = BTreeMap::new();
        for (name, value) in values {
            let (domain, id) = name.split_once('/').unwrap_or((driver, name));
            domains.entry(string_key(domain)).or_default().insert(string_key(id), value);
        }
        map(domains.into_iter().map(|(domain, values)| (domain, map(values, None))), Some(map([], None)))
    };
    let attributes = device.attributes.iter().filter_map(|(name, value)| Some((name, attribute(value)?))).collect();
    let quantity = |(name, capacity)| {
        let capacity: &bayplan_model::resource_slice::DeviceCapacity = capacity;
        (name, Value::Quantity(Arc::new(capacity.value.clone())))
    };
    map(
        [
            (string_key("driver"), Value::string(driver)),
            (string_key("allowMultipleAllocations"), Value::Bool(device.allow_multiple_allocations)),
            (string_key("attributes"), by_domain(attributes)),
            (string_key("capacity"), by_domain(device.capacity.iter().map(quantity).collect())),
        ],
        None,
    )
}

fn attribute(value: &DeviceAttribute) -> Option<Value> {
    let version = |text: &String| Version::parse(text).ok().map(|version| Value::Semver(Arc::new(version)));
    None.or(value.int.map(Value::Int))
        .or(value.bool.map(Value::Bool))
        .or(value.string.as_deref().map(Value::string))
        .or(value.version.as_ref().and_then(version))
}

/// A compiled selector of devices.
#[derive(Debug)]
pub struct Selector(Program);

impl Selector {
    /// Compiles a selector; its result is true or false, or known when it runs.
    pub fn compile(text: &str, stored: bool, regexes: &Arc<Regexes>) -> Result<Self, Error> {
        let program = Program::compile(text, &environment(stored), regexes)?;
        match program.result_type() {
            Type::Bool | Type::Any => Ok(Selector(program)),
            other => Err(Error::Type(format!("must evaluate to bool or the unknown type, not {}", other.full_name()))),
        }
    }

    /// The most that an evaluation can cost.
    pub fn max_cost(&self) -> u64 {
        self.0.max_cost()
    }

    /// A function that the selector calls and that does not run yet.
    pub fn function_not_run(&self) -> Option<&'static str> {
        self.0.function_not_run()
    }

    /// Whether the selector holds for a device of a driver, and what it cost to find out.
    pub fn matches(&self, driver: &str, device: &Device, allowance: u64) -> (Result<bool, Error>, u64) {
        let outcome = self.0.evaluate(vec![("device", value(driver, device))], allowance, SELECTOR_COST_MAX);
        let answer = outcome.value.and_then(|value| match value {
            Value::Bool(answer) => Ok(answer),
            other => Err(no_truth(&other)),
        });
        (answer, outcome.cost)
    }
}

fn no_truth(value: &Value) -> Error {
    let name = value.type_name();
    let why = match value {
        Value::String(_) | Value::Bytes(_) => format!("unsupported native conversion from {name} to 'bool'"),
        _ => format!("unsupported type conversion from '{name}' to bool"),
    };
    Error::Runtime(format!("CEL result of type {name} could not be converted to bool: {why}"))
}
