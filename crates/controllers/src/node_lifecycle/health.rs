//! Whether a kubelet is alive: judged by its node's status, its lease, and the grace period for both.

use jiff::{SignedDuration, Timestamp};

use crate::node::{Node, NodeCondition};

/// The conditions that become `Unknown` when the kubelet stops posting. `NetworkUnavailable` is not set by kubelets.
const KUBELETS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// What the monitor remembers of a node between two passes; upstream's `nodeHealthData`.
#[derive(Clone, Debug)]
pub(super) struct Health {
    ready: Option<NodeCondition>,
    renewed: Option<Timestamp>,
    /// When its status or lease last changed, by our clock; upstream's `probeTimestamp`.
    probed: Timestamp,
}

/// How long a kubelet may post nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    pub(super) running: SignedDuration,
    pub(super) starting: SignedDuration,
}

impl Health {
    /// The health that follows from the node and its lease.
    pub(super) fn observe(before: Option<Health>, node: &Node, renewed: Option<Timestamp>, now: Timestamp) -> Health {
        let ready = node.condition("Ready").cloned();
        let heartbeat = |ready: &Option<NodeCondition>| ready.as_ref().map(|ready| ready.last_heartbeat_time);
        let known_renewal = before.as_ref().and_then(|health| health.renewed);
        let mut health = match before {
            // A kubelet that never posted is measured from its node's creation.
            None if ready.is_none() => {
                Health { ready: None, renewed: None, probed: node.metadata.creation_timestamp.unwrap_or(now) }
            }
            None => Health { ready, renewed: None, probed: now },
            Some(health) if heartbeat(&health.ready) == heartbeat(&ready) => Health { ready, ..health },
            Some(_) => Health { ready, renewed: None, probed: now },
        };
        if renewed.is_some() && known_renewal < renewed {
            health.renewed = renewed;
            health.probed = now;
        }
        health
    }

    /// Whether the grace period is over.
    pub(super) fn is_unresponsive(&self, grace: Grace, now: Timestamp) -> bool {
        let grace = if self.ready.is_some() { grace.running } else { grace.starting };
        now.duration_since(self.probed) > grace
    }

    /// Whether condition `Ready` was `True`; none when it was neither `True` nor `False`.
    pub(super) fn is_ready(&self) -> Option<bool> {
        self.ready.as_ref().map(|ready| ready.status == "True")
    }

    /// Remembers our own write about an unresponsive node, so that it does not count as a heartbeat.
    pub(super) fn written(&mut self, conditions: &[NodeCondition], renewed: Option<Timestamp>) {
        self.ready = conditions.iter().find(|condition| condition.condition_type == "Ready").cloned();
        self.renewed = renewed;
    }

    /// Counts as a heartbeat: when all nodes were unreachable at once, the fault was on our side.
    pub(super) fn restart_grace(&mut self, now: Timestamp) {
        self.probed = now;
    }
}

/// The conditions of an unresponsive kubelet; none when the node has them already.
pub(super) fn unknown(node: &Node, second: Timestamp) -> Option<Vec<NodeCondition>> {
    let said = node.condition("Ready").is_some_and(|ready| ready.status == "Unknown");
    let condition = |condition_type: &str| match node.condition(condition_type) {
        None => NodeCondition {
            condition_type: condition_type.into(),
            status: "Unknown".into(),
            last_heartbeat_time: node.metadata.creation_timestamp,
            last_transition_time: Some(second),
            reason: "NodeStatusNeverUpdated".into(),
            message: "Kubelet never posted node status.".into(),
        },
        Some(known) if known.status == "Unknown" => known.clone(),
        Some(known) => NodeCondition {
            status: "Unknown".into(),
            last_transition_time: Some(second),
            reason: "NodeStatusUnknown".into(),
            message: "Kubelet stopped posting node status.".into(),
            ..known.clone()
        },
    };
    (!said).then(|| KUBELETS.iter().map(|condition_type| condition(condition_type)).collect())
}
