//! What all flow schemas and priority levels of a moment mean together.
//!
//! ```text
//!   objects of a moment ─┐
//!   levels until now ────┼─▶ Plan: schemas in order ─▶ levels with their seats ─▶ references that lead nowhere
//!   what is mandatory ───┘
//! ```
//!
//! A level that is gone but has requests left lingers, with its share, until they are served: new requests no longer
//! come to it. What is mandatory is imagined where there is no object.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::borrowing::{Bounds, bounds};
use crate::config::{CATCH_ALL, EXEMPT, FlowSchema, PriorityLevel};
use crate::{Classifier, Destination};

/// The objects that can be used.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// The priority levels, by name.
    pub levels: Vec<Arc<PriorityLevel>>,
    /// The flow schemas.
    pub schemas: Vec<Arc<FlowSchema>>,
}

/// A level until now.
#[derive(Clone, Debug)]
pub struct Former {
    /// What it was.
    pub level: Arc<PriorityLevel>,
    /// No request waits in it or is served.
    pub idle: bool,
}

/// A level from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedLevel {
    /// What it is.
    pub level: Arc<PriorityLevel>,
    /// Its seats.
    pub bounds: Bounds,
    /// It goes when its requests are served.
    pub quiescing: bool,
}

/// What all objects mean together.
#[derive(Debug)]
pub struct Plan {
    /// Which request goes to which of the levels.
    pub classifier: Classifier,
    /// The levels, by name.
    pub levels: Vec<PlannedLevel>,
    /// The names of the flow schemas whose priority level does not exist.
    pub dangling: Vec<String>,
}

impl Plan {
    /// What these objects mean on a server of so many seats, after these levels. `mandatory` has the levels and schemas
    /// that are imagined where they are missing: `exempt` and `catch-all` of each.
    pub fn new(objects: &Objects, mandatory: &Objects, former: &[Former], seats: usize) -> Plan {
        let mut levels: BTreeMap<&str, (&Arc<PriorityLevel>, bool)> =
            objects.levels.iter().map(|level| (level.name.as_str(), (level, false))).collect();
        let exists = |schema: &&Arc<FlowSchema>| levels.contains_key(schema.level.as_str());
        let (used, dangling): (Vec<_>, Vec<_>) = objects.schemas.iter().partition(exists);
        let schemas = in_order(used, mandatory);
        for Former { level, idle } in former {
            let mandatory = [EXEMPT, CATCH_ALL].contains(&level.name.as_str());
            if mandatory || !idle {
                levels.entry(&level.name).or_insert((level, !mandatory));
            }
        }
        for level in &mandatory.levels {
            levels.entry(&level.name).or_insert((level, false));
        }
        let bounds = bounds(levels.values().map(|(level, _)| &***level), seats);
        let numbers: BTreeMap<&str, usize> = levels.keys().enumerate().map(|(at, name)| (*name, at)).collect();
        let destination = |schema: Arc<FlowSchema>| {
            let (level, _) = levels.get(schema.level.as_str())?;
            Some(Destination { level: *numbers.get(schema.level.as_str())?, spread: level.spreads(), schema })
        };
        Plan {
            classifier: Classifier::new(schemas.into_iter().filter_map(destination).collect()),
            dangling: dangling.into_iter().map(|schema| schema.name.clone()).collect(),
            levels: levels
                .values()
                .zip(bounds)
                .map(|((level, quiescing), bounds)| PlannedLevel {
                    level: Arc::clone(level),
                    bounds,
                    quiescing: *quiescing,
                })
                .collect(),
        }
    }
}

/// The schemas in the order in which they are asked: by precedence, then by name. What is mandatory and missing is
/// imagined: `exempt` first, `catch-all` last.
fn in_order(mut schemas: Vec<&Arc<FlowSchema>>, mandatory: &Objects) -> Vec<Arc<FlowSchema>> {
    schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
    let missing = |name: &'static str| {
        let there = schemas.iter().any(|schema| schema.name == name);
        mandatory.schemas.iter().filter(move |schema| !there && schema.name == name)
    };
    let (first, last) = (missing(EXEMPT), missing(CATCH_ALL));
    first.chain(schemas.iter().copied()).chain(last).cloned().collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
