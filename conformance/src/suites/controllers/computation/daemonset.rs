//! The DaemonSet controller.

use std::sync::Arc;

use bayplan_controllers::daemonset::{DaemonSet, FailedPodBackoff, Manage, Plan, PodTemplate, fit};
use bayplan_controllers::pod::Pod;
use bayplan_model::api::Event;
use bayplan_testkit::FakeApi;
use serde_json::{Value, json};

use super::{Mismatch, Outcome, Types, context, equal, list, parse};

pub(super) const TYPES: Types = &[("daemonSetNode", node), ("daemonSetPodsOnNode", pods_on_node)];

/// The hash that the recorder gave its pods.
const HASH: &str = "hash1";

/// Which nodes run a pod, and what it looks like.
fn node(case: &Value) -> Outcome {
    let ds: DaemonSet = parse(&case["input"]["daemonSet"])?;
    let node = parse(&case["input"]["node"])?;
    let fit = fit(&ds.spec.template, &node);
    let template = PodTemplate::new(&ds, HASH);
    let pod = template.map_err(|error| Mismatch::Unreadable(error.to_string()))?.for_node(&node.metadata.name);
    let answer = json!({
        "shouldRun": fit.should_run,
        "shouldContinueRunning": fit.should_continue,
        "podTolerations": pod["spec"]["tolerations"],
        "podAffinity": pod["spec"]["affinity"],
        "podLabels": pod["metadata"]["labels"],
    });
    equal(&answer, &case["expect"])
}

/// What becomes of the pods of one node.
fn pods_on_node(case: &Value) -> Outcome {
    let input = &case["input"];
    let ds: DaemonSet = parse(&input["daemonSet"])?;
    let node = parse(&input["node"])?;
    let pods: Vec<Arc<Pod>> = list(&input["pods"])?;
    let hash: String = parse(&input["hash"])?;
    let now = parse(&input["now"])?;
    let (mut backoff, mut plan) = (FailedPodBackoff::default(), Plan::default());
    let pods: Vec<&Arc<Pod>> = pods.iter().collect();
    let fit = fit(&ds.spec.template, &node);
    let name = node.metadata.name.as_str();
    Manage { ds: &ds, hash: &hash, now }.node(name, fit, &pods, &mut backoff, &mut plan);
    let api = FakeApi::new(|_| Ok(Value::Null));
    plan.record_ended(&ds, context(&api, now));
    let event = |event: &Event| format!("{:?} {} {}", event.event_type, event.reason, event.note);
    let events: Vec<String> = api.events().iter().map(event).collect();
    let deleted: Vec<&str> = plan.delete.iter().map(|pod| pod.metadata.name.as_str()).collect();
    let (surge, unavailable) = (ds.max_surge(7), ds.max_unavailable(7));
    let error = |outcome: &Result<usize, bayplan_controllers::Error>| match outcome {
        Ok(_) => "<nil>".to_owned(),
        Err(error) => error.to_string(),
    };
    let answer = json!({
        "countErrors": format!("{} {}", error(&surge), error(&unavailable)),
        "events": events,
        "nodesNeedingPods": plan.create,
        "podsToDelete": deleted,
        "surgeOf7": surge.unwrap_or(0),
        "unavailableOf7": unavailable.unwrap_or(0),
    });
    equal(&answer, &case["expect"])
}
