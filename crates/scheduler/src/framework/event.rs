//! Cluster events, and the registrations with which plugins say which events may make a rejected pod schedulable.

use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_model::resources::RequestRules;

use crate::cluster::Object;

/// Actions as bits, with upstream's values: which registrations match depends on them.
pub mod action {
    /// An object was added.
    pub const ADD: u32 = 1;
    /// An object was deleted.
    pub const DELETE: u32 = 2;
    /// A node's allocatable changed.
    pub const UPDATE_NODE_ALLOCATABLE: u32 = 4;
    /// A node's labels changed.
    pub const UPDATE_NODE_LABEL: u32 = 8;
    /// A node's taints changed, or it was uncordoned.
    pub const UPDATE_NODE_TAINT: u32 = 16;
    /// A node's conditions changed.
    pub const UPDATE_NODE_CONDITION: u32 = 32;
    /// A node's annotations changed.
    pub const UPDATE_NODE_ANNOTATION: u32 = 64;
    /// A node's declared features changed.
    pub const UPDATE_NODE_DECLARED_FEATURE: u32 = 128;
    /// A pod's labels changed.
    pub const UPDATE_POD_LABEL: u32 = 256;
    /// A pod's requests were reduced.
    pub const UPDATE_POD_SCALE_DOWN: u32 = 512;
    /// A pod's tolerations changed.
    pub const UPDATE_POD_TOLERATION: u32 = 1024;
    /// A pod's last scheduling gate was removed.
    pub const UPDATE_POD_SCHEDULING_GATES_ELIMINATED: u32 = 2048;
    /// A ResourceClaim was generated for a pod.
    pub const UPDATE_POD_GENERATED_RESOURCE_CLAIM: u32 = 4096;
    /// Any action.
    pub const ALL: u32 = 8191;
    /// Any update.
    pub const UPDATE: u32 = ALL & !(ADD | DELETE);

    /// Upstream's name of an action.
    pub fn name(action: u32) -> &'static str {
        match action {
            ADD => "Add",
            DELETE => "Delete",
            UPDATE_NODE_ALLOCATABLE => "UpdateNodeAllocatable",
            UPDATE_NODE_LABEL => "UpdateNodeLabel",
            UPDATE_NODE_TAINT => "UpdateNodeTaint",
            UPDATE_NODE_CONDITION => "UpdateNodeCondition",
            UPDATE_NODE_ANNOTATION => "UpdateNodeAnnotation",
            UPDATE_NODE_DECLARED_FEATURE => "UpdateNodeDeclaredFeature",
            UPDATE_POD_LABEL => "UpdatePodLabel",
            UPDATE_POD_SCALE_DOWN => "UpdatePodScaleDown",
            UPDATE_POD_TOLERATION => "UpdatePodToleration",
            UPDATE_POD_SCHEDULING_GATES_ELIMINATED => "UpdatePodSchedulingGatesEliminated",
            UPDATE_POD_GENERATED_RESOURCE_CLAIM => "UpdatePodGeneratedResourceClaim",
            ALL => "All",
            UPDATE => "Update",
            _ => "",
        }
    }
}

/// The resource that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventResource {
    /// Any pod; only in registrations.
    Pod,
    /// A pod on a node.
    AssignedPod,
    /// A pod without a node.
    UnschedulablePod,
    /// A node.
    Node,
    /// A PersistentVolume.
    PersistentVolume,
    /// A PersistentVolumeClaim.
    PersistentVolumeClaim,
    /// A CSINode.
    CsiNode,
    /// A CSIDriver.
    CsiDriver,
    /// A VolumeAttachment.
    VolumeAttachment,
    /// A CSIStorageCapacity.
    CsiStorageCapacity,
    /// A StorageClass.
    StorageClass,
    /// A ResourceClaim.
    ResourceClaim,
    /// A ResourceSlice.
    ResourceSlice,
    /// A DeviceClass.
    DeviceClass,
    /// Any resource.
    Wildcard,
    /// A resource that only an out-of-tree plugin knows, as `<plural>.<version>.<group>`.
    Other(&'static str),
}

impl EventResource {
    /// The resource of an object; none for kinds that plugins only look up.
    pub(crate) fn of(object: &Object) -> Option<Self> {
        Some(match object {
            Object::Pod(_) => EventResource::Pod,
            Object::Node(_) => EventResource::Node,
            Object::PersistentVolume(_) => EventResource::PersistentVolume,
            Object::PersistentVolumeClaim(_) => EventResource::PersistentVolumeClaim,
            Object::StorageClass(_) => EventResource::StorageClass,
            Object::CsiNode(_) => EventResource::CsiNode,
            Object::CsiDriver(_) => EventResource::CsiDriver,
            Object::CsiStorageCapacity(_) => EventResource::CsiStorageCapacity,
            Object::VolumeAttachment(_) => EventResource::VolumeAttachment,
            Object::ResourceClaim(_) => EventResource::ResourceClaim,
            Object::ResourceSlice(_) => EventResource::ResourceSlice,
            Object::DeviceClass(_) => EventResource::DeviceClass,
            Object::Namespace(_)
            | Object::Service(_)
            | Object::ReplicationController(_)
            | Object::ReplicaSet(_)
            | Object::StatefulSet(_)
            | Object::PodDisruptionBudget(_) => return None,
        })
    }

    /// Upstream's name, as metrics label it.
    pub fn name(self) -> &'static str {
        match self {
            EventResource::Pod => "Pod",
            EventResource::AssignedPod => "AssignedPod",
            EventResource::UnschedulablePod => "UnschedulablePod",
            EventResource::Node => "Node",
            EventResource::PersistentVolume => "PersistentVolume",
            EventResource::PersistentVolumeClaim => "PersistentVolumeClaim",
            EventResource::CsiNode => "storage.k8s.io/CSINode",
            EventResource::CsiDriver => "storage.k8s.io/CSIDriver",
            EventResource::VolumeAttachment => "storage.k8s.io/VolumeAttachment",
            EventResource::CsiStorageCapacity => "storage.k8s.io/CSIStorageCapacity",
            EventResource::StorageClass => "storage.k8s.io/StorageClass",
            EventResource::ResourceClaim => "resource.k8s.io/ResourceClaim",
            EventResource::ResourceSlice => "resource.k8s.io/ResourceSlice",
            EventResource::DeviceClass => "resource.k8s.io/DeviceClass",
            EventResource::Wildcard => "*",
            EventResource::Other(name) => name,
        }
    }
}

/// What happened to which resource; upstream's `ClusterEvent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterEvent {
    /// The resource.
    pub resource: EventResource,
    /// What happened to it, as [`action`] bits.
    pub action: u32,
}

impl ClusterEvent {
    /// The event that matches everything.
    pub const WILDCARD: ClusterEvent = ClusterEvent { resource: EventResource::Wildcard, action: action::ALL };

    /// An event.
    pub const fn new(resource: EventResource, action: u32) -> Self {
        ClusterEvent { resource, action }
    }

    /// True for the event that matches everything.
    pub fn is_wildcard(&self) -> bool {
        *self == Self::WILDCARD
    }

    /// True when a registration of this event covers another event.
    ///
    /// A generic update matches only registrations of all updates, by upstream's numeric comparison.
    pub fn covers(&self, event: &ClusterEvent) -> bool {
        if self.is_wildcard() {
            return true;
        }
        let resource = self.resource == EventResource::Wildcard
            || self.resource == event.resource
            || (self.resource == EventResource::Pod
                && matches!(event.resource, EventResource::AssignedPod | EventResource::UnschedulablePod));
        resource && self.action & event.action != 0 && event.action <= self.action
    }

    /// The event's label in metrics and logs.
    pub fn label(&self) -> String {
        format!("{}{}", self.resource.name(), action::name(self.action))
    }
}

/// The events of a pod's update, one for each kind of change; upstream's `PodSchedulingPropertiesChange`.
pub(crate) fn pod_updates(old: &Pod, new: &Pod) -> Vec<ClusterEvent> {
    use action::*;
    let resource = if new.is_assigned() { EventResource::AssignedPod } else { EventResource::UnschedulablePod };
    let mut actions = Vec::new();
    if old.metadata.labels != new.metadata.labels {
        actions.push(UPDATE_POD_LABEL);
    }
    if scaled_down(old, new) {
        actions.push(UPDATE_POD_SCALE_DOWN);
    }
    if !old.spec.scheduling_gates.is_empty() && new.spec.scheduling_gates.is_empty() {
        actions.push(UPDATE_POD_SCHEDULING_GATES_ELIMINATED);
    }
    if old.spec.tolerations.len() != new.spec.tolerations.len() {
        actions.push(UPDATE_POD_TOLERATION);
    }
    if old.status.resource_claim_statuses != new.status.resource_claim_statuses
        || old.status.extended_resource_claim_status != new.status.extended_resource_claim_status
    {
        actions.push(UPDATE_POD_GENERATED_RESOURCE_CLAIM);
    }
    if actions.is_empty() {
        actions.push(UPDATE);
    }
    actions.into_iter().map(|action| ClusterEvent::new(resource, action)).collect()
}

fn scaled_down(old: &Pod, new: &Pod) -> bool {
    if same_resources(old, new) {
        return false;
    }
    let rules = RequestRules { with_status: true, ..RequestRules::default() };
    let after = rules.requests(new);
    rules
        .requests(old)
        .iter()
        .any(|(name, quantity)| after.get(name).is_none_or(|now| now.milli_value() < quantity.milli_value()))
}

/// True when two versions of a pod have the same requests; most updates change something else.
fn same_resources(old: &Pod, new: &Pod) -> bool {
    let (before, after) = (&old.status, &new.status);
    old.spec.containers == new.spec.containers
        && old.spec.init_containers == new.spec.init_containers
        && old.spec.overhead == new.spec.overhead
        && old.spec.resources == new.spec.resources
        && before.container_statuses == after.container_statuses
        && before.init_container_statuses == after.init_container_statuses
        && before.resources == after.resources
        && before.allocated_resources == after.allocated_resources
}

/// True when two versions of a node have conditions with the same types and statuses. The last of a type counts.
fn same_conditions(old: &Node, new: &Node) -> bool {
    let (before, after) = (&old.status.conditions, &new.status.conditions);
    let mut pairs = before.iter().zip(after);
    if before.len() == after.len() && pairs.all(|(a, b)| a.kind == b.kind && a.status == b.status) {
        return true;
    }
    fn by_type(node: &Node) -> std::collections::BTreeMap<&str, &str> {
        node.status.conditions.iter().map(|c| (c.kind.as_str(), c.status.as_str())).collect()
    }
    by_type(old) == by_type(new)
}

/// The events of a node's update; none when nothing relevant changed. Upstream's `NodeSchedulingPropertiesChange`.
pub(crate) fn node_updates(old: &Node, new: &Node) -> Vec<ClusterEvent> {
    use action::*;
    let changes = [
        (old.spec.unschedulable && !new.spec.unschedulable, UPDATE_NODE_TAINT),
        (old.status.allocatable != new.status.allocatable, UPDATE_NODE_ALLOCATABLE),
        (old.metadata.labels != new.metadata.labels, UPDATE_NODE_LABEL),
        (old.spec.taints != new.spec.taints, UPDATE_NODE_TAINT),
        (!same_conditions(old, new), UPDATE_NODE_CONDITION),
        (old.metadata.annotations != new.metadata.annotations, UPDATE_NODE_ANNOTATION),
        (old.status.declared_features != new.status.declared_features, UPDATE_NODE_DECLARED_FEATURE),
    ];
    let changed = changes.into_iter().filter(|(changed, _)| *changed);
    changed.map(|(_, action)| ClusterEvent::new(EventResource::Node, action)).collect()
}

/// Whether an event may make a rejected pod schedulable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueingHint {
    /// Try the pod again.
    Queue,
    /// The pod would be rejected again.
    Skip,
}

/// An event for which a plugin registers; upstream's `ClusterEventWithHint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRegistration {
    /// The event.
    pub event: ClusterEvent,
    /// True when [`Plugin::queueing_hint`](super::Plugin::queueing_hint) decides; otherwise the event always queues the
    /// pod.
    pub has_hint: bool,
}

impl EventRegistration {
    /// [`Plugin::queueing_hint`](super::Plugin::queueing_hint) decides whether such an event queues the pod.
    pub const fn with_hint(resource: EventResource, action: u32) -> Self {
        EventRegistration { event: ClusterEvent::new(resource, action), has_hint: true }
    }

    /// Such an event always queues the pod.
    pub const fn always(resource: EventResource, action: u32) -> Self {
        EventRegistration { event: ClusterEvent::new(resource, action), has_hint: false }
    }
}

/// The registrations of a plugin that declares none: all events that upstream's default covers.
pub(super) fn everything() -> Vec<EventRegistration> {
    use EventResource::*;
    [
        Pod,
        Node,
        PersistentVolume,
        PersistentVolumeClaim,
        CsiNode,
        CsiDriver,
        CsiStorageCapacity,
        StorageClass,
        ResourceClaim,
        DeviceClass,
    ]
    .map(|resource| EventRegistration::always(resource, action::ALL))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generic_update_matches_only_registrations_of_all_updates() {
        let update = ClusterEvent::new(EventResource::AssignedPod, action::UPDATE);
        assert!(ClusterEvent::new(EventResource::Pod, action::ALL).covers(&update));
        assert!(ClusterEvent::new(EventResource::Pod, action::UPDATE).covers(&update));
        assert!(!ClusterEvent::new(EventResource::Pod, action::UPDATE_POD_LABEL).covers(&update));
        assert!(!ClusterEvent::new(EventResource::Node, action::ALL).covers(&update));
        assert!(ClusterEvent::WILDCARD.covers(&update));
    }
}
