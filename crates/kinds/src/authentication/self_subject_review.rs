//! SelfSubjectReviews: who the caller is.

use crate::kind::{CREATE_ONLY, Kind};

pub(crate) static KIND: Kind = Kind {
    group: "authentication.k8s.io",
    kind: "SelfSubjectReview",
    plural: "selfsubjectreviews",
    singular: "selfsubjectreview",
    verbs: CREATE_ONLY,
    ..Kind::PLAIN
};
