//! The quality of service that follows from what a pod asks for.

use std::collections::BTreeMap;

use bayplan_model::quantity::Quantity;
use serde_json::Value;

/// `Guaranteed`, `Burstable` or `BestEffort`, by CPU and memory alone.
pub(super) fn quality_of_service(spec: &Value) -> &'static str {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let (mut requests, mut limits): (BTreeMap<&str, Quantity>, BTreeMap<&str, Quantity>) = Default::default();
    let mut guaranteed = true;
    let add = |total: &mut BTreeMap<&'static str, Quantity>, list: &Value| -> usize {
        let mut found = 0;
        for name in COUNTED {
            let Some(quantity) = list[name].as_str().and_then(|text| text.parse::<Quantity>().ok()) else { continue };
            if quantity.sign() <= 0 {
                continue;
            }
            found += 1;
            match total.get_mut(name) {
                Some(sum) => sum.add(&quantity),
                None => {
                    total.insert(name, quantity);
                }
            }
        }
        found
    };
    if spec.get("resources").is_some_and(|resources| !resources.is_null()) {
        add(&mut requests, &spec["resources"]["requests"]);
        let has_limits = spec["resources"]["limits"].as_object().is_some_and(|limits| !limits.is_empty());
        let found = add(&mut limits, &spec["resources"]["limits"]);
        guaranteed = !has_limits || found == COUNTED.len();
    } else {
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array().into_iter().flatten() {
                add(&mut requests, &container["resources"]["requests"]);
                guaranteed &= add(&mut limits, &container["resources"]["limits"]) == COUNTED.len();
            }
        }
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
