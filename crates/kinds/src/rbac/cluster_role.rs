//! ClusterRoles.

use super::role::policy_rules;
use crate::kind::{Kind, STANDARD_VERBS};
use crate::strategy::Strategy;
use crate::validation::{MetadataCheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    kind: "ClusterRole",
    plural: "clusterroles",
    singular: "clusterrole",
    verbs: STANDARD_VERBS,
    storage_prefix: "clusterroles",
    strategy: Strategy { allow_create_on_update: true, ..Strategy::PLAIN },
    validation: Validation {
        metadata: MetadataCheck::Last,
        rules: |errors, role, _| policy_rules(errors, false, role),
        ..Validation::PLAIN
    },
    ..Kind::PLAIN
};
