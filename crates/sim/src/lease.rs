//! The Lease by which a node says that it lives, and what it says about who renews it.

use std::time::Duration;

use bayplan_model::api::{PatchKind, Request, Resource, Verb, encode};
use bayplan_model::meta::ObjectMeta;
use bayplan_model::timestamp;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

use crate::template::SIMULATED;

const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
/// Where the leases of nodes live.
const NAMESPACE: &str = "kube-node-lease";

/// Upstream's kubelet: leases last 40 s and are renewed four times as often.
pub(crate) const LEASE_SECONDS: u32 = 40;
/// The time between two renewals of upstream's kubelet.
pub(crate) const LEASE_RENEWAL: Duration = Duration::from_secs(10);

/// What the kubelet knows of its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// It may exist or not.
    Unknown,
    /// It exists, and may be another's.
    Found,
    /// It exists and is ours.
    Held,
    /// A write is under way.
    Sending,
}

/// Reads the Lease of a node.
pub(crate) fn read(node: &str) -> Request {
    Request::object(&LEASES, NAMESPACE, node, Verb::Get)
}

/// Makes the Lease of a node, which owns it: it is garbage collected with the node.
pub(crate) fn create(node: &str, node_uid: &str, now: Timestamp) -> Request {
    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node,
            "namespace": NAMESPACE,
            "labels": { SIMULATED: "true" },
            "ownerReferences": [owner],
        },
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": timestamp::micros(now),
        },
    });
    Request::collection(&LEASES, NAMESPACE, Verb::Create(encode(&lease)))
}

/// Takes over a Lease that is there.
pub(crate) fn take(node: &str, now: Timestamp) -> Request {
    let lease = json!({
        "metadata": { "labels": { SIMULATED: "true" } },
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": timestamp::micros(now),
        },
    });
    Request::object(&LEASES, NAMESPACE, node, Verb::Patch(PatchKind::Merge, encode(&lease)))
}

/// Renews our Lease.
pub(crate) fn renew(node: &str, now: Timestamp) -> Request {
    let lease = json!({ "spec": { "renewTime": timestamp::micros(now) } });
    Request::object(&LEASES, NAMESPACE, node, Verb::Patch(PatchKind::Merge, encode(&lease)))
}

/// The fields of a Lease that tell who renews it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct LeaseView {
    metadata: ObjectMeta,
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    lease_duration_seconds: Option<u32>,
    renew_time: Option<Timestamp>,
}

/// How long ago somebody else has renewed a Lease that still holds: a kubelet runs that node.
pub(crate) fn renewed_elsewhere(lease: &[u8], now: Timestamp) -> Option<Duration> {
    let lease: LeaseView = serde_json::from_slice(lease).ok()?;
    if lease.metadata.labels.get(SIMULATED).is_some_and(|value| value == "true") {
        return None;
    }
    let age = now.duration_since(lease.spec.renew_time?);
    let lasts = SignedDuration::from_secs(lease.spec.lease_duration_seconds.unwrap_or(LEASE_SECONDS).into());
    // A clock that is ahead of ours renews in the future.
    (age < lasts).then(|| Duration::try_from(age).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_lease_is_anothers_while_somebody_else_renews_it() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let lease = |labels: Value, renewed: &str, seconds: Value| {
            let spec = json!({ "renewTime": renewed, "leaseDurationSeconds": seconds });
            serde_json::to_vec(&json!({ "metadata": { "labels": labels }, "spec": spec })).unwrap()
        };
        let seconds = Duration::from_secs;
        for (lease, expected) in [
            (lease(json!({}), "2026-01-01T00:00:55.000000Z", json!(40)), Some(seconds(5))),
            (lease(json!({}), "2026-01-01T00:00:15.000000Z", json!(40)), None),
            (lease(json!({}), "2026-01-01T00:00:15.000000Z", json!(60)), Some(seconds(45))),
            (lease(json!({}), "2026-01-01T00:00:15.000000Z", Value::Null), None),
            (lease(json!({}), "2026-01-01T00:02:00.000000Z", json!(40)), Some(seconds(0))),
            (lease(json!({ SIMULATED: "true" }), "2026-01-01T00:00:55.000000Z", json!(40)), None),
            (b"{\"spec\":{}}".to_vec(), None),
            (b"nonsense".to_vec(), None),
        ] {
            assert_eq!(renewed_elsewhere(&lease, now), expected, "{}", String::from_utf8_lossy(&lease));
        }
    }
}
