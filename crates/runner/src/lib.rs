//! The shell: tokio tasks that drive the scheduler, the controllers and the simulated nodes against an API server.
//!
//! ```text
//!   client::informer ──Delta──▶ scheduler │ controllers │ nodes (pure cores) ──requests──▶ client ──▶ API server
//!   ops_server ◀── telemetry ── each of them: health, metrics, configuration
//! ```

pub mod controllers;
pub mod decision_log;
mod effects;
pub mod extender;
mod inputs;
pub mod metrics;
pub mod nodes;
pub mod ops_server;
pub mod scheduler;
pub mod telemetry;
pub mod watch;
