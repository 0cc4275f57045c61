//! Lists of bounded length.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::object::text;

/// Reports a list that is too long; its elements are not looked at then.
pub(super) fn at_most(errors: &mut ErrorList, path: Path<'_>, count: usize, max: usize) -> bool {
    if count > max {
        errors.add("FieldValueTooMany", path, || format!("Too many: {count}: must have at most {max} items"));
    }
    count <= max
}

/// Checks each element of a list, which may not be too long.
pub(super) fn each(
    errors: &mut ErrorList,
    path: Path<'_>,
    elements: &[Value],
    max: usize,
    mut check: impl FnMut(&mut ErrorList, Path<'_>, &Value),
) {
    if at_most(errors, path, elements.len(), max) {
        for (index, element) in elements.iter().enumerate() {
            check(errors, path.index(index), element);
        }
    }
}

/// As [`each`], and no two elements may have one key.
pub(super) fn set(
    errors: &mut ErrorList,
    path: Path<'_>,
    elements: &[Value],
    max: usize,
    key: fn(&Value) -> &str,
    check: impl FnMut(&mut ErrorList, Path<'_>, &Value),
) {
    each(errors, path, elements, max, check);
    if elements.len() > max {
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, element) in elements.iter().enumerate() {
        if !seen.insert(key(element)) {
            errors.duplicate(path.index(index), key(element));
        }
    }
}

/// The key of elements with names.
pub(super) fn name(element: &Value) -> &str {
    text(element, "name")
}

/// The key of texts.
pub(super) fn itself(element: &Value) -> &str {
    element.as_str().unwrap_or_default()
}
