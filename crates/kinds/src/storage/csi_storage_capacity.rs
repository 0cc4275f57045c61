//! CSIStorageCapacities.

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::object::{given, text};
use crate::strategy::Strategy;
use crate::validation::{MetadataRecheck, Validation};
use crate::{label_selector, names, node_labels};

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSIStorageCapacity",
    plural: "csistoragecapacities",
    singular: "csistoragecapacity",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "csistoragecapacities",
    strategy: Strategy { allow_unconditional_update: false, warnings, ..Strategy::PLAIN },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        change_rules,
        ..Validation::PLAIN
    },
    ..Kind::PLAIN
};

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    if given(object, "nodeTopology") {
        label_selector::rules(errors, Path::root("nodeTopology"), &object["nodeTopology"]);
    }
    let class = text(object, "storageClassName");
    errors.all_invalid(Path::root("storageClassName"), class, names::dns_subdomain(class));
    let capacity = text(object, "capacity");
    if capacity.parse::<Quantity>().is_ok_and(|quantity| quantity.sign() < 0) {
        errors.invalid(Path::root("capacity"), capacity, "must be greater than or equal to 0");
    }
}

/// What was asked of the driver does not change, only its answer.
fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    if new["nodeTopology"] != old["nodeTopology"] {
        let shown = label_selector::shown(&new["nodeTopology"]);
        errors.invalid(Path::root("nodeTopology"), shown, "field is immutable");
    }
    let field = "storageClassName";
    errors.immutable(Path::root(field), &new[field], &old[field]);
}

fn warnings(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let path = Path::root("nodeTopology");
    node_labels::expression_warnings(&mut warnings, path, &object["nodeTopology"]);
    let labels = path.child("matchLabels");
    for (key, _) in object["nodeTopology"]["matchLabels"].as_object().into_iter().flatten() {
        if let Some(message) = node_labels::deprecation(key) {
            warnings.push(format!("{}: {message}", labels.child(key)));
        }
    }
    warnings
}
