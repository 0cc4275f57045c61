//! Asks the API server what it serves.

use bayplan_client::Client;
use bayplan_controllers::discovery::{ApiResource, read_aggregated};

/// Aggregated discovery: everything in two answers.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// Why the resources are not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The server refused.
    #[error("discovery of {path} failed: {status}")]
    Refused {
        /// What was asked for.
        path: &'static str,
        /// What it said.
        status: bayplan_model::status::Status,
    },
    /// The answer is not what was asked for.
    #[error("unreadable discovery of {path}: {source}")]
    Unreadable {
        /// What was asked for.
        path: &'static str,
        /// What the decoder said.
        source: serde_json::Error,
    },
    /// A server without aggregated discovery.
    #[error("the server serves no aggregated discovery (Kubernetes before v1.30)")]
    Nothing,
}

/// Every resource in its preferred version.
pub(super) async fn discover(client: &Client) -> Result<Vec<ApiResource>, Error> {
    let mut resources = Vec::new();
    for path in ["/api", "/apis"] {
        let answer = client.get(path, ACCEPT).await.map_err(|status| Error::Refused { path, status })?;
        resources.extend(read_aggregated(&answer).map_err(|source| Error::Unreadable { path, source })?);
    }
    if resources.is_empty() { Err(Error::Nothing) } else { Ok(resources) }
}
