//! Pods placed one after another, each seeing those before it.

use std::sync::Arc;

use bayplan_scheduler::cycle::filter::Search;
use bayplan_scheduler::cycle::{Attempt, fit_error::Diagnosis};
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
    for (json, expected) in pods.zip(steps) {
        let pod = pod(json)?;
        let mut attempt = Attempt::new(&profile, &cluster, &nominator, &pod, NOW);
        let mut answer = step(&mut attempt);
        answer["pod"] = pod.key().into();
        let chosen = answer["chosen"].as_str().map(str::to_owned);
        let reserve = attempt.into_reserve();
        compare(expected, &answer)?;
        if let Some(node) = chosen {
            let assumed = Arc::new(pod.assumed_on(&node));
            cluster.assume(assumed.clone()).map_err(|error| Mismatch::Unreadable(error.to_string()))?;
            let status = reserve.run(&profile, &mut cluster, &assumed, &node);
            compare(&json!("Success"), &json!(status.code.name()))?;
        }
    }
    Ok(())
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
                    "chosen": names[0], "bestCount": best.len(), "feasibleCount": count, "score": scores.totals[best[0]],
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
