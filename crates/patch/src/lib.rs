//! Patches on JSON objects: JSON patch, merge patch and strategic merge patch.
//!
//! Each takes an object and a patch and returns the new object or a reason; nothing here knows HTTP, but every error
//! says whether the patch could not be read (400) or could not be applied to this object (422).

pub mod json_patch;
pub mod merge_patch;
pub mod strategic;
