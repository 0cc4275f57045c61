//! SelfSubjectRulesReviews: all that the caller may do in a namespace.

use crate::kind::{CREATE_ONLY, Kind};

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    kind: "SelfSubjectRulesReview",
    plural: "selfsubjectrulesreviews",
    singular: "selfsubjectrulesreview",
    verbs: CREATE_ONLY,
    ..Kind::PLAIN
};
