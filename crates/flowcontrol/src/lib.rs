//! API priority and fairness (KEP-1040): whose request is served next when a server is busy.
//!
//! ```text
//!   request ─▶ flow schema (first that matches) ─▶ priority level ─▶ seat
//!                 └ flow: user or namespace ─▶ hand of queues ─┘└ none free: waits in the shortest queue of the hand
//! ```
//!
//! A server has so many seats. Priority levels have shares of them and lend each other what they do not need
//! ([`borrowing`]). Within a level, the requests of one flow can only fill the few queues of its hand
//! ([`shuffle_sharding`]), and queues are served by virtual time ([`fair_queue`]), so that a flow of many requests
//! waits behind itself. What the levels and schemas are is read from objects ([`config`]) and changes with them
//! ([`plan`]).
//!
//! Invariant: nothing here reads a clock, waits or knows HTTP. Times are durations since any fixed time.

pub mod borrowing;
pub mod config;
mod demand;
pub mod fair_queue;
mod level;
mod matching;
pub mod plan;
mod retry_after;
pub mod shuffle_sharding;
mod work;

pub use config::{Broken, Distinguisher, FlowSchema, Limiting, PriorityLevel, Queuing};
pub use level::{Answer, Level, Linger, Refusal, Tally, Ticket};
pub use matching::Request;
pub use plan::{Former, Objects, Plan, PlannedLevel};
pub use work::{Estimate, Work};

use std::sync::Arc;
use std::time::Duration;

use config::CATCH_ALL;

/// How often the levels lend each other seats anew, as upstream.
pub const BORROWING_PERIOD: Duration = Duration::from_secs(10);

/// A flow schema and where its requests go.
#[derive(Clone, Debug)]
struct Destination {
    schema: Arc<FlowSchema>,
    level: usize,
    /// The level has several queues.
    spread: bool,
}

/// The flow schemas in the order in which they are asked, and the levels that they name.
#[derive(Clone, Debug, Default)]
pub struct Classifier {
    destinations: Vec<Destination>,
}

/// What a request was recognised as.
#[derive(Clone, Copy, Debug)]
pub struct Class<'a> {
    /// The flow schema.
    pub schema: &'a Arc<FlowSchema>,
    /// The index of the priority level.
    pub level: usize,
    /// What tells its flow from others of the schema; empty in a level without several queues.
    pub distinguisher: &'a str,
    /// The flow within the level, as a hash from which its hand is dealt.
    pub flow: u64,
}

impl Classifier {
    fn new(destinations: Vec<Destination>) -> Classifier {
        Classifier { destinations }
    }

    /// The class of a request: that of the first schema that matches, of `catch-all` if none does.
    pub fn classify<'a>(&'a self, request: &Request<'a>) -> Option<Class<'a>> {
        let mut destinations = self.destinations.iter();
        let found = destinations.find(|destination| matching::matches(&destination.schema, request));
        let last = || self.destinations.iter().find(|destination| destination.schema.name == CATCH_ALL);
        let Destination { schema, level, spread } = found.or_else(last)?;
        let distinguisher = match schema.distinguisher {
            Distinguisher::ByUser if *spread => request.user,
            Distinguisher::ByNamespace if *spread => request.namespace,
            _ => "",
        };
        let flow = if *spread { flow(&schema.name, distinguisher) } else { 0 };
        Some(Class { schema, level: *level, distinguisher, flow })
    }
}

impl PriorityLevel {
    /// True if there are several queues over which flows are spread.
    fn spreads(&self) -> bool {
        matches!(self.limiting, Limiting::Queue(queuing) if queuing.queues > 1)
    }
}

/// The hash of a flow, from which its hand is dealt.
fn flow(schema: &str, distinguisher: &str) -> u64 {
    use aws_lc_rs::digest;
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(schema.as_bytes());
    hash.update(&[0]);
    hash.update(distinguisher.as_bytes());
    let sum = hash.finish();
    sum.as_ref().iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
