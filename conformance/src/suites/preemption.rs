//! Preemption for a pod that fits nowhere: the candidate nodes, their victims, and the choice.

use bayplan_scheduler::Nomination;
use bayplan_scheduler::inspect::{Attempt, PotentialNodes, Search, best_candidates, dry_run, ineligible};
use serde_json::{Map, Value, json};

use super::scheduler::{NOW, cluster, pod, post_filter, profile, sorted, status};
use super::{Mismatch, Outcome};
use crate::difference::compare;

pub(super) fn check(case: &Value) -> Outcome {
    let profile = profile(&case["config"])?;
    let (cluster, nominator) = cluster(&case["objects"])?;
    let pod = pod(&case["pod"])?;
    let mut attempt = Attempt::new(&profile, &cluster, &nominator, &pod, NOW);
    let found = attempt.find(Search::ALL).map_err(|error| Mismatch::Unreadable(error.message()))?;
    let mut diagnosis = found.diagnosis;
    let mut answer = Map::new();
    answer.insert("fitErrorBeforePostFilter".into(), diagnosis.message().into());
    attempt.with_post_filter_context(&diagnosis, 0, |cx| {
        let nodes = PotentialNodes::of(cx);
        answer.insert("potentialNodes".into(), sorted(nodes.iter().map(|node| &node.name)));
        let reason = ineligible(cx);
        answer.insert("eligible".into(), reason.is_none().into());
        answer.insert("candidates".into(), json!({}));
        if let Some(reason) = reason {
            answer.insert("ineligibleReason".into(), reason.into());
            return;
        }
        let result = dry_run(cx, &nodes, 0, nodes.len());
        let candidates = result.candidates.iter().map(|candidate| {
            let victims = sorted(candidate.victims.iter().map(|victim| victim.key()));
            (candidate.node.to_string(), json!({"victims": victims, "numPDBViolations": candidate.pdb_violations}))
        });
        answer.insert("candidates".into(), Value::Object(candidates.collect()));
        let statuses = result.statuses.nodes.iter().map(|(node, s)| (node.to_string(), status(s)));
        let statuses: Map<String, Value> = statuses.collect();
        if !statuses.is_empty() {
            answer.insert("dryRunStatuses".into(), statuses.into());
        }
        if !result.candidates.is_empty() {
            let acceptable = best_candidates(&result.candidates, NOW);
            answer.insert("acceptable".into(), sorted(acceptable.iter().map(|candidate| &candidate.node)));
        }
    });
    let result = attempt.post_filter(&mut diagnosis, 0);
    if let (Nomination::Override(node), true) = (&result.nomination, result.status.is_success()) {
        let chosen = json!(node);
        let acceptable = answer.get("acceptable").and_then(Value::as_array);
        if !acceptable.is_some_and(|names| names.contains(&chosen)) {
            answer.insert("chosen".into(), chosen);
        }
    }
    answer.insert("postFilter".into(), post_filter(result.status));
    answer.insert("fitError".into(), diagnosis.message().into());
    Ok(compare(&case["expected"], &Value::Object(answer))?)
}
