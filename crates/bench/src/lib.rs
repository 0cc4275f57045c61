//! Measures the scheduler: workloads as data, the drivers that run them, and the figures of a run.
//!
//! ```text
//!   workloads.yaml ─▶ workload (steps) ─▶ plan (one object after the other) ─┬─▶ engine: the scheduler's core alone
//!   trace files ────▶                                                        └─▶ e2e: JSON, over an API server
//!                                                     measurement (latencies, processor time, memory) ─▶ report, plot
//! ```

pub mod ask;
mod day;
pub mod e2e;
pub mod engine;
mod fake_api_server;
pub mod measurement;
mod mixed;
pub mod objects;
pub mod plot;
pub mod report;
pub mod trace;
pub mod workload;

pub use report::Run;
pub use workload::Workload;
