//! What a request costs: the seats that it takes.

use bayplan_flowcontrol::Estimate;

use super::Shared;
use crate::registry::Registry;
use crate::request::{Query, RequestInfo, Verb};

/// The bytes that one seat stands for, as upstream.
const BYTES_PER_SEAT: usize = 100_000;
/// Lists are streamed, and count as no more than this, as upstream's.
const BYTES_MAX: usize = 1_000_000;

/// What a request is expected to cost. Writes pay for the watches that they wake.
pub(super) fn estimate(shared: &Shared, info: &RequestInfo, query: &Query) -> Estimate {
    match info.verb {
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => shared.flow.write(info),
        _ => Estimate::Seats(seats(&shared.registry, info, query)),
    }
}

/// The seats of a request that reads: lists take one for each 100 KB of what they read, at most ten, as upstream's
/// lists from its watch cache.
fn seats(registry: &Registry, info: &RequestInfo, query: &Query) -> usize {
    let whole = match info.verb {
        Verb::List => true,
        Verb::Watch => matches!(query.get("resourceVersion"), None | Some("" | "0")) || query.flag("sendInitialEvents"),
        _ => false,
    };
    if !whole || !info.name.is_empty() {
        return 1;
    }
    let Some(kind) = info.resource().filter(|kind| kind.stored()) else { return 1 };
    let (objects, size) = registry.cache(kind).extent();
    let limit = query.get("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
    let bytes = limit.map_or(objects, |limit| objects.min(limit)).saturating_mul(size).min(BYTES_MAX);
    bytes.div_ceil(BYTES_PER_SEAT).max(1)
}
