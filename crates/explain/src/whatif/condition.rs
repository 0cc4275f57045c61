//! Conditions on an answer: `--fail-if 'pending>0'`.

use std::str::FromStr;

use bayplan_model::quantity::Quantity;

use super::answer::WhatIf;
use crate::capacity::Capacity;

/// Why a condition cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConditionError {
    /// It has not the form of a comparison.
    #[error("{0:?} is not of the form FIELD OPERATOR NUMBER, for example 'pending>0' or 'utilisation.cpu>=0.9'")]
    Form(String),
    /// It compares something that an answer does not have.
    #[error(
        "{0:?} is not a number of an answer: use pending, placed, moved, stuck, preempted, deleted, moreCopies, nodes, \
         pods, or utilisation.RESOURCE, fragmented.RESOURCE, largestHole.RESOURCE"
    )]
    Field(String),
    /// It compares with something else than a number.
    #[error("{0:?} is not a number such as 0, 0.9 or 500m")]
    Number(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    GreaterOrEqual,
    LessOrEqual,
    Equal,
    NotEqual,
    Greater,
    Less,
}

/// The operators; those of two characters first, because the others are part of them.
const OPERATORS: [(&str, Operator); 6] = [
    (">=", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    (">", Operator::Greater),
    ("<", Operator::Less),
];

const COUNTS: [&str; 9] =
    ["pending", "placed", "moved", "stuck", "preempted", "deleted", "moreCopies", "nodes", "pods"];
const SHARES: [&str; 3] = ["utilisation", "fragmented", "largestHole"];

/// A comparison of a number of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    field: String,
    operator: Operator,
    number: f64,
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let form = || ConditionError::Form(text.to_owned());
        let found = OPERATORS.iter().find_map(|(sign, operator)| Some((text.find(sign)?, sign.len(), *operator)));
        let (at, length, operator) = found.ok_or_else(form)?;
        let (field, number) = (text[..at].trim().to_owned(), text[at + length..].trim());
        let known = match field.split_once('.') {
            Some((map, resource)) => SHARES.contains(&map) && !resource.is_empty(),
            None => COUNTS.contains(&field.as_str()),
        };
        if !known {
            return Err(ConditionError::Field(field));
        }
        let number = amount(number).ok_or_else(|| ConditionError::Number(number.to_owned()))?;
        Ok(Condition { text: text.to_owned(), field, operator, number })
    }
}

/// A number, or a quantity as Kubernetes writes it.
fn amount(text: &str) -> Option<f64> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Some(number),
        _ => quantity_value(text),
    }
}

fn quantity_value(text: &str) -> Option<f64> {
    let quantity: Quantity = text.parse().ok()?;
    let milli = quantity.milli_value();
    Some(if milli == i64::MAX { quantity.value() as f64 } else { milli as f64 / 1000.0 })
}

impl Condition {
    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds for an answer. What an answer does not have is 0.
    pub fn holds(&self, answer: &WhatIf) -> bool {
        let value = self.value(answer);
        match self.operator {
            Operator::GreaterOrEqual => value >= self.number,
            Operator::LessOrEqual => value <= self.number,
            Operator::Equal => value == self.number,
            Operator::NotEqual => value != self.number,
            Operator::Greater => value > self.number,
            Operator::Less => value < self.number,
        }
    }

    fn value(&self, answer: &WhatIf) -> f64 {
        let count = match self.field.as_str() {
            "pending" => answer.pending.len(),
            "placed" => answer.placed.len(),
            "moved" => answer.moved.len(),
            "stuck" => answer.stuck.len(),
            "preempted" => answer.preempted.len(),
            "deleted" => answer.deleted.len(),
            "moreCopies" => answer.more_copies.unwrap_or(0),
            "nodes" => answer.after.nodes,
            "pods" => answer.after.pods,
            other => return share(&answer.after, other),
        };
        count as f64
    }
}

fn share(after: &Capacity, field: &str) -> f64 {
    let Some((map, resource)) = field.split_once('.') else { return 0.0 };
    match map {
        "utilisation" => after.utilisation.get(resource).copied().unwrap_or(0.0),
        "fragmented" => after.fragmented.get(resource).copied().unwrap_or(0.0),
        _ => after.largest_hole.get(resource).and_then(|hole| quantity_value(hole)).unwrap_or(0.0),
    }
}
