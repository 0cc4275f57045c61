//! The control loops: single computations, and whole runs.

mod computation;
mod scenario;

use serde_json::Value;

use super::{Mismatch, Outcome};

/// A line with steps is a whole run, any other a single computation.
pub(super) fn check(case: &Value) -> Outcome {
    if case["steps"].is_array() { scenario::check(case) } else { computation::check(case) }
}
