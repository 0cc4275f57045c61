//! Whether a kubelet still lives: by its status, its lease, and how long both may stay silent.

use jiff::{SignedDuration, Timestamp};

use crate::node::{Node, NodeCondition};

/// The conditions that nobody knows any more when the kubelet is silent. `NetworkUnavailable` is not the kubelet's.
const KUBELETS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// What is remembered of a node from one look to the next.
#[derive(Clone, Debug)]
pub(super) struct Health {
    ready: Option<NodeCondition>,
    renewed: Option<Timestamp>,
    /// When it last gave a sign of life, by our clock.
    probed: Timestamp,
}

/// How long a kubelet may stay silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    pub(super) running: SignedDuration,
    pub(super) starting: SignedDuration,
}

impl Health {
    /// What is known after a look at the node and its lease.
    pub(super) fn observe(before: Option<Health>, node: &Node, renewed: Option<Timestamp>, now: Timestamp) -> Health {
        let ready = node.condition("Ready").cloned();
        let heartbeat = |ready: &Option<NodeCondition>| ready.as_ref().map(|ready| ready.last_heartbeat_time);
        let known_renewal = before.as_ref().and_then(|health| health.renewed);
        let mut health = match before {
            // A kubelet that has never said anything is measured from its node's creation.
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

    /// Whether the last sign of life is too long ago.
    pub(super) fn is_silent(&self, grace: Grace, now: Timestamp) -> bool {
        let grace = if self.ready.is_some() { grace.running } else { grace.starting };
        now.duration_since(self.probed) > grace
    }

    /// Whether the node said that it is ready; nothing when it said neither.
    pub(super) fn is_ready(&self) -> Option<bool> {
        self.ready.as_ref().map(|ready| ready.status == "True")
    }

    /// Remembers what was written about a silent node, so that it is not taken for a sign of life.
    pub(super) fn written(&mut self, conditions: &[NodeCondition], renewed: Option<Timestamp>) {
        self.ready = conditions.iter().find(|condition| condition.condition_type == "Ready").cloned();
        self.renewed = renewed;
    }

    /// A sign of life that nobody gave: after all nodes were away at once, it was us who heard nothing.
    pub(super) fn forgive(&mut self, now: Timestamp) {
        self.probed = now;
    }
}

/// The kubelet's conditions when it is silent; nothing when they say so already.
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
