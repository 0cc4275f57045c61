//! Scenarios of the deployment, replicaset and garbage collector controllers.

mod action;
mod checker;
mod names;
mod snapshot;

use bayplan_apiserver::User;
use bayplan_controllers::AutoscalerConfig;
use bayplan_model::api::{Request, Verb, decode, encode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{Mismatch, Outcome};
use super::cluster::{Cluster, QUIET, Setup};
use action::Action;
use checker::Checker;
use names::Names;

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

fn setup() -> Setup {
    Setup {
        namespace: "default",
        user: User::new("controllers", ["system:masters"]),
        controllers: &["deployment-controller", "replicaset-controller", "garbage-collector-controller"],
        events_count: true,
        quiet: QUIET,
        overlap: false,
        autoscaler: AutoscalerConfig::default(),
        prompt: None,
    }
}

/// Replays one scenario.
pub(super) async fn replay(case: &Value) -> Outcome {
    let scenario = Scenario::deserialize(case)?;
    let mut cluster = Cluster::start(setup()).await.map_err(Mismatch::Unreadable)?;
    if let Some(quota) = scenario.steps.iter().find_map(|step| quota_of(&step.expect)) {
        limit_pods(&cluster, &quota).await.map_err(Mismatch::Unreadable)?;
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
        let names = Names::of(&cluster);
        let scalings: Vec<String> = cluster.scalings().iter().map(|note| names.shown(note)).collect();
        checker.check(step, &actual, &scalings).map_err(|mut difference| {
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

/// Sets a limit to the number of pods, as if a controller had counted them already.
async fn limit_pods(cluster: &Cluster, quota: &Quota) -> Result<(), String> {
    let hard = json!({"pods": quota.pods});
    let object = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": quota.name}, "spec": {"hard": hard},
    });
    let resource = cluster.resource("resourcequotas")?;
    let create = Request::collection(&resource, cluster.namespace, Verb::Create(encode(&object)));
    let created = cluster.call(create).await.map_err(|status| status.to_string())?;
    let mut counted: Value = decode(&created).map_err(|status| status.to_string())?;
    counted["status"] = json!({"hard": hard, "used": {"pods": "0"}});
    let update = Request::object(&resource, cluster.namespace, &quota.name, Verb::Update(encode(&counted)));
    cluster.call(update.subresource("status")).await.map_err(|status| status.to_string()).map(drop)
}

fn quota_of(expect: &Value) -> Option<Quota> {
    let text = expect.to_string();
    let (_, said) = text.split_once("exceeded quota: ")?;
    let (name, said) = said.split_once(',')?;
    let (_, limited) = said.split_once("limited: pods=")?;
    let pods = limited.chars().take_while(char::is_ascii_digit).collect();
    Some(Quota { name: name.into(), pods })
}
