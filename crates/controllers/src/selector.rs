//! Label selectors and int-or-percent values as workloads hold them.

use std::collections::BTreeMap;

use bayplan_model::meta::Map;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// `metav1.LabelSelector`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels that must have exactly these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: Map,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// `metav1.LabelSelectorRequirement`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values `In` and `NotIn` compare with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Selects everything.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether every requirement can be evaluated.
    pub fn is_valid(&self) -> bool {
        self.match_expressions.iter().all(|r| match r.operator.as_str() {
            "In" | "NotIn" => !r.values.is_empty(),
            "Exists" | "DoesNotExist" => r.values.is_empty(),
            _ => false,
        })
    }

    /// Whether these labels are selected; an invalid selector selects nothing.
    pub fn matches(&self, labels: &Map) -> bool {
        self.is_valid()
            && self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|r| r.matches(labels))
    }
}

impl Requirement {
    fn matches(&self, labels: &Map) -> bool {
        let value = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => value.is_some_and(|v| self.values.contains(v)),
            "NotIn" => value.is_none_or(|v| !self.values.contains(v)),
            "Exists" => value.is_some(),
            _ => value.is_none(),
        }
    }
}

/// A number, or a percentage of something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A percentage, `25%`.
    String(String),
}

impl IntOrString {
    /// The number, or the percentage of `total` rounded up or down.
    pub fn scaled(&self, total: i32, round_up: bool) -> Result<i32, Error> {
        let percent = match self {
            IntOrString::Int(value) => return Ok(*value),
            IntOrString::String(text) => text
                .strip_suffix('%')
                .ok_or_else(|| invalid("invalid type: string is not a percentage"))
                .and_then(|digits| digits.parse::<i32>().map_err(|_| invalid(&syntax(text, digits)))),
        }?;
        let product = f64::from(percent) * f64::from(total) / 100.0;
        let scaled = if round_up { product.ceil() } else { product.floor() };
        Ok(scaled.clamp(f64::from(i32::MIN), f64::from(i32::MAX)) as i32)
    }
}

fn syntax(text: &str, digits: &str) -> String {
    format!("invalid value {text:?}: strconv.Atoi: parsing {digits:?}: invalid syntax")
}

fn invalid(why: &str) -> Error {
    Error::Invalid(format!("invalid value for IntOrString: {why}"))
}
