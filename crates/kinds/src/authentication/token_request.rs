//! TokenRequests, the bodies of `serviceaccounts/token`.

use crate::defaulting::{child, default};
use crate::kind::{Kind, Scope};

pub(crate) static KIND: Kind = Kind {
    group: "authentication.k8s.io",
    kind: "TokenRequest",
    scope: Scope::Namespaced,
    defaults: |object| {
        if let Some(spec) = child(object, "spec") {
            default(spec, "expirationSeconds", 3600);
        }
    },
    ..Kind::PLAIN
};
