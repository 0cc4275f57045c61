//! IngressClasses; they are read, but not served.

use crate::defaulting::{child, default};
use crate::kind::Kind;
use crate::object::Object;
use crate::strategy::{Generation, Strategy};

pub(crate) static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "IngressClass",
    defaults,
    strategy: Strategy { generation: Generation::Spec, ..Strategy::PLAIN },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    if let Some(parameters) = child(object, "spec").and_then(|spec| child(spec, "parameters")) {
        default(parameters, "scope", "Cluster");
    }
}
