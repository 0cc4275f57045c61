//! Pods that were said to be disrupted and then were not: after a while the condition is taken back.

use std::time::Duration;

use bayplan_model::api::{PatchKind, Request, Verb, encode};
use jiff::SignedDuration;
use serde_json::json;

use super::DisruptionController;
use super::status::DISRUPTION_TIMEOUT;
use crate::controller::{Context, Next, Wakeup, split_key};
use crate::error::{Error, not_found};
use crate::pod::Pod;
use crate::requests::PODS;

/// Before the keys of pods; those of budgets have one slash and not two.
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
    /// Takes the condition back when nothing came of it in time.
    pub(super) async fn clear_stale(&self, key: &str, context: Context<'_>) -> Result<Next, Error> {
        let (namespace, name) = split_key(key);
        let Some(pod) = self.cache.pods().get(namespace, name).filter(|pod| may_become_stale(pod)) else {
            return Ok(Next::Wait);
        };
        let since = pod.disruption_since.unwrap_or(context.now);
        let left = SignedDuration::try_from(DISRUPTION_TIMEOUT).unwrap_or_default() - context.now.duration_since(since);
        if left > SignedDuration::ZERO {
            return Ok(Next::After(Duration::try_from(left).unwrap_or_default()));
        }
        // The UID and version are preconditions: the pod may be another one by now, or disrupted once more.
        let condition = json!({
            "type": "DisruptionTarget", "status": "False", "lastTransitionTime": context.second(),
            "reason": null, "message": null,
        });
        let metadata = json!({"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version});
        let patch = json!({"metadata": metadata, "status": {"conditions": [condition]}});
        let verb = Verb::Patch(PatchKind::Strategic, encode(&patch));
        match context.api.call(Request::object(&PODS, namespace, name, verb).subresource("status")).await {
            Err(status) if !not_found(&status) => Err(status.into()),
            _ => Ok(Next::Wait),
        }
    }
}
