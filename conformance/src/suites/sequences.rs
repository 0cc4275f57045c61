//! Pods placed one after another, each seeing those before it.

use std::sync::Arc;

use bayplan_scheduler::inspect::{Attempt, DecisionInput, Diagnosis, Engine, Search};
use serde_json::{Value, json};

use super::scheduler::{NOW, cluster, pod, profile, sorted};
use super::{Mismatch, Outcome};
use crate::difference::compare;

/// Longest best set that is recorded by name.
const BEST_NAMED_MAX: usize = 8;

pub(super) fn check(case: &Value) -> Outcome {
    let profile = profile(&case["config"])?;
    let (mut cluster, nominator) = cluster(&case["objects"])?;
    let steps = case["expected"]["steps"].as_array().ok_or_else(|| Mismatch::Unreadable("no steps".into()))?;
    let pods = case["pods"].as_array().into_iter().flatten();
    let mut engine = Engine::default();
    for (json, expected) in pods.zip(steps) {
        let pod = pod(json)?;
        let input = DecisionInput::new(&profile, &cluster, &nominator, &pod, NOW);
        let fast = engine.scores(input);
        let mut attempt = Attempt::new(&profile, &cluster, &nominator, &pod, NOW);
        let mut answer = step(&mut attempt);
        if let Some(scores) = fast {
            by_engine(&scores, &mut answer);
        }
        answer["pod"] = pod.key().into();
        let chosen = answer["chosen"].as_str().map(str::to_owned);
        let reserve = attempt.into_reserve();
        compare(expected, &answer)?;
        if let Some(node) = chosen {
            let assumed = Arc::new(pod);
            cluster.assume(assumed.clone(), &node).map_err(|error| Mismatch::Unreadable(error.to_string()))?;
            let status = reserve.run(&profile, &mut cluster, &assumed, &node);
            compare(&json!("Success"), &json!(status.code.name()))?;
        }
    }
    Ok(())
}

/// Where the fast engine answers, its answer counts, not that of the plain cycle.
fn by_engine(scores: &[(Arc<str>, i64)], answer: &mut Value) {
    let Some(highest) = scores.iter().map(|(_, score)| *score).max() else { return };
    let best: Vec<&Arc<str>> = scores.iter().filter(|(_, score)| *score == highest).map(|(node, _)| node).collect();
    answer["feasibleCount"] = scores.len().into();
    answer["bestCount"] = best.len().into();
    answer["chosen"] = json!(&**best[0]);
    if best.len() <= BEST_NAMED_MAX {
        answer["best"] = sorted(&best);
    }
    if scores.len() > 1 {
        answer["score"] = highest.into();
    }
}

fn step(attempt: &mut Attempt<'_>) -> Value {
    let found = match attempt.find(Search::ALL) {
        Ok(found) => found,
        Err(error) => return json!({"error": error.message()}),
    };
    let count = found.feasible.len();
    match found.feasible.as_slice() {
        [] => unfit(&found.diagnosis),
        [only] => {
            let name = &*only.name;
            json!({"chosen": name, "best": [name], "bestCount": 1, "feasibleCount": 1})
        }
        many => match attempt.score(many) {
            Err(error) => json!({"error": error.message()}),
            Ok(scores) => {
                let best = scores.best();
                let names = sorted(best.iter().map(|&i| &scores.nodes[i]));
                let mut answer = json!({
                    "chosen": names[0], "bestCount": best.len(), "feasibleCount": count,
                "score": scores.totals[best[0]],
                });
                if best.len() <= BEST_NAMED_MAX {
                    answer["best"] = names;
                }
                answer
            }
        },
    }
}

fn unfit(diagnosis: &Diagnosis) -> Value {
    let plugins = sorted(&diagnosis.unschedulable_plugins);
    json!({"fitError": diagnosis.message(), "unschedulablePlugins": plugins})
}
