//! TokenReviews: whose token it is.

use crate::kind::{CREATE_ONLY, Kind};

pub(crate) static KIND: Kind = Kind {
    group: "authentication.k8s.io",
    kind: "TokenReview",
    plural: "tokenreviews",
    singular: "tokenreview",
    verbs: CREATE_ONLY,
    ..Kind::PLAIN
};
