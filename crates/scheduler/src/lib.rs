//! The scheduler as a pure core: it reads no clock, owns no randomness and does no IO.
//!
//! ```text
//!   events ──▶ queue ──pop──▶ cycle ──decision──▶ assume, reserve, permit ──▶ bind (an effect)
//!     │                         │ borrows                                       │
//!     └──────▶ cluster ◀────────┘                 results come back as events ◀─┘
//! ```
//!
//! Plugins implement [`framework::Plugin`]; a [`profile::Profile`] is the plugins of one `schedulerName` in their order.

pub mod bind;
pub mod cluster;
pub mod config;
pub mod cycle;
pub mod effect;
pub mod engine;
pub mod extender;
pub mod framework;
mod metrics;
pub mod plugins;
pub mod profile;
pub mod queue;
mod queue_plugins;
pub mod scheduler;

pub use metrics::Clock;
