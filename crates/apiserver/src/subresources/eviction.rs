//! `pods/eviction`: a deletion that respects the disruption budgets.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, reason = "clients choose the numbers"))]

use bayplan_model::label_selector::LabelSelector;
use bayplan_model::status::{Cause, Details, Status, reason};
use serde_json::{Value, json};

use crate::registry::{Answer, Call, Objects, Registry, SystemObjects, SystemWrite, metadata};
use crate::request::DeleteOptions;
use crate::status_errors;

/// The most unconfirmed evictions of a budget; more wait for the disruption controller.
const DISRUPTED_PODS_MAX: usize = 2000;
const RETRY_SECONDS: u32 = 10;
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Evicts a pod.
pub(crate) async fn evict(registry: &Registry, call: Call<'_>, eviction: &Value) -> Result<Answer, Status> {
    if metadata::text(eviction, "name") != call.name {
        return Err(status_errors::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = match &eviction["deleteOptions"] {
        Value::Null => DeleteOptions::default(),
        body => DeleteOptions::from_body(body)?,
    };
    let dry_run = call.dry_run || options.dry_run;
    let call = Call { dry_run, subresource: "eviction", ..call };
    let pod = Objects::get(registry, call.resource, call.namespace, call.name)
        .await?
        .ok_or_else(|| status_errors::not_found(call.resource, call.name))?;
    let mut unready_under = None;
    let versioned = options.preconditions.resource_version.is_some();
    if !ignores_budgets(&pod) {
        let budgets = matching_budgets(registry, call.namespace, &pod).await?;
        match budgets.as_slice() {
            [] => {}
            [budget] if may_evict_unready(&pod, budget) => {
                options.preconditions.resource_version = Some(metadata::text(&pod, "resourceVersion").to_owned());
                unready_under = Some(metadata::text(budget, "name").to_owned()).filter(|_| !versioned);
            }
            [budget] => take_disruption(registry, call, budget).await?,
            _ => {
                return Err(status_errors::plain(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        }
    }
    let evicted = async {
        if !dry_run {
            mark_disrupted(registry, call, &mut options).await?;
        }
        registry.delete(Call { subresource: "", ..call }, &options).await
    };
    match (evicted.await, unready_under) {
        // The pod has changed since it was found unready: the client asks again.
        (Err(status), Some(budget)) if status.is(reason::CONFLICT) => {
            return Err(refuse(still_processed(&budget), RETRY_SECONDS));
        }
        (evicted, _) => evicted?,
    };
    Ok(Answer::status(201, status_errors::success(201, None)))
}

/// Pods that do no work cause no disruption; upstream's `canIgnorePDB`.
fn ignores_budgets(pod: &Value) -> bool {
    metadata::deleting(pod) || matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Succeeded" | "Failed"))
}

async fn matching_budgets(registry: &Registry, namespace: &str, pod: &Value) -> Result<Vec<Value>, Status> {
    let resource = bayplan_kinds::find("policy", "v1", "poddisruptionbudgets").expect("a row of the table");
    let labels: std::collections::BTreeMap<String, String> = pod["metadata"]["labels"]
        .as_object()
        .map(|l| l.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect())
        .unwrap_or_default();
    let mut matching = Vec::new();
    for budget in Objects::list(registry, resource, namespace).await? {
        let selector: Option<LabelSelector> = serde_json::from_value(budget["spec"]["selector"].clone()).ok();
        let Some(selector) = selector else { continue };
        // An invalid selector selects nothing, as in upstream's controllers.
        if selector.selector().is_ok_and(|selector| selector.matches(&labels)) {
            matching.push((*budget).clone());
        }
    }
    Ok(matching)
}

fn ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

/// An unready pod may be evicted if the budget's policy allows it, or if enough other pods are healthy.
fn may_evict_unready(pod: &Value, budget: &Value) -> bool {
    if ready(pod) {
        return false;
    }
    let number = |key: &str| budget["status"][key].as_i64().unwrap_or(0);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0)
}

/// Takes one disruption from the budget.
async fn take_disruption(registry: &Registry, call: Call<'_>, budget: &Value) -> Result<(), Status> {
    let resource = bayplan_kinds::find("policy", "v1", "poddisruptionbudgets").expect("a row of the table");
    let name = metadata::text(budget, "name").to_owned();
    let now = metadata::time(registry.now());
    let mut take = |budget: &mut Value| {
        check(&name, budget)?;
        let generation = budget["metadata"]["generation"].clone();
        let status = &mut budget["status"];
        let left = status["disruptionsAllowed"].as_i64().unwrap_or(0).saturating_sub(1);
        status["disruptionsAllowed"] = json!(left);
        if !status["disruptedPods"].is_object() {
            status["disruptedPods"] = json!({});
        }
        status["disruptedPods"][call.name] = json!(now);
        if left == 0 {
            set_disruption_allowed(status, &now, generation);
        }
        Ok(())
    };
    if call.dry_run {
        return take(&mut budget.clone());
    }
    registry.update_unchecked(SystemWrite::Disruption, resource, call.namespace, &name, &mut take).await.map(|_| ())
}

fn set_disruption_allowed(status: &mut Value, now: &str, generation: Value) {
    let condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": now, "observedGeneration": generation,
    });
    let Some(status) = status.as_object_mut() else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|c| c["type"] == "DisruptionAllowed") {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
}

fn check(name: &str, budget: &Value) -> Result<(), Status> {
    let number = |key: &str| budget["status"][key].as_i64().unwrap_or(0);
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    if number("observedGeneration") < generation {
        return Err(refuse(still_processed(name), RETRY_SECONDS));
    }
    let forbidden = |why: &str| {
        let resource = bayplan_kinds::find("policy", "v1", "poddisruptionbudgets").expect("a row of the table");
        status_errors::forbidden(resource, name, why)
    };
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    if budget["status"]["disruptedPods"].as_object().is_some_and(|pods| pods.len() > DISRUPTED_PODS_MAX) {
        return Err(forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller"));
    }
    if allowed == 0 {
        return Err(refuse(exhausted(name, budget), 0));
    }
    Ok(())
}

fn still_processed(name: &str) -> String {
    format!("The disruption budget {name} is still being processed by the server.")
}

/// Why the budget allows no disruption.
fn exhausted(name: &str, budget: &Value) -> String {
    let (healthy, desired) = (&budget["status"]["currentHealthy"], &budget["status"]["desiredHealthy"]);
    let (healthy, desired) = (healthy.as_i64().unwrap_or(0), desired.as_i64().unwrap_or(0));
    if healthy > desired {
        return format!("The disruption budget {name} does not allow evicting pods currently");
    }
    format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
}

fn refuse(cause: String, retry_after_seconds: u32) -> Status {
    Status::failure(429, reason::TOO_MANY_REQUESTS, REFUSED).with_details(Details {
        causes: vec![Cause { reason: "DisruptionBudget".to_owned(), message: cause, field: String::new() }],
        retry_after_seconds,
        ..Details::default()
    })
}

/// Sets the condition `DisruptionTarget` on the pod.
async fn mark_disrupted(registry: &Registry, call: Call<'_>, options: &mut DeleteOptions) -> Result<(), Status> {
    let preconditions = options.preconditions.clone();
    let now = metadata::time(registry.now());
    let mut mark = |pod: &mut Value| {
        crate::registry::check_delete_preconditions(&call, &preconditions, pod)?;
        if !pod["status"]["conditions"].is_array() {
            pod["status"]["conditions"] = json!([]);
        }
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
        });
        if let Some(conditions) = pod["status"]["conditions"].as_array_mut() {
            conditions.retain(|c| c["type"] != "DisruptionTarget");
            conditions.push(condition);
        }
        Ok(())
    };
    let marked =
        registry.update_unchecked(SystemWrite::Eviction, call.resource, call.namespace, call.name, &mut mark).await?;
    if options.preconditions.resource_version.is_some() {
        options.preconditions.resource_version = Some(metadata::text(&marked, "resourceVersion").to_owned());
    }
    Ok(())
}
