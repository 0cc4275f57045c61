//! Compressed files and archives, read as they come. Nothing is unpacked: the name of a file is only a name.

mod inflate;
mod layout;
pub(crate) mod tar;
#[cfg(test)]
mod tests;
pub(crate) mod zip;

pub(crate) use inflate::{Budget, Inflated};
pub(crate) use layout::kind_by_path;

/// Whether a name would lead out of the folder into which somebody unpacks the archive.
pub(crate) fn climbs_out(name: &str) -> bool {
    name.starts_with('/') || name.contains('\\') || name.split('/').any(|part| part == "..")
}
