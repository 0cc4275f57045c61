//! Label selectors: `labels.Parse` for query strings, `LabelSelectorAsSelector` for objects, one compiled form for
//! both.

mod parse;
mod requirement;

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap},
    fmt,
    hash::BuildHasher,
};

use serde::{Deserialize, Deserializer, Serialize};

use crate::meta::Map;
use crate::quoted::Quoted;
use crate::sorted_map::SortedMap;
pub use requirement::{Operator, Requirement, RequirementError};

/// A set of labels that can be looked up by key.
pub trait Labels {
    /// The value of a label, if it is set.
    fn get(&self, key: &str) -> Option<&str>;
}

impl<V: AsRef<str>> Labels for SortedMap<V> {
    fn get(&self, key: &str) -> Option<&str> {
        SortedMap::get(self, key).map(AsRef::as_ref)
    }
}

impl<K: Borrow<str> + Ord, V: AsRef<str>> Labels for BTreeMap<K, V> {
    fn get(&self, key: &str) -> Option<&str> {
        BTreeMap::get(self, key).map(AsRef::as_ref)
    }
}

impl<K: Borrow<str> + Eq + std::hash::Hash, V: AsRef<str>, S: BuildHasher> Labels for HashMap<K, V, S> {
    fn get(&self, key: &str) -> Option<&str> {
        HashMap::get(self, key).map(AsRef::as_ref)
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Labels for [(K, V)] {
    fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(own, _)| own.as_ref() == key).map(|(_, value)| value.as_ref())
    }
}

/// Why there is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text ends or goes on where it must not.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        /// The token that was found.
        found: String,
        /// The tokens that are allowed there.
        expected: &'static str,
    },
    /// A set without its parenthesis.
    #[error("found '{0}' expected: '('")]
    Parenthesis(String),
    /// A requirement that no object could state.
    #[error(transparent)]
    Requirement(#[from] RequirementError),
    /// A requirement of a text, and what is wrong in it.
    #[error("unable to parse requirement: {0}")]
    InRequirement(Box<Error>),
    /// An operator of an object that is none of `In`, `NotIn`, `Exists`, `DoesNotExist`.
    #[error("{} is not a valid label selector operator", Quoted(.0))]
    Operator(String),
}

/// A compiled selector: selects nothing, or everything that meets all requirements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// `None` selects nothing.
    requirements: Option<Vec<Requirement>>,
}

impl Selector {
    /// Selects everything.
    pub const fn everything() -> Self {
        Selector { requirements: Some(Vec::new()) }
    }

    /// Selects nothing, as an absent `LabelSelector` does.
    pub const fn nothing() -> Self {
        Selector { requirements: None }
    }

    /// Selects what meets all requirements.
    pub fn all(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Selector { requirements: Some(requirements) }
    }

    /// Reads the form used in queries: `app=web,tier in (a,b),!legacy`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        parse::requirements(text).map(Selector::all)
    }

    /// The selector of an optional object field: absent selects nothing, empty selects everything.
    pub fn of(selector: Option<&LabelSelector>) -> Result<Self, Error> {
        selector.map_or(Ok(Selector::nothing()), LabelSelector::selector)
    }

    /// Selects exactly these labels, without judging them; the selector of a Service or ReplicationController.
    pub fn of_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        Selector::all(labels.into_iter().map(|(key, value)| Requirement::equals(key, value)).collect())
    }

    /// Whether the labels are selected.
    pub fn matches<L: Labels + ?Sized>(&self, labels: &L) -> bool {
        self.requirements.as_ref().is_some_and(|all| all.iter().all(|requirement| requirement.matches(labels)))
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether nothing is selected, whatever the labels.
    pub fn is_nothing(&self) -> bool {
        self.requirements.is_none()
    }

    /// The requirements in the order of their keys; empty when nothing is selected.
    pub fn requirements(&self) -> &[Requirement] {
        self.requirements.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements().iter().enumerate() {
            if at > 0 {
                formatter.write_str(",")?;
            }
            requirement.fmt(formatter)?;
        }
        Ok(())
    }
}

/// `metav1.LabelSelector`, the form inside objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(skip_serializing_if = "Map::is_empty", deserialize_with = "null_is_default")]
    pub match_labels: Map,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One of `matchExpressions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct LabelSelectorRequirement {
    /// Label key.
    #[serde(deserialize_with = "null_is_default")]
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[serde(deserialize_with = "null_is_default")]
    pub operator: String,
    /// For `In` and `NotIn`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub values: Vec<String>,
}

/// Go reads `null` as "not set".
fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl LabelSelector {
    /// Compiles it.
    pub fn selector(&self) -> Result<Selector, Error> {
        let mut requirements = Vec::with_capacity(self.match_labels.len() + self.match_expressions.len());
        for (key, value) in &self.match_labels {
            requirements.push(Requirement::new(key, Operator::Equals, vec![value.clone()])?);
        }
        for expression in &self.match_expressions {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(Error::Operator(other.into())),
            };
            requirements.push(Requirement::new(&expression.key, operator, expression.values.clone())?);
        }
        Ok(Selector::all(requirements))
    }
}

#[cfg(test)]
mod tests;
