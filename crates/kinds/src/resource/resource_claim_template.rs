//! ResourceClaimTemplates.

use serde_json::Value;

use super::claim_rules;
use super::resource_claim::spec_defaults;
use crate::defaulting::child;
use crate::field::{ErrorList, GoValue, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::metadata;
use crate::printing::Printer;
use crate::strategy::Strategy;
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "resource.k8s.io",
    kind: "ResourceClaimTemplate",
    plural: "resourceclaimtemplates",
    singular: "resourceclaimtemplate",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "resourceclaimtemplates",
    defaults: |object| spec_defaults(child(object, "spec").and_then(|spec| spec.get_mut("spec"))),
    strategy: Strategy { returns_object_on_delete: true, ..Strategy::PLAIN },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        create_rules,
        change_rules: |errors, new, old| {
            if new["spec"] != old["spec"] {
                let shown = GoValue("io.k8s.api.resource.v1.ResourceClaimTemplateSpec", &new["spec"]);
                errors.invalid(Path::root("spec"), shown, "field is immutable");
            }
        },
        ..Validation::PLAIN
    },
    printer: Printer::NAME_AND_AGE,
    ..Kind::PLAIN
};

fn create_rules(errors: &mut ErrorList, template: &Value) {
    let (path, spec) = (Path::root("spec"), &template["spec"]);
    metadata::template(errors, path.child("metadata"), &spec["metadata"]);
    claim_rules::spec(errors, path.child("spec"), &spec["spec"]);
}
