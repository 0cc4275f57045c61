//! What upstream passes on to kubelets and to what runs on their nodes: logs, sessions and proxies.
//!
//! ```text
//!   pods/log ─▶ containers (which one, and did it run?) ─▶ logs: what a simulated pod says of itself
//!   pods/exec, attach, portforward ─▶ sessions: an upgraded connection that says that no container runs
//!   pods/proxy, services/proxy, nodes/proxy ─▶ proxies: 503
//! ```
//!
//! Simulated nodes are answered for here. Requests are not passed on to other nodes: 501.

mod containers;
mod log_options;
mod logs;
mod proxies;
mod sessions;
mod spdy;

use std::sync::Arc;

use bayplan_kinds::Kind;
use bayplan_listener::ResponseBody;
use bayplan_model::status::Status;
use http::{Method, Response};
use serde_json::Value;

use crate::authz::{Action, Attributes};
use crate::registry::Objects;
use crate::request::Verb;
use crate::server::RequestContext;
use crate::status_errors;

/// The label of simulated nodes, and how their container runtime begins.
const SIMULATED: &str = "bayplan.dev/simulated";
const SIMULATED_RUNTIME: &str = "bayplan://";

/// True for what upstream passes on.
pub(crate) fn is_asked(resource: &'static Kind, subresource: &str) -> bool {
    resource.group.is_empty()
        && match resource.plural {
            "pods" => matches!(subresource, "log" | "exec" | "attach" | "portforward" | "proxy"),
            "nodes" | "services" => subresource == "proxy",
            _ => false,
        }
}

/// Answers a request that upstream passes on, whose right was checked.
pub(crate) async fn answer(
    context: &RequestContext<'_>,
    resource: &'static Kind,
) -> Result<Response<ResponseBody>, Status> {
    let subresource = context.info.subresource.as_str();
    let methods: &[Method] = match subresource {
        "log" => &[Method::GET],
        "proxy" => {
            &[Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS]
        }
        _ => &[Method::GET, Method::POST],
    };
    if !methods.contains(context.method) {
        return Err(status_errors::method_not_allowed());
    }
    // Upstream's `ConnectResource` says so before it looks for the object.
    if subresource != "log" && context.query.all("dryRun").next().is_some() {
        return Err(status_errors::bad_request("dryRun is not supported"));
    }
    if subresource == "proxy" {
        return Err(proxies::refusal(context, resource).await);
    }
    if !context.info.rest.is_empty() {
        return Err(status_errors::path_not_found());
    }
    match subresource {
        "log" => logs::answer(context, resource).await,
        _ => {
            check_may_create(context, resource)?;
            sessions::answer(context, resource).await
        }
    }
}

/// Sessions need the right to create them, by whatever method they are asked for (gate
/// `AuthorizePodWebsocketUpgradeCreatePermission`).
fn check_may_create(context: &RequestContext<'_>, resource: &'static Kind) -> Result<(), Status> {
    if context.info.verb == Verb::Create {
        return Ok(());
    }
    let right =
        Attributes { user: context.user, verb: &Verb::Create, action: Action::of(context.info), field_selector: "" };
    let decision = context.shared.authorizer.authorize(&right);
    if decision.allowed { Ok(()) } else { Err(status_errors::forbidden(resource, &context.info.name, decision.reason)) }
}

fn row(plural: &str) -> &'static Kind {
    bayplan_kinds::find("", "v1", plural).expect("a row of the table")
}

async fn pod(context: &RequestContext<'_>, resource: &'static Kind, name: &str) -> Result<Arc<Value>, Status> {
    let found = Objects::get(&*context.shared.registry, resource, &context.info.namespace, name).await?;
    found.ok_or_else(|| status_errors::not_found(resource, name))
}

/// Refuses a node that is not simulated.
async fn check_simulated(context: &RequestContext<'_>, name: &str) -> Result<(), Status> {
    let nodes = row("nodes");
    let node = Objects::get(&*context.shared.registry, nodes, "", name).await?;
    let node = node.ok_or_else(|| status_errors::not_found(nodes, name))?;
    let labelled = node["metadata"]["labels"][SIMULATED] == "true";
    let runtime = node["status"]["nodeInfo"]["containerRuntimeVersion"].as_str().unwrap_or_default();
    if labelled || runtime.starts_with(SIMULATED_RUNTIME) {
        return Ok(());
    }
    Err(status_errors::not_passed_on(name))
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object[field].as_array().map(Vec::as_slice).unwrap_or_default()
}
