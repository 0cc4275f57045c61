//! Ingresses; they are read, but not served.

use crate::kind::{Kind, Scope};
use crate::strategy::{Generation, StatusRule, Strategy};

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "Ingress",
    scope: Scope::Namespaced,
    strategy: Strategy { status: StatusRule::Owned, generation: Generation::Spec, ..Strategy::PLAIN },
    ..Kind::PLAIN
};
