//! `metrics.k8s.io`: what pods and nodes use, simulated as their kubelets are. Only simulated nodes have it.
//!
//! A running container uses half of what it requests, or what an annotation of its pod says each of its containers
//! uses: `bayplan.dev/cpu-usage` and `bayplan.dev/memory-usage`.

mod usage;

use bayplan_kinds::{Kind, Verb};
use bayplan_model::label_selector::Selector;
use bayplan_model::status::Status;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::registry::{Answer, Objects};
use crate::request::{ListOptions, Query, RequestInfo};
use crate::status_errors;

pub(crate) const GROUP: &str = "metrics.k8s.io";
pub(crate) const VERSION: &str = "v1beta1";
const API_VERSION: &str = "metrics.k8s.io/v1beta1";

/// Over how long usage is measured: simulated usage is what it is, at any moment.
const WINDOW: &str = "1s";

/// A resource of the group: its plural, kind, and whether it has namespaces.
pub(crate) const RESOURCES: [(&str, &str, bool); 2] = [("nodes", "NodeMetrics", false), ("pods", "PodMetrics", true)];

/// Whether a request is about this group.
pub(crate) fn is_asked(info: &RequestInfo) -> bool {
    info.group == GROUP && info.version == VERSION
}

fn row(plural: &str) -> Result<&'static Kind, Status> {
    bayplan_kinds::find("", "v1", plural).ok_or_else(status_errors::path_not_found)
}

/// Answers a request to the group, whose right was checked.
pub(crate) async fn answer(
    objects: &dyn Objects,
    info: &RequestInfo,
    query: &Query,
    now: Timestamp,
) -> Result<Answer, Status> {
    let known = RESOURCES.iter().find(|(plural, ..)| *plural == info.plural);
    let Some((plural, kind, namespaced)) = known.filter(|_| info.subresource.is_empty()) else {
        return Err(status_errors::path_not_found());
    };
    let in_namespace = !info.namespace.is_empty();
    let fits = if *namespaced { in_namespace || !info.named } else { !in_namespace };
    if !fits {
        return Err(status_errors::path_not_found());
    }
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    match info.verb {
        Verb::Get => {
            let metrics = one(objects, plural, &info.namespace, &info.name, now).await?;
            let mut metrics = metrics.ok_or_else(|| not_found(plural, &info.name))?;
            metrics["kind"] = (*kind).into();
            metrics["apiVersion"] = API_VERSION.into();
            Ok(Answer::value(200, metrics))
        }
        Verb::List => {
            let options = ListOptions::parse(query)?;
            let selector = Selector::parse(&options.label_selector)
                .map_err(|error| status_errors::bad_request(error.to_string()))?;
            let only = Some(info.name.as_str()).filter(|name| !name.is_empty());
            let items = all(objects, plural, &info.namespace, &selector, only, now).await?;
            let list = json!({
                "kind": format!("{kind}List"), "apiVersion": API_VERSION, "metadata": {}, "items": items,
            });
            Ok(Answer::value(200, list))
        }
        _ => Err(status_errors::method_not_allowed()),
    }
}

/// The 404 of a pod or node that does not run.
fn not_found(plural: &str, name: &str) -> Status {
    let message = format!("{plural}.{GROUP} {name:?} not found");
    let mut status = status_errors::path_not_found();
    status.message = message;
    status
}

async fn one(
    objects: &dyn Objects,
    plural: &str,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> Result<Option<Value>, Status> {
    let Some(object) = objects.get(row(plural)?, namespace, name).await? else { return Ok(None) };
    if plural == "pods" {
        return Ok(usage::of_pod(&object, now, WINDOW));
    }
    let pods = objects.list(row("pods")?, "").await?;
    let used = usage::by_node(pods.iter().map(|pod| &**pod));
    Ok(Some(usage::of_node(&object, used.get(name), now, WINDOW)))
}

async fn all(
    objects: &dyn Objects,
    plural: &str,
    namespace: &str,
    selector: &Selector,
    only: Option<&str>,
    now: Timestamp,
) -> Result<Vec<Value>, Status> {
    let listed = objects.list(row(plural)?, namespace).await?;
    let wanted = listed.iter().filter(|object| {
        let labels = crate::watch_cache::labels_of(&object["metadata"]);
        selector.matches(&labels) && only.is_none_or(|name| object["metadata"]["name"] == name)
    });
    if plural == "pods" {
        return Ok(wanted.filter_map(|pod| usage::of_pod(pod, now, WINDOW)).collect());
    }
    let pods = objects.list(row("pods")?, "").await?;
    let used = usage::by_node(pods.iter().map(|pod| &**pod));
    let name = |node: &Value| node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(wanted.map(|node| usage::of_node(node, used.get(&name(node)), now, WINDOW)).collect())
}
