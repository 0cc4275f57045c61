//! The names of drivers, pools, devices and their attributes.

use crate::field::{ErrorList, Path};
use crate::names;

const DRIVER_MAX: usize = 63;
const POOL_MAX: usize = 253;
const IDENTIFIER_MAX: usize = 32;
const IDENTIFIER_FORM: &str = "[A-Za-z_][A-Za-z0-9_]*";

/// The name of a driver. Upstream: `ValidateCSIDriverName`.
pub(super) fn driver(errors: &mut ErrorList, path: Path<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > DRIVER_MAX {
        errors.too_long(path, DRIVER_MAX);
    }
    errors.all_invalid(path, name, names::dns_subdomain(&name.to_lowercase()));
}

pub(super) fn pool(errors: &mut ErrorList, path: Path<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > POOL_MAX {
        errors.too_long(path, POOL_MAX);
    }
    name.split('/').for_each(|part| errors.all_invalid(path, part, names::dns_subdomain(part)));
}

/// A device, a request or a set of counters.
pub(super) fn label(errors: &mut ErrorList, path: Path<'_>, name: &str) {
    errors.all_invalid(path, name, names::dns_label(name));
}

/// An attribute or a capacity; without a domain it is the driver's.
pub(super) fn qualified(errors: &mut ErrorList, path: Path<'_>, name: &str) {
    match name.split('/').collect::<Vec<_>>()[..] {
        [id] => identifier(errors, path, id),
        [domain, id] => {
            match domain {
                "" => errors.invalid(path, "", "the domain must not be empty"),
                domain => driver(errors, path, domain),
            }
            match id {
                "" => errors.invalid(path, "", "the name must not be empty"),
                id => identifier(errors, path, id),
            }
        }
        _ => {}
    }
}

/// An attribute with its domain.
pub(super) fn fully_qualified(errors: &mut ErrorList, path: Path<'_>, name: &str) {
    qualified(errors, path, name);
    if !name.contains('/') {
        errors.invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

fn identifier(errors: &mut ErrorList, path: Path<'_>, id: &str) {
    if id.len() > IDENTIFIER_MAX {
        errors.too_long(path, IDENTIFIER_MAX);
    }
    let formed = |id: &str| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if id.is_empty() || id.starts_with(|first: char| first.is_ascii_digit()) || !formed(id) {
        let words = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
                     alphanumeric characters or '_'";
        errors.invalid(path, id, &names::form_error(words, IDENTIFIER_FORM, &["my_name", "MY_NAME", "MyName"]));
    }
}
