//! ResourceClaimTemplates.

use super::resource_claim::spec_defaults;
use crate::defaulting::child;
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::printing::Printer;
use crate::strategy::Strategy;

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
    printer: Printer::NAME_AND_AGE,
    ..Kind::PLAIN
};
