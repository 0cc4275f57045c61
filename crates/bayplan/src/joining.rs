//! What a server that joins a cluster in etcd takes from it, and what it must be told of.

use anyhow::{Result, anyhow};
use bayplan_apiserver::ServiceRange;
use bayplan_store::Store;
use serde_json::Value;

/// The range of cluster IPs that the cluster was made with.
const SERVICE_CIDR: &str = "/registry/servicecidrs/kubernetes";
/// Where servers publish whose client certificates they believe.
const AUTHENTICATION: &str = "/registry/configmaps/kube-system/extension-apiserver-authentication";

/// The range of cluster IPs of the cluster in the store; none if there is no cluster yet.
pub(crate) async fn service_range(store: &dyn Store) -> Result<Option<ServiceRange>> {
    let Some(object) = read(store, SERVICE_CIDR).await? else { return Ok(None) };
    let ranges: Vec<&str> =
        object["spec"]["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match ranges[..] {
        [range] => Ok(Some(range.parse().map_err(|error| anyhow!("the cluster's service range {range}: {error}"))?)),
        _ => Err(anyhow!("the cluster's service ranges are {}: one IPv4 range is supported", ranges.join(", "))),
    }
}

/// Warns of a cluster that another authority vouches for: it may be another cluster than the one that was meant, and
/// what its servers issue is refused here in any case.
pub(crate) async fn warn_of_other_authority(store: &dyn Store, own: Option<&str>, prefix: &str) -> Result<()> {
    let published = read(store, AUTHENTICATION).await?;
    let published = published.as_ref().and_then(|object| object["data"]["client-ca-file"].as_str());
    if let (Some(published), Some(own)) = (published, own)
        && !published.contains(own.trim())
    {
        tracing::warn!(
            "the cluster behind the prefix {prefix} in etcd has another certificate authority than this server: if it \
             is the right cluster, give all its servers the same keys (the folder pki of one data folder, or \
             --client-ca-file, --service-account-key-file and --service-account-signing-key-file), or certificates and \
             tokens of one are refused by the others"
        );
    }
    Ok(())
}

async fn read(store: &dyn Store, key: &str) -> Result<Option<Value>> {
    let entry = store.get(key).await?;
    Ok(entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
}
