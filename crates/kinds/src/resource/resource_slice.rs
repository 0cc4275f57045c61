//! ResourceSlices.

use serde_json::Value;

use super::slice_rules;
use crate::defaulting::{child, children, default};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::{Object, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::selectable_fields::SelectableFields;
use crate::strategy::{Generation, Strategy};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    kind: "ResourceSlice",
    plural: "resourceslices",
    singular: "resourceslice",
    verbs: STANDARD_VERBS,
    storage_prefix: "resourceslices",
    defaults,
    strategy: Strategy {
        returns_object_on_delete: true,
        generation: Generation::Spec,
        selectable: SelectableFields {
            refusal: |label| format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}"),
            ..SelectableFields::texts(&["spec.nodeName", "spec.driver"])
        },
        ..Strategy::PLAIN
    },
    validation: Validation { rules: slice_rules::spec, ..Validation::PLAIN },
    printer: Printer {
        columns: &[NAME, string("Node"), string("Driver"), string("Pool"), AGE],
        cells: |object, now| {
            let spec = &object["spec"];
            vec![
                name_of(object),
                text(spec, "nodeName").into(),
                text(spec, "driver").into(),
                text(&spec["pool"], "name").into(),
                age_of(object, now),
            ]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    for device in children(spec, "devices") {
        let Some(mappings) = child(device, "nodeAllocatableResourceMappings") else { continue };
        for mapping in mappings.values_mut().filter_map(Value::as_object_mut) {
            default(mapping, "allocationMultiplier", "1");
        }
    }
}
