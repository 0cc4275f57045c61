//! The ResourceQuota controller: what an object counts for, and in which quota.

use std::collections::BTreeSet;

use bayplan_model::quota::{Measured, Usage, is_counted_by, scopes};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Outcome, Types, equal, parse};

pub(super) const TYPES: Types = &[
    ("quotaClaim", |case| quota(case, "persistentvolumeclaims")),
    ("quotaPod", |case| quota(case, "pods")),
    ("quotaService", |case| quota(case, "services")),
];

fn quota(case: &Value, plural: &str) -> Outcome {
    let (input, expect) = (&case["input"], &case["expect"]);
    let now: Timestamp = parse(&input["now"])?;
    let measured = Measured::read("", plural, &input["object"])?;
    let usage = measured.usage(now);
    let (spec, status) = (&input["quota"]["spec"], &input["quota"]["status"]);
    let limited = |part: &Value| -> BTreeSet<String> {
        let hard = part["hard"].as_object().into_iter().flat_map(Map::keys);
        hard.filter(|name| is_counted_by("", plural, name)).cloned().collect()
    };
    let matching = limited(spec);
    // Like upstream's, a quota speaks of nothing before its limits are in its status.
    let matches = !limited(status).is_empty() && scopes(spec).iter().all(|scope| measured.is_in(scope));
    let counted: Usage = usage.clone().into_iter().filter(|(name, _)| matches && matching.contains(name)).collect();
    let matching: Map<String, Value> = matching.into_iter().map(|name| (name, json!(true))).collect();
    let answer = json!({
        "usage": usage,
        "matchingResources": matching,
        "quotaMatches": matches,
        "counted": counted,
    });
    equal(&answer, expect)
}
