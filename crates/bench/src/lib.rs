//! Measures the scheduler: workloads as data, drivers that run them, and what a run costs.
//!
//! ```text
//!   workloads.yaml ─▶ workload (steps) ─▶ plan (one object after the other) ─┬─▶ engine: straight into the scheduler's core
//!   trace files ────▶                                                        └─▶ e2e: JSON, over an API server
//!                                                     measurement (latencies, processor time, memory) ─▶ report, plot
//! ```

pub mod e2e;
pub mod engine;
pub mod measurement;
mod mixed;
pub mod objects;
pub mod plot;
pub mod report;
mod served;
pub mod trace;
pub mod workload;

pub use report::Run;
pub use workload::Workload;
