//! Quantities in their canonical spelling.

use std::borrow::Cow;

use bayplan_model::quantity::Quantity;

/// Upstream's message for text that is not a quantity.
pub(crate) const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// The canonical spelling: `0.25` is `250m`, `1024Mi` is `1Gi`.
pub(crate) fn canonical(text: &str) -> Result<Cow<'_, str>, String> {
    if text == "0" || is_small_integer(text) {
        return Ok(Cow::Borrowed(text));
    }
    let quantity: Quantity = text.parse().map_err(|error| format!("{error}"))?;
    Ok(Cow::Owned(quantity.to_string()))
}

/// Whole numbers below a thousand, which are canonical already.
fn is_small_integer(text: &str) -> bool {
    text.len() <= 3 && !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0')
}
