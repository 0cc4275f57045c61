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
//! waits behind itself.
//!
//! Invariant: nothing here reads a clock, waits or knows HTTP. Times are durations since any fixed time.
//!
//! What differs from upstream: a write takes one seat however many watches it wakes (upstream adds up to ten for 5 ms),
//! and configuration is read once.

pub mod bootstrap;
pub mod borrowing;
mod config;
mod demand;
pub mod fair_queue;
mod level;
mod matching;
mod retry_after;
pub mod shuffle_sharding;

pub use config::{
    Distinguisher, FlowSchema, Limiting, NonResourceRule, PriorityLevel, Queuing, ResourceRule, Rule, Subject,
};
pub use level::{Answer, Level, Ticket};
pub use matching::Request;

use std::time::Duration;

/// How often the levels lend each other seats anew, as upstream.
pub const BORROWING_PERIOD: Duration = Duration::from_secs(10);

/// The flow schemas in the order in which they are asked, and the levels that they name.
pub struct Classifier {
    schemas: Vec<(FlowSchema, usize)>,
}

/// What a request was recognised as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class<'a> {
    /// The name of the flow schema.
    pub schema: &'a str,
    /// The index of the priority level.
    pub level: usize,
    /// The flow within the level, as a hash from which its hand is dealt.
    pub flow: u64,
}

impl Classifier {
    /// Orders flow schemas by precedence, then by name. A schema without its level is never asked.
    pub fn new(schemas: &[FlowSchema], levels: &[PriorityLevel]) -> Classifier {
        let level_of = |schema: &FlowSchema| levels.iter().position(|level| level.name == schema.level);
        let found = schemas.iter().filter_map(|schema| Some((schema.clone(), level_of(schema)?)));
        let mut schemas: Vec<_> = found.collect();
        schemas.sort_by(|(a, _), (b, _)| (a.precedence, a.name).cmp(&(b.precedence, b.name)));
        Classifier { schemas }
    }

    /// The class of a request: that of the first schema that matches, of the last if none does.
    pub fn classify(&self, request: &Request<'_>) -> Option<Class<'_>> {
        let found = self.schemas.iter().find(|(schema, _)| matching::matches(schema, request));
        let (schema, level) = found.or(self.schemas.last())?;
        let distinguisher = match schema.distinguisher {
            Distinguisher::None => "",
            Distinguisher::ByUser => request.user,
            Distinguisher::ByNamespace => request.namespace,
        };
        Some(Class { schema: schema.name, level: *level, flow: flow(schema.name, distinguisher) })
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
