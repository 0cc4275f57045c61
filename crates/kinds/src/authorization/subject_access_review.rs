//! SubjectAccessReviews: whether a user may do something.

use crate::kind::{CREATE_ONLY, Kind};

pub(crate) static KIND: Kind = Kind {
    group: "authorization.k8s.io",
    kind: "SubjectAccessReview",
    plural: "subjectaccessreviews",
    singular: "subjectaccessreview",
    verbs: CREATE_ONLY,
    ..Kind::PLAIN
};
