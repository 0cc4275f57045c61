//! What the tests of the workspace share. A dev-dependency only: no crate that ships links it.
//!
//! ```text
//!   Rng           a seeded generator: the same seed, the same test
//!   VirtualClock  the time, moved by the test; also a Timer whose sleeps end at once
//!   FakeApi       an API server that is one function, and keeps what it was asked
//!   ScriptedApi   an API server that expects exactly these exchanges, in this order
//!   pod, node     builders of objects, as JSON or as the model's views
//!   logged        what code logs, line by line
//!   binary        which `bayplan` a test runs
//!   free_ports    ports for servers that cannot choose one themselves
//!   skipped       says that a test cannot run here, so that CI can count it
//!   Etcd          a real etcd of the test's own
//!   store_suite   what every store must do, run on each of them
//! ```

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod api;
mod binary;
mod clock;
mod etcd;
mod log;
mod objects;
mod ports;
mod rng;
mod skipped;
pub mod store_suite;

pub use api::{ANY, Exchange, FakeApi, NoEvents, ScriptedApi, refused, request_line};
pub use binary::binary;
pub use clock::VirtualClock;
pub use etcd::Etcd;
pub use log::logged;
pub use objects::{NodeBuilder, PodBuilder, merge, node, pod};
pub use ports::free_ports;
pub use rng::Rng;
pub use skipped::skipped;
