//! What a user must be allowed to do to run simulated nodes, asked before anything is done.

use bayplan_client::Client;
use bayplan_model::api::{Api, Request, Resource, Verb, decode, encode};
use bayplan_model::status::Status;
use serde::Deserialize;
use serde_json::json;

const REVIEWS: Resource = Resource::new("authorization.k8s.io", "v1", "selfsubjectaccessreviews");

/// Verb, group, resource and subresource.
type Right = (&'static str, &'static str, &'static str, &'static str);

/// What every simulated node does.
const ALWAYS: &[Right] = &[
    ("list", "", "nodes", ""),
    ("watch", "", "nodes", ""),
    ("patch", "", "nodes", "status"),
    ("list", "", "pods", ""),
    ("watch", "", "pods", ""),
    ("patch", "", "pods", "status"),
    ("delete", "", "pods", ""),
    ("create", "coordination.k8s.io", "leases", ""),
    ("patch", "coordination.k8s.io", "leases", ""),
];
/// What making nodes takes,
const TO_CREATE: &[Right] = &[("create", "", "nodes", ""), ("patch", "", "nodes", "")];
/// taking them away again,
const TO_REMOVE: &[Right] = &[("delete", "", "nodes", "")];
/// and taking over those of others.
const TO_MANAGE: &[Right] = &[("get", "coordination.k8s.io", "leases", "")];

/// What is going to be done.
#[derive(Clone, Copy, Debug)]
pub struct Intent {
    /// Nodes are made.
    pub create: bool,
    /// They are removed in the end.
    pub remove: bool,
    /// Nodes of others are taken over.
    pub manage: bool,
}

/// The rights that the client's user lacks, as `create nodes` or `patch pods/status`.
pub async fn missing(client: &Client, intent: Intent) -> Result<Vec<String>, Status> {
    let parts = [(true, ALWAYS), (intent.create, TO_CREATE), (intent.remove, TO_REMOVE), (intent.manage, TO_MANAGE)];
    let mut missing = Vec::new();
    for (verb, group, resource, subresource) in parts.iter().filter(|(asked, _)| *asked).flat_map(|(_, rights)| *rights)
    {
        if !allowed(client, (verb, group, resource, subresource)).await? {
            let slash = if subresource.is_empty() { "" } else { "/" };
            missing.push(format!("{verb} {resource}{slash}{subresource}"));
        }
    }
    Ok(missing)
}

async fn allowed(client: &Client, (verb, group, resource, subresource): Right) -> Result<bool, Status> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Review {
        status: ReviewStatus,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ReviewStatus {
        allowed: bool,
    }
    let namespace = if resource == "leases" { "kube-node-lease" } else { "" };
    let attributes = json!({
        "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace,
    });
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes },
    });
    let answer = client.call(Request::collection(&REVIEWS, "", Verb::Create(encode(&review)))).await?;
    Ok(decode::<Review>(&answer)?.status.allowed)
}
