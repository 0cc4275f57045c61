//! What every cluster has of FlowSchemas and levels, restored once a minute.

use std::sync::Arc;
use std::time::Duration;

use bayplan_kinds::flow_control::{flow_schemas, priority_levels};
use bayplan_model::status::Status;
use serde_json::{Value, json};

use crate::bootstrap::{ensure_flow_control, is_automatic};
use crate::registry::{Objects, Registry};
use crate::server::loopback::Loopback;

/// How often the objects are looked at, as upstream.
const INTERVAL: Duration = Duration::from_secs(60);

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Restores the objects as long as the server runs. When it starts, they have been made.
pub(in crate::server) async fn keep(registry: Arc<Registry>, loopback: Loopback) {
    loop {
        if let Err(status) = remove_unwanted(&registry, &loopback).await {
            tracing::warn!(%status, "objects of priority and fairness could not be read");
        }
        tokio::time::sleep(INTERVAL).await;
        if let Err(status) = ensure_flow_control(&*registry).await {
            tracing::warn!(%status, "objects of priority and fairness could not be restored");
        }
    }
}

/// Deletes the objects that say the server keeps them, but that it does not know: those of another version.
async fn remove_unwanted(registry: &Registry, loopback: &Loopback) -> Result<(), Status> {
    let schemas: Vec<&str> = flow_schemas().map(|schema| schema.name).collect();
    let levels: Vec<&str> = priority_levels().map(|level| level.name).collect();
    for (plural, wanted) in [("flowschemas", schemas), ("prioritylevelconfigurations", levels)] {
        let kind = bayplan_kinds::find(GROUP, "v1", plural).expect("a row of the table");
        for object in Objects::list(registry, kind, "").await? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if !wanted.contains(&name) && is_automatic(&object) == Some(true) {
                remove(loopback, plural, name, &object).await;
            }
        }
    }
    Ok(())
}

async fn remove(loopback: &Loopback, plural: &str, name: &str, object: &Value) {
    // Whoever changes it meanwhile keeps it, until it is looked at again.
    let seen = json!({"resourceVersion": object["metadata"]["resourceVersion"], "uid": object["metadata"]["uid"]});
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": seen});
    let path = format!("/apis/{GROUP}/v1/{plural}/{name}");
    match loopback.send("DELETE", &path, "application/json", &options).await {
        Ok(_) => tracing::info!(plural, name, "deleted: it was this server's, and no longer is"),
        Err(failure) if matches!(failure.code, 404 | 409) => {}
        Err(failure) => tracing::warn!(plural, name, %failure, "it should be deleted, but cannot be"),
    }
}
