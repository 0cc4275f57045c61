//! What a request does, in Kubernetes' words.

use std::fmt;

use serde::{Serialize, Serializer};

/// The verb of a request, as authorization and discovery name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Streams the changes of a collection.
    Watch,
    /// Stores a new object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes a part of an object.
    Patch,
    /// Deletes one object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
    /// Acts as another user.
    Impersonate,
    /// Grants rights that the user does not hold, in a role.
    Escalate,
    /// Grants a role whose rights the user does not hold, in a binding.
    Bind,
    /// The lower-case method of a request to a non-resource path, or whatever an access review names.
    Other(Box<str>),
}

impl Verb {
    /// The verb in rules, messages and discovery.
    pub fn as_str(&self) -> &str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Impersonate => "impersonate",
            Verb::Escalate => "escalate",
            Verb::Bind => "bind",
            Verb::Other(other) => other,
        }
    }

    /// True if a request with this verb changes nothing; other methods of non-resource paths count by their name.
    pub fn is_read(&self) -> bool {
        matches!(self.as_str(), "get" | "list" | "watch" | "head" | "options")
    }
}

impl From<&str> for Verb {
    fn from(text: &str) -> Verb {
        const NAMED: [Verb; 11] = [
            Verb::Get,
            Verb::List,
            Verb::Watch,
            Verb::Create,
            Verb::Update,
            Verb::Patch,
            Verb::Delete,
            Verb::DeleteCollection,
            Verb::Impersonate,
            Verb::Escalate,
            Verb::Bind,
        ];
        NAMED.into_iter().find(|verb| verb.as_str() == text).unwrap_or_else(|| Verb::Other(text.into()))
    }
}

impl Serialize for Verb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_reads_back_as_it_is_written() {
        for text in ["get", "deletecollection", "impersonate", "escalate", "bind", "use", "post", "*", ""] {
            assert_eq!(Verb::from(text).to_string(), text);
        }
        assert_eq!(Verb::from("watch"), Verb::Watch);
        assert_eq!(Verb::from("Watch"), Verb::Other("Watch".into()));
    }
}
