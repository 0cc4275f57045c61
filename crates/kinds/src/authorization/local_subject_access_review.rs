//! LocalSubjectAccessReviews: what a user may do in a namespace.

use crate::kind::{CREATE_ONLY, Kind, Scope};

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    kind: "LocalSubjectAccessReview",
    plural: "localsubjectaccessreviews",
    singular: "localsubjectaccessreview",
    scope: Scope::Namespaced,
    verbs: CREATE_ONLY,
    ..Kind::PLAIN
};
