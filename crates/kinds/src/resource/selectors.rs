//! The rules of device selectors: how many there may be, that they compile, and what they may cost.

use std::sync::Arc;

use bayplan_cel::device::Selector;
use bayplan_cel::{Error, Regexes, SELECTOR_COST_MAX};
use serde_json::Value;

use super::lists::at_most;
use crate::field::{ErrorList, Path};
use crate::object::{given, list, text};

/// The most selectors of a request or a class.
const SELECTORS_MAX: usize = 32;
/// The longest expression, 10 KiB. A longer one is not looked at.
const EXPRESSION_MAX: usize = 10 * 1024;

/// Checks the selectors of a request or a class. Stored ones may use what is newer than the version before.
pub(super) fn of_list(errors: &mut ErrorList, path: Path<'_>, parent: &Value, stored: bool) {
    let selectors = list(parent, "selectors");
    if !at_most(errors, path, selectors.len(), SELECTORS_MAX) {
        return;
    }
    for (i, selector) in selectors.iter().enumerate() {
        let path = path.index(i);
        let path = path.child("cel");
        if given(selector, "cel") {
            expression(errors, path.child("expression"), text(&selector["cel"], "expression"), stored);
        } else {
            errors.required(path, "");
        }
    }
}

fn expression(errors: &mut ErrorList, path: Path<'_>, expression: &str, stored: bool) {
    if expression.len() > EXPRESSION_MAX {
        return errors.too_long(path, EXPRESSION_MAX);
    }
    match Selector::compile(expression, stored, &Arc::new(Regexes::default())) {
        Ok(selector) if selector.max_cost() > SELECTOR_COST_MAX => {
            errors.forbidden(path, "too complex, exceeds cost limit");
        }
        Ok(_) => {}
        Err(error @ Error::Instantiation(_)) => {
            errors.add("InternalError", path, || format!("Internal error: {error}"));
        }
        Err(error) => errors.invalid(path, expression, &error.to_string()),
    }
}
