//! The shell that drives the scheduler, the controllers and the simulated nodes against an API server.

pub mod controllers;
pub mod extender;
pub mod metrics;
pub mod nodes;
pub mod ops_server;
pub mod scheduler;
pub mod telemetry;
