//! `flowcontrol.apiserver.k8s.io`: who is served first when the server is busy.

use crate::kind::{Kind, STANDARD_VERBS};
use crate::strategy::{Generation, StatusRule, Strategy, status_keeps_metadata};
use crate::validation::{MetadataRecheck, Validation};

pub mod bootstrap;
mod conditions;
pub(crate) mod flow_schema;
pub(crate) mod priority_level_configuration;
#[cfg(test)]
mod tests;

/// What both kinds have in common: a spec whose changes are counted, and a status of conditions.
const KIND: Kind = Kind {
    group: "flowcontrol.apiserver.k8s.io",
    verbs: STANDARD_VERBS,
    strategy: Strategy {
        status: StatusRule::Owned,
        generation: Generation::Spec,
        on_update: status_keeps_metadata,
        ..Strategy::PLAIN
    },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNew,
        status_metadata: MetadataRecheck::None,
        status_rules: |errors, object, _old| conditions::rules(errors, object),
        ..Validation::PLAIN
    },
    ..Kind::PLAIN
};
