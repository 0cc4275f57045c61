//! CSINodes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::core::persistent_volume::driver_name;
use crate::field::{ErrorList, GoValue, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::names;
use crate::object::{list, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, integer, name_of};
use crate::strategy::Strategy;
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSINode",
    plural: "csinodes",
    singular: "csinode",
    verbs: STANDARD_VERBS,
    storage_prefix: "csinodes",
    strategy: Strategy { allow_unconditional_update: false, returns_object_on_delete: true, ..Strategy::PLAIN },
    validation: Validation { update_metadata: MetadataRecheck::AsNew, rules, change_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[NAME, integer("Drivers"), AGE],
        cells: |object, now| vec![name_of(object), list(&object["spec"], "drivers").len().into(), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

const NODE_ID_MAX: usize = 256;

/// Every driver has a name, and a name under which it knows the node.
fn rules(errors: &mut ErrorList, node: &Value, _old: Option<&Value>) {
    let path = Path::root("spec");
    let path = path.child("drivers");
    let mut seen = BTreeSet::new();
    for (index, driver) in list(&node["spec"], "drivers").iter().enumerate() {
        let path = path.index(index);
        let (name, node_id) = (text(driver, "name"), text(driver, "nodeID"));
        driver_name(errors, path.child("name"), name);
        if node_id.is_empty() {
            errors.required(path.child("nodeID"), "");
        } else if node_id.len() > NODE_ID_MAX {
            errors.invalid(path.child("nodeID"), node_id, &format!("must be {NODE_ID_MAX} characters or less"));
        }
        let allocatable = path.child("allocatable");
        errors.non_negative(allocatable.child("count"), number(&driver["allocatable"], "count"));
        if !seen.insert(name) {
            errors.duplicate(path.child("name"), name);
        }
        topology_keys(errors, path, list(driver, "topologyKeys"));
    }
}

fn topology_keys(errors: &mut ErrorList, path: Path<'_>, keys: &[Value]) {
    let mut seen = BTreeSet::new();
    for key in keys.iter().map(|key| key.as_str().unwrap_or_default()) {
        if key.is_empty() {
            errors.required(path, "");
        }
        if !seen.insert(key) {
            errors.duplicate(path, key);
        }
        errors.all_invalid(path, key, names::qualified_name(key));
    }
}

/// Of a driver that stays only what can be allocated changes.
fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let path = path.child("drivers");
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        driver.as_object_mut().map(|driver| driver.remove("allocatable"));
        driver
    };
    let mut by_name: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for driver in list(&new["spec"], "drivers") {
        by_name.entry(text(driver, "name")).or_default().push(driver);
    }
    // A stored name is there once, so that this is linear.
    for before in list(&old["spec"], "drivers") {
        let fixed_before = fixed(before);
        for now in by_name.get(text(before, "name")).into_iter().flatten().map(|now| fixed(now)) {
            if now != fixed_before {
                errors.invalid(path, GoValue("io.k8s.api.storage.v1.CSINodeDriver", &now), "field is immutable");
            }
        }
    }
}
