//! Label and field selectors as queries carry them, and label selectors as objects do.

use std::collections::BTreeMap;

use bayplan_model::field_selector::FieldSelector;
use bayplan_model::label_selector::{LabelSelector, Operator, Selector};

use crate::bounded;

/// Bytes allocated for each byte of a selector: `a,` is a requirement with a key and a vector, sorted, and each is
/// parsed three times.
const FACTOR: u64 = 2048;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    bounded::work(text.len(), FACTOR, "a selector", || {
        labels(text);
        fields(text);
        in_object(text);
    });
}

fn labels(text: &str) {
    match Selector::parse(text) {
        Ok(selector) => {
            let written = selector.to_string();
            assert_eq!(Selector::parse(&written).as_ref(), Ok(&selector), "{written:?}");
            assert_eq!(selector.is_everything(), selector.requirements().is_empty());
            agrees(&selector);
        }
        Err(error) => bounded::text(text.len(), "a label selector", &error.to_string()),
    }
}

/// A set that has just the labels that are asked for is judged as each requirement says.
fn agrees(selector: &Selector) {
    let mut labels: BTreeMap<&str, &str> = BTreeMap::new();
    for requirement in selector.requirements() {
        if let Some(value) = requirement.values().first() {
            labels.entry(requirement.key()).or_insert(value);
        }
    }
    let each = selector.requirements().iter().all(|requirement| {
        let value = labels.get(requirement.key()).copied();
        let listed = value.is_some_and(|value| requirement.values().iter().any(|own| own == value));
        match requirement.operator() {
            Operator::In | Operator::Equals | Operator::DoubleEquals => listed,
            Operator::NotIn | Operator::NotEquals => !listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => requirement.matches(&labels),
        }
    });
    assert_eq!(selector.matches(&labels), each, "{selector} on {labels:?}");
}

fn fields(text: &str) {
    match FieldSelector::parse(text) {
        Ok(selector) => {
            let written = selector.to_string();
            // Terms stand in the order of their text, and `==` is written `=`, so their order may change.
            let terms = |selector: &FieldSelector| {
                let mut terms: Vec<String> = selector.requirements().iter().map(|term| format!("{term:?}")).collect();
                terms.sort();
                terms
            };
            assert_eq!(FieldSelector::parse(&written).as_ref().map(terms), Ok(terms(&selector)), "{written:?}");
            for requirement in selector.requirements() {
                let _ = selector.exact_value(&requirement.field);
            }
            let _ = selector.matches(|_| "");
        }
        Err(error) => bounded::text(text.len(), "a field selector", &error.to_string()),
    }
}

fn in_object(text: &str) {
    let Ok(selector) = serde_json::from_str::<LabelSelector>(text) else { return };
    let written = serde_json::to_string(&selector).expect("it is plain data");
    assert_eq!(serde_json::from_str::<LabelSelector>(&written).expect("it was written so"), selector);
    match selector.selector() {
        Ok(selector) => agrees(&selector),
        Err(error) => bounded::text(text.len(), "the selector of an object", &error.to_string()),
    }
}
