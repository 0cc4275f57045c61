//! One requirement of a label selector.

use std::collections::BTreeSet;
use std::fmt;

use super::Labels;
use crate::{label, quoted::Quoted};

/// How a label's value relates to the requirement's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Set, and one of the values.
    In,
    /// Not set, or none of the values.
    NotIn,
    /// Set to the value, written `=`.
    Equals,
    /// Set to the value, written `==`.
    DoubleEquals,
    /// Not set, or another value.
    NotEquals,
    /// Set.
    Exists,
    /// Not set.
    DoesNotExist,
    /// Set to a larger integer.
    GreaterThan,
    /// Set to a smaller integer.
    LessThan,
}

impl Operator {
    /// Upstream's name of the operator.
    pub fn as_str(self) -> &'static str {
        match self {
            Operator::In => "in",
            Operator::NotIn => "notin",
            Operator::Equals => "=",
            Operator::DoubleEquals => "==",
            Operator::NotEquals => "!=",
            Operator::Exists => "exists",
            Operator::DoesNotExist => "!",
            Operator::GreaterThan => "gt",
            Operator::LessThan => "lt",
        }
    }
}

/// The most errors of one requirement that are written out; the last entry counts the others.
const ERRORS_MAX: usize = 100;

/// The most bytes of the errors that are written out before the next one is only counted. Each names the key, which may
/// be as long as the requirement has values.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// What is wrong with a requirement: field errors, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequirementError(Vec<String>);

impl RequirementError {
    pub(super) fn key(path: &str, key: &str) -> Option<Self> {
        let errors = label::key_errors(key);
        (!errors.is_empty()).then(|| RequirementError(vec![invalid(path, &Quoted(key), &errors.join("; "))]))
    }

    /// Each single error, for callers that put the path of the requirement before it.
    pub fn errors(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for RequirementError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Upstream's aggregate prints equal errors once, and brackets only around several.
        let mut seen = BTreeSet::new();
        let once: Vec<&str> = self.0.iter().map(String::as_str).filter(|error| seen.insert(*error)).collect();
        match &once[..] {
            [only] => formatter.write_str(only),
            several => write!(formatter, "[{}]", several.join(", ")),
        }
    }
}

impl std::error::Error for RequirementError {}

fn invalid(path: &str, value: &dyn fmt::Display, detail: &str) -> String {
    format!("{path}: Invalid value: {value}: {detail}")
}

/// Key, operator and values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
    /// The value of `GreaterThan` and `LessThan`.
    bound: i64,
}

impl Requirement {
    /// A requirement whose parts fit together.
    pub fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, RequirementError> {
        let mut errors = RequirementError::key("key", key).map_or(Vec::new(), |error| error.0);
        let mut refuse = |detail| errors.push(invalid("values", &list(&values), detail));
        let mut bound = 0;
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                refuse("for 'in', 'notin' operators, values set can't be empty");
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                refuse("exact-match compatibility requires one single value");
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                refuse("values set must be empty for exists and does not exist");
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    refuse("for 'Gt', 'Lt' operators, exactly one value is required");
                }
                for (at, value) in values.iter().enumerate() {
                    match value.parse() {
                        Ok(number) => bound = number,
                        Err(_) => errors.push(invalid(
                            &format!("values[{at}]"),
                            &Quoted(value),
                            "for 'Gt', 'Lt' operators, the value must be an integer",
                        )),
                    }
                }
            }
            _ => {}
        }
        let (mut bytes, mut more) = (errors.iter().map(String::len).sum::<usize>(), 0_usize);
        for (at, value) in values.iter().enumerate() {
            let wrong = label::value_errors(value);
            if wrong.is_empty() {
                continue;
            }
            if errors.len() >= ERRORS_MAX || bytes > ERROR_BYTES_MAX {
                more = more.saturating_add(1);
                continue;
            }
            let error = invalid(&format!("values[{at}][{key}]"), &Quoted(value), &wrong.join("; "));
            bytes = bytes.saturating_add(error.len());
            errors.push(error);
        }
        if more > 0 {
            errors.push(format!("values: Too many errors: {more} more are not listed"));
        }
        if !errors.is_empty() {
            return Err(RequirementError(errors));
        }
        Ok(Requirement { key: key.into(), operator, values, bound })
    }

    /// A label must have this value; neither key nor value is validated.
    pub fn equals(key: &str, value: &str) -> Self {
        Requirement { key: key.into(), operator: Operator::Equals, values: vec![value.into()], bound: 0 }
    }

    /// Label key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Operator.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// Values, as they were given.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether the labels meet it.
    pub fn matches<L: Labels + ?Sized>(&self, labels: &L) -> bool {
        let value = labels.get(&self.key);
        let listed = |value: &str| self.values.iter().any(|own| own == value);
        let number = |value: &str| value.parse::<i64>().ok();
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => value.and_then(number).is_some_and(|number| number > self.bound),
            Operator::LessThan => value.and_then(number).is_some_and(|number| number < self.bound),
        }
    }
}

/// A list of values as JSON; upstream's empty list is Go's nil.
fn list(values: &[String]) -> String {
    match values {
        [] => "null".into(),
        values => serde_json::to_string(values).unwrap_or_default(),
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = match self.operator {
            Operator::DoesNotExist => return write!(formatter, "!{}", self.key),
            Operator::Exists => return formatter.write_str(&self.key),
            Operator::In => (" in (", ")"),
            Operator::NotIn => (" notin (", ")"),
            Operator::Equals => ("=", ""),
            Operator::DoubleEquals => ("==", ""),
            Operator::NotEquals => ("!=", ""),
            Operator::GreaterThan => (">", ""),
            Operator::LessThan => ("<", ""),
        };
        let mut values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        values.sort_unstable();
        write!(formatter, "{}{before}{}{after}", self.key, values.join(","))
    }
}
