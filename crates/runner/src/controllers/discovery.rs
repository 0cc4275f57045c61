//! Discovery: asks the API server which resources it serves.

use std::future::Future;

use bayplan_client::Client;
use bayplan_controllers::discovery::{ApiResource, Failure, Root, add_version, read_root};
use bayplan_model::status::Status;
use bytes::Bytes;

/// Aggregated discovery: everything in two answers. A server that does not know it answers the plain form.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// Why discovery failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The server refused.
    #[error("discovery of {path} failed: {status}")]
    Refused {
        /// What was asked for.
        path: String,
        /// What it said.
        status: Status,
    },
    /// The answer cannot be decoded.
    #[error("unreadable discovery of {path}: {source}")]
    Unreadable {
        /// What was asked for.
        path: String,
        /// What the decoder said.
        source: serde_json::Error,
    },
    /// The answer is empty, which no API server's is.
    #[error("the server says that it serves no resources")]
    Nothing,
}

/// Every resource in its preferred version, and the versions whose discovery failed.
pub(super) async fn discover(client: &Client) -> Result<(Vec<ApiResource>, Vec<Failure>), Error> {
    discover_by(|path| async move { client.get(&path, ACCEPT).await }).await
}

async fn discover_by<F: Future<Output = Result<Bytes, Status>>>(
    get: impl Fn(String) -> F,
) -> Result<(Vec<ApiResource>, Vec<Failure>), Error> {
    let (mut resources, mut failures) = (Vec::new(), Vec::new());
    for path in ["/api", "/apis"].map(String::from) {
        let answer = get(path.clone()).await.map_err(|status| Error::Refused { path: path.clone(), status })?;
        match read_root(&answer).map_err(|source| Error::Unreadable { path, source })? {
            Root::Resources { found, failures: away } => {
                resources.extend(found);
                failures.extend(away);
            }
            Root::Versions(versions) => {
                for version in versions {
                    let path = version.path();
                    match get(path.clone()).await {
                        Ok(answer) => add_version(&mut resources, &version, &answer)
                            .map_err(|source| Error::Unreadable { path, source })?,
                        // One group whose server does not answer must not hide all others; aggregated discovery calls
                        // it stale.
                        Err(status) => {
                            failures.push(Failure { version, why: status.to_string() });
                            tracing::warn!("{}", Error::Refused { path, status });
                        }
                    }
                }
            }
        }
    }
    if resources.is_empty() { Err(Error::Nothing) } else { Ok((resources, failures)) }
}

#[cfg(test)]
mod tests {
    use bayplan_model::status::reason;
    use futures::FutureExt;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_without_aggregated_discovery_is_asked_version_by_version() {
        let served = |path: String| async move {
            let resource = |name: &str| json!({"resources": [{"name": name, "kind": "Kind", "verbs": ["get"]}]});
            let group = |name: &str| json!({"name": name, "versions": [{"version": "v1"}]});
            let answer = match path.as_str() {
                "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
                "/apis" => json!({"kind": "APIGroupList", "groups": [group("away"), group("apps")]}),
                "/api/v1" => resource("pods"),
                "/apis/apps/v1" => resource("deployments"),
                _ => return Err(Status::failure(503, reason::SERVICE_UNAVAILABLE, "away")),
            };
            Ok(Bytes::from(answer.to_string()))
        };
        let (found, failures) = discover_by(served).now_or_never().unwrap().unwrap();
        assert_eq!(failures.iter().map(ToString::to_string).collect::<Vec<_>>(), ["away/v1: away"]);
        let names: Vec<_> = found.iter().map(|r| format!("{}/{}", r.api_version(), r.resource.plural)).collect();
        assert_eq!(names, ["v1/pods", "apps/v1/deployments"]);
    }

    #[test]
    fn a_server_that_refuses_or_serves_nothing_is_an_error() {
        let refusing = |_| async { Err(Status::failure(503, reason::SERVICE_UNAVAILABLE, "away")) };
        let outcome = discover_by(refusing).now_or_never().unwrap();
        assert!(matches!(outcome, Err(Error::Refused { path, .. }) if path == "/api"));
        let empty = |_| async { Ok(Bytes::from_static(br#"{"kind": "APIGroupDiscoveryList", "items": []}"#)) };
        assert!(matches!(discover_by(empty).now_or_never().unwrap(), Err(Error::Nothing)));
    }
}
