//! The rules of paths inside of volumes.

use crate::field::{ErrorList, Path};

/// A path that goes nowhere but down.
pub(super) fn descending_path(errors: &mut ErrorList, path: Path<'_>, value: &str) {
    if value.starts_with('/') {
        errors.invalid(path, value, "must be a relative path");
    }
    backsteps(errors, path, value);
}

/// A path that goes down, to a name that Kubernetes does not keep for itself.
pub(super) fn local_path(errors: &mut ErrorList, path: Path<'_>, value: &str) {
    descending_path(errors, path, value);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.invalid(path, value, "must not start with '..'");
    }
}

pub(super) fn steps_back(value: &str) -> bool {
    value.split('/').any(|part| part == "..")
}

pub(super) fn backsteps(errors: &mut ErrorList, path: Path<'_>, value: &str) {
    if steps_back(value) {
        errors.invalid(path, value, "must not contain '..'");
    }
}
