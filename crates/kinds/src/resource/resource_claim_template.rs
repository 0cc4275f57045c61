//! ResourceClaimTemplates.

use super::resource_claim::spec_defaults;
use super::selectors;
use crate::defaulting::child;
use crate::field::Path;
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::printing::Printer;
use crate::strategy::Strategy;
use crate::validation::Validation;

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
        create_rules: |errors, object| {
            selectors::of_claim(errors, Path::root("spec").child("spec"), &object["spec"]["spec"]);
        },
        change_rules: |errors, new, old| errors.immutable(Path::root("spec"), &new["spec"], &old["spec"]),
        ..Validation::PLAIN
    },
    printer: Printer::NAME_AND_AGE,
    ..Kind::PLAIN
};
