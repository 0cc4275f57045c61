//! ClusterRoleBindings.

use super::role_binding;
use crate::kind::{Kind, STANDARD_VERBS};
use crate::names;
use crate::strategy::Strategy;
use crate::validation::{MetadataCheck, MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    kind: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    singular: "clusterrolebinding",
    verbs: STANDARD_VERBS,
    storage_prefix: "clusterrolebindings",
    defaults: role_binding::defaults,
    strategy: Strategy { allow_create_on_update: true, ..Strategy::PLAIN },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        metadata: MetadataCheck::First(names::path_segment),
        rules: |errors, binding, _| role_binding::reference_rules(errors, &["ClusterRole"], binding),
        change_rules: role_binding::change_rules,
        ..Validation::PLAIN
    },
    printer: role_binding::PRINTER,
    ..Kind::PLAIN
};
