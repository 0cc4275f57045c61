//! Patches on JSON objects: JSON patch, merge patch, strategic merge patch and server-side apply.
//!
//! Each takes an object and a patch and returns the new object or a reason. Nothing here knows HTTP, but every error
//! has a [`Fault`], which decides the status code.

pub mod apply;
pub mod body;
pub mod json_patch;
pub mod merge_patch;
pub mod strategic;
pub mod strict;

/// Whose fault it is that a patch has no result, as upstream judges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The patch cannot be read: bad request (400), with the error's text.
    Undecodable,
    /// The patch is larger than we want to work on: request entity too large (413), with the error's text.
    TooLarge,
    /// The patch is short, but carrying it out is not: unprocessable (422), with the error's text.
    TooCostly,
    /// The patch does not fit this object: unprocessable (422); upstream hides the error's text.
    Inapplicable,
    /// Upstream does not know either: internal error (500) without reason, with the error's text.
    Unclassified,
}
