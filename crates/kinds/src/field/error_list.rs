//! Collects field errors, in upstream's words. Upstream: `field.ErrorList`.

use bayplan_model::quoted::Quoted;
use serde_json::Value;

use super::quote::Quote;
use super::{FieldError, Path, go_value};
use crate::codec::Empties;

/// The most errors that are written out; the entry after them says how many more there are. Upstream writes out all of
/// them, and so an answer can be a hundred times as large as its request; its decoder stops at 100 as well.
const LISTED_MAX: usize = 100;

/// The most bytes that the errors written out may have before the next one is only counted, and the most of a value
/// that one of them quotes: that may be a 3 MiB body with all its defaults, and an answer has each error twice.
const LISTED_BYTES_MAX: usize = 256 * 1024;

/// What decides about the errors of an object besides the object itself.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// Whether the cluster refuses privileged containers, as it does without upstream's `--allow-privileged`.
    pub refuses_privileged: bool,
    /// Where the client gave empty lists and maps, which messages quote.
    pub empties: Empties,
}

/// Two values of the type of that full name.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) definition: &'static str,
    pub(crate) old: &'a Value,
    pub(crate) new: &'a Value,
}

/// The errors found so far.
#[derive(Default)]
pub(crate) struct ErrorList {
    circumstances: Circumstances,
    listed: Vec<FieldError>,
    listed_bytes: usize,
    /// How many were found when the list was full.
    unlisted: usize,
    /// The field of the first of those.
    first_unlisted: String,
}

impl ErrorList {
    pub(crate) fn under(circumstances: Circumstances) -> Self {
        ErrorList { circumstances, ..ErrorList::default() }
    }

    /// Whether the cluster refuses privileged containers.
    pub(crate) fn refuses_privileged(&self) -> bool {
        self.circumstances.refuses_privileged
    }

    /// Whether the client gave a list or map empty at a path or below it, which a canonical object does not show.
    pub(crate) fn was_given_empty(&self, path: Path<'_>) -> bool {
        !self.circumstances.empties.is_empty() && self.circumstances.empties.any_at(&path.steps())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// How many were found, listed or not.
    pub(crate) fn count(&self) -> usize {
        self.listed.len().saturating_add(self.unlisted)
    }

    /// The errors, and as the last one how many are not among them.
    pub(crate) fn into_vec(mut self) -> Vec<FieldError> {
        if self.unlisted > 0 {
            let message = format!("Too many errors: {} more are not listed", self.unlisted);
            self.listed.push(FieldError::new("TooManyErrors", self.first_unlisted, message));
        }
        self.listed
    }

    /// Adds an error of any reason; its message must begin with the reason's words. Neither its path nor its message is
    /// written when the list is full.
    pub(crate) fn add(&mut self, reason: &'static str, path: Path<'_>, message: impl FnOnce() -> String) {
        if self.listed.len() >= LISTED_MAX || self.listed_bytes > LISTED_BYTES_MAX {
            if self.unlisted == 0 {
                self.first_unlisted = path.to_string();
            }
            self.unlisted = self.unlisted.saturating_add(1);
            return;
        }
        let error = FieldError::new(reason, path.to_string(), message());
        self.listed_bytes = self.listed_bytes.saturating_add(error.field.len()).saturating_add(error.message.len());
        self.listed.push(error);
    }

    /// As [`invalid`](Self::invalid), with a detail about more than the element in question: it is written only if it
    /// is listed, and so not once for each element.
    pub(crate) fn invalid_because(&mut self, path: Path<'_>, value: impl Quote, detail: impl FnOnce() -> String) {
        let empties = self.circumstances.empties.clone();
        self.add("FieldValueInvalid", path, || {
            let shown = quoted(value, path, &empties);
            format!("Invalid value: {shown}: {}", detail())
        });
    }

    fn with_value(&mut self, reason: &'static str, words: &str, path: Path<'_>, value: impl Quote, detail: &str) {
        let empties = self.circumstances.empties.clone();
        self.add(reason, path, || {
            let shown = quoted(value, path, &empties);
            if detail.is_empty() { format!("{words}: {shown}") } else { format!("{words}: {shown}: {detail}") }
        });
    }

    pub(crate) fn invalid(&mut self, path: Path<'_>, value: impl Quote, detail: &str) {
        self.with_value("FieldValueInvalid", "Invalid value", path, value, detail);
    }

    /// Reports the value as invalid once for each detail.
    pub(crate) fn all_invalid(&mut self, path: Path<'_>, value: &str, details: Vec<String>) {
        for detail in details {
            self.invalid(path, value, &detail);
        }
    }

    pub(crate) fn required(&mut self, path: Path<'_>, detail: &str) {
        self.add("FieldValueRequired", path, || {
            if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") }
        });
    }

    pub(crate) fn forbidden(&mut self, path: Path<'_>, detail: &str) {
        self.add("FieldValueForbidden", path, || format!("Forbidden: {detail}"));
    }

    /// Forbids a change, and shows what differs between two values of a type, of which the new one stands at `at`.
    pub(crate) fn forbidden_change(&mut self, path: Path<'_>, detail: &str, at: Path<'_>, change: Change<'_>) {
        let empties = self.circumstances.empties.clone();
        let Change { definition, old, new } = change;
        self.add("FieldValueForbidden", path, || {
            let difference = go_value::difference(definition, old, &empties.restored_at(&at.steps(), new));
            format!("Forbidden: {detail}\n{difference}")
        });
    }

    pub(crate) fn duplicate(&mut self, path: Path<'_>, value: impl Quote) {
        self.with_value("FieldValueDuplicate", "Duplicate value", path, value, "");
    }

    pub(crate) fn duplicate_with(&mut self, path: Path<'_>, value: impl Quote, detail: &str) {
        self.with_value("FieldValueDuplicate", "Duplicate value", path, value, detail);
    }

    pub(crate) fn not_found(&mut self, path: Path<'_>, value: &str) {
        self.with_value("FieldValueNotFound", "Not found", path, value, "");
    }

    pub(crate) fn not_found_because(&mut self, path: Path<'_>, value: &str, detail: impl FnOnce() -> String) {
        self.add("FieldValueNotFound", path, || format!("Not found: {}: {}", Quoted(value), detail()));
    }

    /// `Invalid value: …` without the value.
    pub(crate) fn invalid_without_value(&mut self, path: Path<'_>, detail: &str) {
        self.add("FieldValueInvalid", path, || format!("Invalid value: {detail}"));
    }

    pub(crate) fn too_many(&mut self, path: Path<'_>, count: usize, max: usize) {
        self.add("FieldValueTooMany", path, || {
            let items = if max == 1 { "item" } else { "items" };
            format!("Too many: {count}: must have at most {max} {items}")
        });
    }

    pub(crate) fn not_supported(&mut self, path: Path<'_>, value: impl Quote, supported: &[&str]) {
        let empties = self.circumstances.empties.clone();
        self.add("FieldValueNotSupported", path, || {
            let list: Vec<String> = supported.iter().map(|value| Quoted(value).to_string()).collect();
            let shown = quoted(value, path, &empties);
            format!("Unsupported value: {shown}: supported values: {}", list.join(", "))
        });
    }

    pub(crate) fn too_long(&mut self, path: Path<'_>, max: usize) {
        self.add("FieldValueTooLong", path, || format!("Too long: may not be more than {max} bytes"));
    }

    pub(crate) fn non_negative(&mut self, path: Path<'_>, number: i64) {
        if number < 0 {
            self.invalid(path, number, "must be greater than or equal to 0");
        }
    }

    /// Requires one of the supported values.
    pub(crate) fn one_of(&mut self, path: Path<'_>, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(path, "");
        } else if !supported.contains(&value) {
            self.not_supported(path, value, supported);
        }
    }

    pub(crate) fn immutable(&mut self, path: Path<'_>, new: &Value, old: &Value) {
        if new != old {
            self.invalid(path, new, "field is immutable");
        }
    }
}

/// A value as a message quotes it, or its beginning and how much more there is.
fn quoted(value: impl Quote, path: Path<'_>, empties: &Empties) -> String {
    let mut shown = value.quote(path, empties);
    if shown.len() > LISTED_BYTES_MAX {
        let end = shown.floor_char_boundary(LISTED_BYTES_MAX);
        let more = shown.len() - end;
        shown.truncate(end);
        shown.push_str(&format!("… ({more} more bytes)"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::Json;
    use super::*;

    #[test]
    fn a_hundred_errors_are_listed_and_the_others_counted() {
        let found = |count: usize| {
            let mut errors = ErrorList::default();
            let path = Path::root("spec");
            (0..count).for_each(|index| errors.required(path.index(index), ""));
            errors.into_vec()
        };
        let listed = found(LISTED_MAX);
        assert_eq!((listed.len(), listed[99].to_string().as_str()), (100, "spec[99]: Required value"));
        let listed = found(LISTED_MAX + 7);
        assert_eq!(listed.len(), 101);
        assert_eq!(listed[100].to_string(), "spec[100]: Too many errors: 7 more are not listed");
    }

    #[test]
    fn one_error_may_quote_much_and_the_next_ones_are_counted() {
        let mut errors = ErrorList::default();
        let mut written = 0;
        for _ in 0..3 {
            let quote = || {
                written += 1;
                "x".repeat(LISTED_BYTES_MAX)
            };
            errors.invalid(Path::root("metadata"), Json(quote), "no");
        }
        let listed = errors.into_vec();
        assert_eq!((listed.len(), written), (2, 1));
        assert_eq!(listed[1].to_string(), "metadata: Too many errors: 2 more are not listed");
    }

    #[test]
    fn one_error_does_not_quote_everything() {
        let mut errors = ErrorList::default();
        errors.invalid(Path::root("spec"), Json(|| "é".repeat(LISTED_BYTES_MAX)), "field is immutable");
        let message = errors.into_vec().remove(0).message;
        assert!(message.ends_with(&format!("é… ({LISTED_BYTES_MAX} more bytes): field is immutable")));
        assert!(message.len() < LISTED_BYTES_MAX + 100);
    }
}
