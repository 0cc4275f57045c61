//! Replays recorded answers of upstream Kubernetes through Bayplan's own code.
//!
//! ```text
//!   corpus file ──recording──▶ case ──suites::<suite>──▶ equal, or the first difference ──runner──▶ report
//! ```
//!
//! A suite is one file in `suites/` and one row in [`suites::SUITES`]. Recordings are JSON lines, gzipped or plain;
//! each line is one case, named by its `id` or `name`.

pub mod difference;
pub mod recording;
pub mod runner;
pub mod suites;
