//! A client of any Kubernetes API server, and what control loops need around it.
//!
//! ```text
//!   HTTPS (config) ─┐
//!                   ├─ client (api::Request → HTTP → Bytes | Status) ─▶ informer ─▶ cache, subscribers ─▶ work_queue
//!   in-process ─────┘         ▲                    ▲
//!                          recorder        leader_election
//! ```
//!
//! Each of them is a pure state machine (fed lines, answers and the time) with a thin tokio driver around it.

mod bearer_token;
mod cache;
mod client;
pub mod clock;
pub mod config;
pub mod informer;
pub mod leader_election;
mod limiter;
pub mod metrics;
mod recorder;
mod request;
mod route;
mod transport;
mod work_queue;

pub use bearer_token::BearerToken;
pub use cache::Cache;
pub use client::Client;
pub use config::{Config, Error};
pub use informer::{Informer, Scope};
pub use leader_election::Elector;
pub use recorder::{CoreEvents, EventRecorder};
pub use transport::{Answer, Body, HttpClient};
pub use work_queue::WorkQueue;
