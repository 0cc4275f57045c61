//! The answer of a verb, before it is rendered in the form the client accepts.

use bayplan_kinds::Kind;
use bayplan_model::status::Status;
use bayplan_store::Revision;
use serde_json::Value;

use crate::encode::Encoded;

/// The answer of a verb.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The HTTP status code.
    pub(crate) code: u16,
    pub(crate) body: Body,
}

/// An encoded object with its resource version.
#[derive(Clone, Debug)]
pub(crate) struct VersionedObject {
    pub(crate) encoded: Encoded,
    /// The resource version; `None` for the dry run of a create.
    pub(crate) revision: Option<Revision>,
}

/// One page of a collection.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) resource: &'static Kind,
    pub(crate) items: Vec<VersionedObject>,
    /// The revision of the snapshot: the list's resource version.
    pub(crate) revision: Revision,
    /// The token of the next page; `None` on the last one.
    pub(crate) continue_token: Option<String>,
    /// How many objects follow this page; `None` if a selector leaves some of them out.
    pub(crate) remaining: Option<usize>,
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Body {
    /// A stored object.
    Object(&'static Kind, VersionedObject),
    /// A collection.
    List(List),
    /// An object that is not stored: a scale, a review.
    Value(Value),
    /// A `Status`.
    Status(Status),
}

impl Answer {
    /// Answers with a stored object.
    pub(crate) fn object(code: u16, resource: &'static Kind, encoded: Encoded, revision: Option<Revision>) -> Answer {
        Answer { code, body: Body::Object(resource, VersionedObject { encoded, revision }) }
    }

    /// Answers with a page of a collection.
    pub(crate) fn list(list: List) -> Answer {
        Answer { code: 200, body: Body::List(list) }
    }

    /// Answers with an object that is not stored.
    pub(crate) fn value(code: u16, value: Value) -> Answer {
        Answer { code, body: Body::Value(value) }
    }

    /// Answers with a `Status` that is not a failure.
    pub(crate) fn status(code: u16, status: Status) -> Answer {
        Answer { code, body: Body::Status(status) }
    }
}
