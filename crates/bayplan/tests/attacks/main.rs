//! Attacks that once worked, each alone against a real process, as a user would start it: real sockets, real TLS, and
//! bounds in seconds and megabytes. They hold for a release build; CONTRIBUTING.md has the command. The parts that
//! stop each attack have tests of their own, which run always.
//!
//! ```text
//!   bodies       small bodies that took minutes
//!   greedy       clients that hold connections, requests, answers and bodies
//!   scheduling   claims that cost much, or that nobody provisions
//! ```

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod bodies;
#[path = "../cluster/mod.rs"]
mod cluster;
mod greedy;
mod scheduling;
mod stopwatch;

/// One attack at a time: two would be measured together.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
