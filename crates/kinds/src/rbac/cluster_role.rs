//! ClusterRoles.

use serde_json::Value;

use super::role::policy_rules;
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::{given, list};
use crate::strategy::Strategy;
use crate::validation::{MetadataCheck, MetadataRecheck, Validation};
use crate::{label_selector, names};

pub(crate) static KIND: Kind = Kind {
    group: "rbac.authorization.k8s.io",
    kind: "ClusterRole",
    plural: "clusterroles",
    singular: "clusterrole",
    verbs: STANDARD_VERBS,
    storage_prefix: "clusterroles",
    strategy: Strategy { allow_create_on_update: true, ..Strategy::PLAIN },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        metadata: MetadataCheck::First(names::path_segment),
        rules,
        ..Validation::PLAIN
    },
    ..Kind::PLAIN
};

fn rules(errors: &mut ErrorList, role: &Value, _old: Option<&Value>) {
    policy_rules(errors, false, role);
    if !given(role, "aggregationRule") {
        return;
    }
    let aggregation = Path::root("aggregationRule");
    let path = aggregation.child("clusterRoleSelectors");
    let selectors = list(&role["aggregationRule"], "clusterRoleSelectors");
    if selectors.is_empty() {
        errors.required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (index, selector) in selectors.iter().enumerate() {
        label_selector::rules(errors, path.index(index), selector);
    }
}
