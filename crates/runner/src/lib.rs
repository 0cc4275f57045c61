//! The shell that drives the scheduler, the controllers and the simulated nodes against an API server.

pub mod controllers;
pub mod extender;
pub mod nodes;
pub mod scheduler;
