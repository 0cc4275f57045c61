//! DeviceClasses.

use serde_json::Value;

use super::claim_rules::{CONFIGURATIONS_MAX, configuration};
use super::lists::each;
use super::selectors;
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::names;
use crate::object::{given, list, text};
use crate::printing::Printer;
use crate::strategy::{Generation, Strategy};
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    kind: "DeviceClass",
    plural: "deviceclasses",
    singular: "deviceclass",
    verbs: STANDARD_VERBS,
    storage_prefix: "deviceclasses",
    strategy: Strategy { returns_object_on_delete: true, generation: Generation::Spec, ..Strategy::PLAIN },
    validation: Validation { update_metadata: MetadataRecheck::AsNewAndChanged, rules, ..Validation::PLAIN },
    printer: Printer::NAME_AND_AGE,
    ..Kind::PLAIN
};

fn rules(errors: &mut ErrorList, class: &Value, old: Option<&Value>) {
    let (spec, path) = (&class["spec"], Path::root("spec"));
    // Any change makes all of them new, even of their order.
    let stored = old.is_some_and(|old| old["spec"]["selectors"] == spec["selectors"]);
    selectors::of_list(errors, path.child("selectors"), spec, stored);
    each(errors, path.child("config"), list(spec, "config"), CONFIGURATIONS_MAX, configuration);
    if given(spec, "extendedResourceName") {
        let name = text(spec, "extendedResourceName");
        let native = !name.contains('/') || name.contains("kubernetes.io/") || name.starts_with("requests.");
        if native || !names::qualified_name(&format!("requests.{name}")).is_empty() {
            errors.invalid(path.child("extendedResourceName"), name, "must be a valid extended resource name");
        }
    }
}
