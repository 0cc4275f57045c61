//! ServiceAccounts.

use crate::kind::{CREATE_ONLY, Kind, STANDARD_VERBS, Scope, Subresource};
use crate::printing::Printer;
use crate::strategy::Strategy;
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    scope: Scope::Namespaced,
    short_names: &["sa"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource {
        name: "token",
        group: "authentication.k8s.io",
        version: "v1",
        kind: "TokenRequest",
        verbs: CREATE_ONLY,
    }],
    storage_prefix: "serviceaccounts",
    strategy: Strategy { returns_object_on_delete: true, ..Strategy::PLAIN },
    validation: Validation { update_metadata: MetadataRecheck::AsNewAndChanged, ..Validation::PLAIN },
    printer: Printer::NAME_AND_AGE,
    ..Kind::PLAIN
};
