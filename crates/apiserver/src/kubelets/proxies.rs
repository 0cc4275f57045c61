//! Proxies to pods, services and nodes: nothing listens on simulated nodes.

use bayplan_kinds::Kind;
use bayplan_model::status::{Status, reason};
use serde_json::Value;

use super::{check_simulated, list, row, text};
use crate::registry::Objects;
use crate::server::RequestContext;
use crate::status_errors::{self, bad_request};

/// Why a request is not passed on.
pub(super) async fn refusal(context: &RequestContext<'_>, resource: &'static Kind) -> Status {
    let refused = match resource.plural {
        "pods" => of_pod(context, resource).await,
        "services" => of_service(context, resource).await,
        _ => of_node(context).await,
    };
    refused.unwrap_or_else(|status| status)
}

fn unavailable(message: impl Into<String>) -> Status {
    Status::failure(503, reason::SERVICE_UNAVAILABLE, message)
}

/// What upstream's proxy answers when nobody accepts its connection.
fn nobody_listens(who: &str) -> Status {
    unavailable(format!("error trying to reach service: {who}: nothing listens there"))
}

/// `name`, `name:port` or `scheme:name:port`; upstream's `SplitSchemeNamePort`.
fn split(id: &str) -> Option<(&str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match parts[..] {
        [name] => ("", name, ""),
        [name, port] => ("", name, port),
        [scheme, name, port] => (scheme, name, port),
        _ => return None,
    };
    (matches!(scheme, "" | "http" | "https") && !name.is_empty()).then_some((name, port))
}

async fn of_pod(context: &RequestContext<'_>, resource: &'static Kind) -> Result<Status, Status> {
    let id = &context.info.name;
    let (name, _) = split(id).ok_or_else(|| bad_request(format!("invalid pod request {id:?}")))?;
    let pod = super::pod(context, resource, name).await?;
    if list(&pod["status"], "podIPs").is_empty() {
        return Err(bad_request("address not allowed"));
    }
    let node = text(&pod["spec"], "nodeName");
    check_simulated(context, node).await?;
    Ok(nobody_listens(&format!("pod {name} is on the simulated node {node}")))
}

async fn of_service(context: &RequestContext<'_>, resource: &'static Kind) -> Result<Status, Status> {
    let id = &context.info.name;
    let (name, port) = split(id).ok_or_else(|| bad_request(format!("invalid service request {id:?}")))?;
    let (registry, namespace) = (&*context.shared.registry, &context.info.namespace);
    let service = Objects::get(registry, resource, namespace, name).await?;
    let service = service.ok_or_else(|| status_errors::not_found(resource, name))?;
    if let Ok(number) = port.parse::<i64>()
        && !list(&service["spec"], "ports").iter().any(|port| port["port"] == number)
    {
        return Err(unavailable(format!("no service port {number} found for service {name:?}")));
    }
    let endpoints = row("endpoints");
    let found = Objects::get(registry, endpoints, namespace, name).await?;
    let found = found.ok_or_else(|| status_errors::not_found(endpoints, name))?;
    let addresses = list(&found, "subsets").iter().flat_map(|subset| list(subset, "addresses"));
    let Some(node) = addresses.map(|address: &Value| text(address, "nodeName")).next() else {
        return Err(unavailable(format!("no endpoints available for service {name:?}")));
    };
    if node.is_empty() {
        return Err(status_errors::not_passed_on(name));
    }
    check_simulated(context, node).await?;
    Ok(nobody_listens(&format!("service {name} is served from the simulated node {node}")))
}

async fn of_node(context: &RequestContext<'_>) -> Result<Status, Status> {
    let id = &context.info.name;
    let (name, _) = split(id).ok_or_else(|| bad_request(format!("invalid node request {id:?}")))?;
    check_simulated(context, name).await?;
    Ok(nobody_listens(&format!("node {name} is simulated")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_scheme_and_a_port() {
        for (id, expected) in [
            ("web", Some(("web", ""))),
            ("web:80", Some(("web", "80"))),
            ("https:web:", Some(("web", ""))),
            ("ftp:web:21", None),
            (":80", None),
            ("a:b:c:d", None),
        ] {
            assert_eq!(split(id), expected, "{id}");
        }
    }
}
