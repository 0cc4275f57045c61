//! One pending pod against a cluster: feasible nodes, scores, and the message when nothing fits.

use std::collections::BTreeMap;

use bayplan_scheduler::inspect::{Attempt, DecisionInput, Engine, FilterResult, Scores, Search};
use serde_json::{Map, Value, json};

use super::Outcome;
use super::scheduler::{NOW, cluster, pod, post_filter, profile, sorted, status};
use crate::difference::compare;

pub(super) fn check(case: &Value) -> Outcome {
    let profile = profile(&case["config"])?;
    let (cluster, nominator) = cluster(&case["objects"])?;
    let pod = pod(&case["pod"])?;
    let mut attempt = Attempt::new(&profile, &cluster, &nominator, &pod, NOW);
    let expected = &case["expected"];
    let mut answer = Value::Object(decide(&mut attempt, pod.is_assigned()));
    let input = DecisionInput::new(&profile, &cluster, &nominator, &pod, NOW);
    by_engine(&mut Engine::default(), input, &mut answer);
    // Upstream reports any one of these when several nodes fail.
    let any_of = expected["errors"].as_array();
    if any_of.is_some_and(|errors| errors.contains(&answer["error"])) {
        answer["error"] = expected["error"].clone();
        answer["errors"] = expected["errors"].clone();
    }
    Ok(compare(expected, &answer)?)
}

/// Where the fast engine answers, its feasible nodes, scores and best nodes count, not those of the plain cycle.
fn by_engine(engine: &mut Engine, input: DecisionInput<'_>, answer: &mut Value) {
    if answer.get("preEnqueue").is_some() || answer.get("nominatedNodeUsed").is_some() {
        return;
    }
    let Some(scores) = engine.scores(input) else { return };
    answer["feasible"] = sorted(scores.iter().map(|(node, _)| node));
    let highest = scores.iter().map(|(_, score)| score).max();
    let best = sorted(scores.iter().filter(|(_, score)| Some(score) == highest).map(|(node, _)| node));
    match scores.as_slice() {
        [] => {}
        [_] => answer["best"] = best,
        many => {
            answer["totals"] =
                json!(many.iter().map(|(node, score)| (node.to_string(), *score)).collect::<BTreeMap<_, _>>());
            answer["best"] = best;
        }
    }
}

fn decide(attempt: &mut Attempt<'_>, bound: bool) -> Map<String, Value> {
    let mut answer = Map::new();
    answer.insert("feasible".into(), json!([]));
    let gate = attempt.pre_enqueue();
    if !gate.is_success() {
        answer.insert("preEnqueue".into(), status(&gate));
        return answer;
    }
    let found = match attempt.find(Search::ALL) {
        Ok(found) => found,
        Err(error) => {
            answer.insert("error".into(), error.message().into());
            return answer;
        }
    };
    answer.insert("feasible".into(), sorted(found.feasible.iter().map(|node| &node.name)));
    describe_search(attempt, &found, &mut answer);
    match found.feasible.as_slice() {
        [] => describe_no_fit(attempt, found, bound, &mut answer),
        [only] => drop(answer.insert("best".into(), json!([&*only.name]))),
        many => match attempt.score(many) {
            Err(error) => drop(answer.insert("error".into(), error.message().into())),
            Ok(scores) => describe_scores(attempt, &scores, &mut answer),
        },
    }
    answer
}

fn describe_search(attempt: &Attempt<'_>, found: &FilterResult<'_>, answer: &mut Map<String, Value>) {
    let diagnosis = &found.diagnosis;
    if let Some(rejection) = &diagnosis.pre_filter {
        answer.insert("preFilter".into(), status(rejection));
        return;
    }
    if found.nominated_node_used {
        answer.insert("nominatedNodeUsed".into(), true.into());
        return;
    }
    if let Some(names) = &diagnosis.pre_filter_nodes {
        answer.insert("preFilterNodes".into(), sorted(names));
        if found.feasible.is_empty() {
            answer.insert("absentNodes".into(), status(&diagnosis.statuses.absent));
        }
    }
    insert_some(answer, "nodes", diagnosis.statuses.nodes.iter().map(|(name, s)| (name.to_string(), status(s))));
    insert_names(answer, "skippedFilterPlugins", attempt.skipped().0);
}

fn describe_no_fit(attempt: &mut Attempt<'_>, found: FilterResult<'_>, bound: bool, answer: &mut Map<String, Value>) {
    let mut diagnosis = found.diagnosis;
    insert_names(answer, "unschedulablePlugins", diagnosis.unschedulable_plugins.clone());
    insert_names(answer, "pendingPlugins", diagnosis.pending_plugins.clone());
    answer.insert("fitErrorBeforePostFilter".into(), diagnosis.message().into());
    if !bound {
        let result = attempt.post_filter(&mut diagnosis, 0).status;
        answer.insert("postFilter".into(), post_filter(result));
    }
    answer.insert("fitError".into(), diagnosis.message().into());
}

fn describe_scores(attempt: &Attempt<'_>, scores: &Scores, answer: &mut Map<String, Value>) {
    let by_node = |values: &[i64]| -> Value {
        let pairs = scores.nodes.iter().zip(values);
        json!(pairs.map(|(node, score)| (node.to_string(), *score)).collect::<BTreeMap<_, _>>())
    };
    insert_names(answer, "skippedScorePlugins", attempt.skipped().1);
    insert_some(answer, "rawScores", scores.plugins.iter().map(|p| (p.plugin.to_owned(), by_node(&p.raw))));
    insert_some(answer, "scores", scores.plugins.iter().map(|p| (p.plugin.to_owned(), by_node(&p.weighted))));
    answer.insert("totals".into(), by_node(&scores.totals));
    answer.insert("best".into(), sorted(scores.best().into_iter().map(|i| &scores.nodes[i])));
}

fn insert_some(answer: &mut Map<String, Value>, name: &str, entries: impl Iterator<Item = (String, Value)>) {
    let entries: Map<String, Value> = entries.collect();
    if !entries.is_empty() {
        answer.insert(name.into(), entries.into());
    }
}

fn insert_names(answer: &mut Map<String, Value>, name: &str, names: impl IntoIterator<Item = &'static str>) {
    let names = sorted(names);
    if names != json!([]) {
        answer.insert(name.into(), names);
    }
}
