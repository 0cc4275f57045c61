//! Removes condition `DisruptionTarget` from pods that were not deleted within two minutes; upstream's
//! `stalePodDisruptionQueue`.

use std::time::Duration;

use bayplan_model::api::{PatchKind, Request, Verb, encode};
use jiff::SignedDuration;
use serde_json::json;

use super::DisruptionController;
use super::status::DISRUPTION_TIMEOUT;
use crate::controller::{Context, Requeue, Wakeup, split_key};
use crate::error::{Error, not_found};
use crate::pod::Pod;
use crate::requests::PODS;

/// The prefix of the keys of pods; keys of budgets have one slash, these have two.
const PREFIX: &str = "pods/";

/// The key of a pod whose condition may become stale.
pub(super) fn wakeup(pod: &Pod) -> Option<Wakeup> {
    may_become_stale(pod).then(|| Wakeup::now(format!("{PREFIX}{}", pod.metadata.key())))
}

/// The key of the pod, if this is one.
pub(super) fn pod_key(key: &str) -> Option<&str> {
    key.strip_prefix(PREFIX).filter(|rest| rest.contains('/'))
}

fn may_become_stale(pod: &Pod) -> bool {
    pod.disruption_since.is_some() && pod.metadata.deletion_timestamp.is_none() && !pod.is_terminal()
}

impl DisruptionController {
    /// Sets the condition to `False` when its time is over.
    pub(super) async fn clear_stale(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(pod) = self.cache.pods().get(namespace, name).filter(|pod| may_become_stale(pod)) else {
            return Ok(Requeue::OnChange);
        };
        let since = pod.disruption_since.unwrap_or(context.now);
        let left = SignedDuration::try_from(DISRUPTION_TIMEOUT).unwrap_or_default() - context.now.duration_since(since);
        if left > SignedDuration::ZERO {
            return Ok(Requeue::After(Duration::try_from(left).unwrap_or_default()));
        }
        // The UID and version are preconditions: the name may belong to another pod, or the pod may be disrupted again.
        let condition = json!({
            "type": "DisruptionTarget", "status": "False", "lastTransitionTime": context.second(),
            "reason": null, "message": null,
        });
        let metadata = json!({"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version});
        let patch = json!({"metadata": metadata, "status": {"conditions": [condition]}});
        let verb = Verb::Patch(PatchKind::Strategic, encode(&patch));
        match context.api.call(Request::object(&PODS, namespace, name, verb).subresource("status")).await {
            Err(status) if !not_found(&status) => Err(status.into()),
            _ => Ok(Requeue::OnChange),
        }
    }
}
