//! Which `bayplan` a test runs.

use std::ffi::OsString;

/// The binary that `BAYPLAN_BINARY` names, or else the one that was built for the test: figures of a release build need
/// no release build of the tests.
pub fn binary(built: &str) -> OsString {
    std::env::var_os("BAYPLAN_BINARY").unwrap_or_else(|| built.into())
}
