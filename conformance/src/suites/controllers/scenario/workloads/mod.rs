//! Scenarios of the second group: StatefulSets, DaemonSets, Jobs, endpoints, quotas, autoscaling and smaller loops.
//!
//! Each has a cluster of its own, with all loops of the group and the fixtures that the recorder made.

mod action;
mod certificates;
mod checker;
mod fixtures;
mod kubelet;
mod placeholders;
mod snapshot;

use std::time::Duration;

use bayplan_apiserver::User;
use bayplan_controllers::AutoscalerConfig;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{Mismatch, Outcome};
use super::cluster::{Cluster, QUIET, Setup};
use crate::difference::Difference;
use action::Action;

/// The namespace that recordings call `$NS`. No other name contains it.
const NAMESPACE: &str = "scn-0";

/// For how long nothing may change while a loop repeats itself every two seconds.
const QUIET_BETWEEN_ROUNDS: Duration = Duration::from_millis(4500);

/// How long nothing changed when the state of a Job was recorded.
const QUIET_OF_JOBS: Duration = Duration::from_millis(3500);

/// How long a reconcile takes: little, and never nothing.
const RECONCILE_TIME: Duration = Duration::from_millis(1);

/// The loops that the recorder ran.
const CONTROLLERS: &[&str] = &[
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "garbage-collector-controller",
    "horizontal-pod-autoscaler-controller",
    "job-controller",
    "persistentvolume-expander-controller",
    "persistentvolumeclaim-protection-controller",
    "resourcequota-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
];

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Scenario {
    #[serde(default)]
    controllers: Vec<String>,
    #[serde(default)]
    repeat_events: bool,
    #[serde(default)]
    anon_nodes: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
struct Step {
    action: Action,
    #[serde(default)]
    expect: Option<Value>,
    #[serde(default)]
    unstable: Vec<String>,
}

impl Scenario {
    fn is_about_jobs(&self) -> bool {
        self.controllers.iter().any(|name| name == "job-controller")
    }

    /// Loops that repeat themselves need time for a round or two. Recordings of Jobs waited longer for quiet, too:
    /// those loops wait a second themselves, and their pods fail and come back in between.
    fn quiet(&self) -> Duration {
        match (self.repeat_events, self.is_about_jobs()) {
            (true, _) => QUIET_BETWEEN_ROUNDS,
            (false, true) => QUIET_OF_JOBS,
            (false, false) => QUIET,
        }
    }
}

/// Replays one scenario.
pub(super) async fn replay(case: &Value) -> Outcome {
    let scenario = Scenario::deserialize(case)?;
    let user = User { uid: "admin".into(), ..User::new("admin", ["system:masters"]) };
    let setup = Setup {
        namespace: NAMESPACE,
        user,
        controllers: CONTROLLERS,
        events_count: !scenario.repeat_events,
        quiet: scenario.quiet(),
        overlap: scenario.is_about_jobs(),
        autoscaler: AutoscalerConfig {
            sync_period: Duration::from_secs(2),
            downscale_stabilization: Duration::from_secs(6),
            ..AutoscalerConfig::default()
        },
        prompt: Some(RECONCILE_TIME),
    };
    let mut cluster = Cluster::start(setup).await.map_err(Mismatch::Unreadable)?;
    fixtures::create(&cluster).await.map_err(Mismatch::Unreadable)?;
    cluster.settle().await.map_err(Mismatch::Unreadable)?;
    for (number, step) in scenario.steps.iter().enumerate() {
        check_step(&scenario, step, &mut cluster).await.map_err(|mismatch| match mismatch {
            Mismatch::Differs(difference) => {
                let path = format!("step {number} {}{}", step.action.kind(), difference.path);
                Difference { path, ..difference }.into()
            }
            Mismatch::Unreadable(problem) => {
                Mismatch::Unreadable(format!("step {number} {}: {problem}", step.action.kind()))
            }
        })?;
    }
    cluster.stop().await;
    Ok(())
}

async fn check_step(scenario: &Scenario, step: &Step, cluster: &mut Cluster) -> Outcome {
    cluster.begin_step();
    let answer = step.action.take(cluster).await.map_err(Mismatch::Unreadable)?;
    let mut expected = json!({"action": step.action.recorded()});
    let mut actual = json!({"action": answer.recorded(&placeholders::Shown::of(cluster, &[]))});
    if let Some(expect) = &step.expect {
        let state = snapshot::take(cluster, expect, scenario).await.map_err(Mismatch::Unreadable)?;
        merge(&mut expected, expect);
        merge(&mut actual, &state);
    }
    Ok(checker::check(expected, actual, &step.unstable)?)
}

fn merge(into: &mut Value, from: &Value) {
    for (field, value) in from.as_object().into_iter().flatten() {
        into[field] = value.clone();
    }
}
