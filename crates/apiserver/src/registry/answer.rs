//! What a verb answers, before it is rendered in the form the client accepts.

use bayplan_model::status::Status;
use bayplan_store::Revision;
use serde_json::Value;

use crate::encode::Encoded;
use crate::resources::Resource;

/// An answer: a status code, a body and what to warn the client of.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status code.
    pub code: u16,
    /// The body.
    pub body: Body,
    /// `Warning` headers.
    pub warnings: Vec<String>,
}

/// One object as it is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The bytes.
    pub encoded: Encoded,
    /// The resource version; dry runs of a create have none.
    pub revision: Option<Revision>,
}

/// A part of a collection.
#[derive(Debug)]
pub struct List {
    /// The resource.
    pub resource: &'static Resource,
    /// The objects.
    pub items: Vec<Shown>,
    /// The revision of the snapshot.
    pub revision: Revision,
    /// The token of the next page.
    pub continue_token: Option<String>,
    /// How many objects lie behind this page.
    pub remaining: Option<usize>,
}

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// A stored object.
    Object(&'static Resource, Shown),
    /// A collection.
    List(List),
    /// An object that is not stored: a scale, a review.
    Value(Value),
    /// A `Status`.
    Status(Status),
}

impl Answer {
    /// An answer with a stored object.
    pub fn object(code: u16, resource: &'static Resource, encoded: Encoded, revision: Option<Revision>) -> Answer {
        Answer { code, body: Body::Object(resource, Shown { encoded, revision }), warnings: Vec::new() }
    }

    /// An answer with an object that is not stored.
    pub fn value(code: u16, value: Value) -> Answer {
        Answer { code, body: Body::Value(value), warnings: Vec::new() }
    }

    /// An answer with a `Status` that is not a failure of the request.
    pub fn status(code: u16, status: Status) -> Answer {
        Answer { code, body: Body::Status(status), warnings: Vec::new() }
    }

    /// The same answer with warnings.
    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<String>) -> Answer {
        self.warnings.extend(warnings);
        self
    }
}
