//! What a pod asks for in total: its containers together, and its init containers one after the other.

use std::collections::BTreeMap;

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use crate::object::{Fields, list};

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Reads a resource list; what cannot be read is left out, validation names it.
pub fn amounts(value: &Value) -> Amounts {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), quantity(value)?))).collect()
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// The containers' total of `requests` or `limits`: the sum of those that run together, or the most that an init step
/// needs. Sidecars run beside everything that follows them.
pub(crate) fn container_totals(spec: &impl Fields, part: &str) -> Amounts {
    let of = |container: &Value| amounts(&container["resources"][part]);
    let mut total = Amounts::new();
    list(spec, "containers").iter().for_each(|container| add(&mut total, &of(container)));
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in list(spec, "initContainers") {
        let own = of(container);
        let sidecar = container["restartPolicy"] == "Always";
        if sidecar {
            add(&mut sidecars, &own);
        }
        // What this container does not name is what the sidecars before it need, and the peak knows that already.
        for (name, mut amount) in own {
            match sidecars.get(&name) {
                Some(all) if sidecar => amount = all.clone(),
                Some(beside) => amount.add(beside),
                None => {}
            }
            raise(&mut peak, name, amount);
        }
    }
    add(&mut total, &sidecars);
    peak.into_iter().for_each(|(name, amount)| raise(&mut total, name, amount));
    total
}

/// The pod's total of `requests` or `limits`, overhead included; amounts stated for the pod as a whole replace the
/// containers' sum.
pub fn pod_totals(pod: &Value, part: &str) -> Amounts {
    let spec = &pod["spec"];
    let mut total = container_totals(spec, part);
    if let Some(stated) = spec.get("resources") {
        total.extend(amounts(&stated[part]));
    }
    if let Some(overhead) = spec.get("overhead") {
        // Overhead counts against a limit only where there is one.
        let overhead = amounts(overhead).into_iter().filter(|(name, _)| part == "requests" || total.contains_key(name));
        let overhead: Amounts = overhead.collect();
        add(&mut total, &overhead);
    }
    total
}

/// Adds amounts to a sum.
pub fn add(sum: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        match sum.get_mut(name) {
            Some(sum) => sum.add(amount),
            None => {
                sum.insert(name.clone(), amount.clone());
            }
        }
    }
}

fn raise(peak: &mut Amounts, name: String, amount: Quantity) {
    if peak.get(&name).is_none_or(|known| *known < amount) {
        peak.insert(name, amount);
    }
}
