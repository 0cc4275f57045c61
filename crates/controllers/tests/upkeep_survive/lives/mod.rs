//! The life of each loop's objects: what users and other parts do to them, and what the loop promises of them.

mod aggregation;
mod attachments;
mod attributes_classes;
mod node_ttl;
mod service_ranges;
mod tokens;

use std::sync::Arc;

use bayplan_controllers::{Cache, Controller, Kind};
use bayplan_testkit::Rng;
use jiff::Timestamp;
use serde_json::Value;

use super::server::Server;

/// A change of the user or of another part.
pub(crate) type Edit = Box<dyn Fn(&Server)>;

/// One loop, and what happens around it.
pub(crate) struct Life {
    pub(crate) name: &'static str,
    /// What it watches.
    pub(crate) kinds: &'static [Kind],
    pub(crate) controller: fn(Arc<Cache>) -> Arc<dyn Controller>,
    /// What users do, each when the world is at rest from the one before.
    pub(crate) stages: &'static [fn(&Server)],
    /// What other parts report after each stage.
    pub(crate) report: fn(&Server),
    /// What other parts do when its time has come, and when they do more.
    pub(crate) others: fn(&Server) -> Option<Timestamp>,
    /// Any change at any time.
    pub(crate) edit: fn(&mut Rng) -> Edit,
    /// What holds after every write of so many managers.
    pub(crate) assert_always: fn(&Server, usize),
    /// What holds when nothing is left to do.
    pub(crate) assert_kept: fn(&Server, &str),
}

pub(crate) const LIVES: &[&Life] = &[
    &aggregation::LIFE,
    &attachments::LIFE,
    &attributes_classes::LIFE,
    &node_ttl::LIFE,
    &service_ranges::LIFE,
    &tokens::LIFE,
];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|one| one == finalizer))
}

/// Nobody reports anything.
fn silent(_: &Server) {}

/// Nobody else is there.
fn nobody(_: &Server) -> Option<Timestamp> {
    None
}

/// Nothing to say of a world at work.
fn anything(_: &Server, _: usize) {}
