//! SelfSubjectAccessReviews: whether the caller may do something.

use crate::kind::{CREATE_ONLY, Kind};

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    kind: "SelfSubjectAccessReview",
    plural: "selfsubjectaccessreviews",
    singular: "selfsubjectaccessreview",
    verbs: CREATE_ONLY,
    ..Kind::PLAIN
};
