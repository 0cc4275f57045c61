//! Objects for random histories of the engine. Names are few, so that objects meet.

pub(crate) mod pods;
pub(crate) mod storage_and_devices;

use bayplan_testkit::Rng;
use serde_json::{Value, json};

pub(crate) const ZONES: [&str; 3] = ["a", "b", "c"];
pub(crate) const APPS: [&str; 3] = ["x", "y", "z"];
pub(crate) const NAMESPACES: [&str; 3] = ["default", "team", "other"];
pub(crate) const KEYS: [&str; 4] =
    ["topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack", "missing-almost-everywhere"];

/// The namespaces, with a label each that selectors may ask for.
pub(crate) fn namespaces() -> impl Iterator<Item = Value> {
    NAMESPACES.into_iter().map(
        |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"kind": name}}}),
    )
}

/// One of these words.
pub(crate) fn word<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.below(from.len())]
}
