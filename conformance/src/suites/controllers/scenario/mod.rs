//! Scenarios: actions of a user and a kubelet, and the state to which the controllers bring the cluster after each.
//!
//! ```text
//!   action ─▶ cluster (API server, control loops, virtual time) ─settle─▶ snapshot ─▶ checker ◀─ recorded state
//! ```

mod action;
mod checker;
mod cluster;
mod names;
mod snapshot;

use serde::Deserialize;
use serde_json::Value;

use super::{Mismatch, Outcome};
use action::Action;
use checker::Checker;
use cluster::Cluster;

#[derive(Debug, Deserialize)]
struct Scenario {
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    action: Action,
    expect: Value,
    #[serde(default)]
    timing_dependent_events: bool,
    #[serde(default)]
    unstable: Vec<String>,
}

/// Replays one scenario.
pub(super) fn check(case: &Value) -> Outcome {
    let scenario = Scenario::deserialize(case)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Mismatch::Unreadable(error.to_string()))?;
    runtime.block_on(replay(&scenario))
}

async fn replay(scenario: &Scenario) -> Outcome {
    let mut cluster = Cluster::start().await.map_err(Mismatch::Unreadable)?;
    if let Some(quota) = scenario.steps.iter().find_map(|step| quota_of(&step.expect)) {
        cluster.limit_pods(&quota).await.map_err(Mismatch::Unreadable)?;
    }
    cluster.settle().await.map_err(Mismatch::Unreadable)?;
    let mut checker = Checker::default();
    for (number, step) in scenario.steps.iter().enumerate() {
        let name = |path: &str| format!("step {number} {}{path}", step.action.kind());
        cluster.begin_step();
        let status = step.action.take(&mut cluster).await.map_err(Mismatch::Unreadable)?;
        if let Some((expected, actual)) =
            step.action.status().zip(status).filter(|(expected, actual)| expected != actual)
        {
            let (expected, actual) = (expected.to_string(), actual.to_string());
            return Err(crate::difference::Difference { path: name(".status"), expected, actual }.into());
        }
        let actual = cluster.snapshot().await.map_err(Mismatch::Unreadable)?;
        checker.check(step, &actual, &cluster.scalings()).map_err(|mut difference| {
            difference.path = name(&difference.path);
            difference
        })?;
    }
    cluster.stop().await;
    Ok(())
}

/// A quota that was there before the first step, known only from the refusals that quote it.
#[derive(Debug, PartialEq)]
struct Quota {
    name: String,
    pods: String,
}

fn quota_of(expect: &Value) -> Option<Quota> {
    let text = expect.to_string();
    let (_, said) = text.split_once("exceeded quota: ")?;
    let (name, said) = said.split_once(',')?;
    let (_, limited) = said.split_once("limited: pods=")?;
    let pods = limited.chars().take_while(char::is_ascii_digit).collect();
    Some(Quota { name: name.into(), pods })
}
