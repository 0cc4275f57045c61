//! Changes of objects: what each means for the cluster state and for the queue. Upstream's `eventhandlers.go`.
//!
//! Deltas come unchanged from the informers. The cluster state decides what is known, so a missed or repeated delta
//! does no harm: an unknown object counts as added, a known one as updated.

use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use jiff::Timestamp;

use super::Scheduler;
use super::queue_plugins::ProfilePlugins;
use crate::cluster::{Object, PodInfo};
use crate::framework::{ClusterEvent, EventResource, Status, action, node_updates, pod_updates};
use crate::queue::ClusterChange;

fn anyone(_: &PodInfo) -> bool {
    true
}

/// The delta, corrected by the version the cluster state knew.
fn corrected(delta: Delta<Object>, known: Option<Object>) -> Delta<Object> {
    match (delta, known) {
        (Delta::Added(new), Some(old)) => Delta::Updated { old, new },
        (Delta::Updated { new, .. }, None) => Delta::Added(new),
        (delta, _) => delta,
    }
}

impl Scheduler {
    /// Applies the change of an object; the event it counts as in the metrics is returned.
    pub(super) fn apply(&mut self, delta: Delta<Object>, now: Timestamp) -> Option<ClusterEvent> {
        match delta.current() {
            None => self.delete(delta.object(), now),
            Some(Object::Pod(pod)) if pod.is_terminal() => self.delete_pod(pod, now),
            Some(Object::Pod(pod)) => Some(self.upsert_pod(pod.clone(), now)),
            Some(Object::Node(node)) => {
                let node = node.clone();
                Some(self.upsert_node(delta, node, now))
            }
            Some(other) => {
                let known = self.cluster.objects.store(other);
                let resource = EventResource::of(other)?;
                let event = ClusterEvent::new(resource, if known.is_some() { action::UPDATE } else { action::ADD });
                self.requeue_for(&ClusterChange::of_object(event, corrected(delta, known)), &anyone, now);
                Some(event)
            }
        }
    }

    fn delete(&mut self, object: &Object, now: Timestamp) -> Option<ClusterEvent> {
        match object {
            Object::Pod(pod) => self.delete_pod(pod, now),
            Object::Node(node) => Some(self.delete_node(node, now)),
            other => {
                let known = self.cluster.objects.remove(other)?;
                let event = ClusterEvent::new(EventResource::of(&known)?, action::DELETE);
                self.requeue_for(&ClusterChange::of_object(event, Delta::Deleted(known)), &anyone, now);
                Some(event)
            }
        }
    }

    fn upsert_node(&mut self, delta: Delta<Object>, node: Arc<Node>, now: Timestamp) -> ClusterEvent {
        let known = self.cluster.set_node(node.clone());
        let (kind, events) = match &known {
            None => (action::ADD, vec![ClusterEvent::new(EventResource::Node, action::ADD)]),
            Some(old) => (action::UPDATE, node_updates(old, &node)),
        };
        let delta = corrected(delta, known.map(Object::Node));
        for event in events {
            self.requeue_for(&ClusterChange::of_object(event, delta.clone()), &anyone, now);
        }
        ClusterEvent::new(EventResource::Node, kind)
    }

    fn delete_node(&mut self, node: &Arc<Node>, now: Timestamp) -> ClusterEvent {
        // Hints see the cluster as it was: the event comes first.
        let event = ClusterEvent::new(EventResource::Node, action::DELETE);
        let deleted = Delta::Deleted(Object::Node(node.clone()));
        self.requeue_for(&ClusterChange::of_object(event, deleted), &anyone, now);
        self.cluster.remove_node(&node.metadata.name);
        event
    }

    fn upsert_pod(&mut self, pod: Arc<Pod>, now: Timestamp) -> ClusterEvent {
        let meta = &pod.metadata;
        let old = self.cluster.objects.pods.get(&meta.namespace, &meta.name).cloned();
        if let Some(other) = old.as_ref().filter(|old| old.metadata.uid != meta.uid) {
            // The deletion of a former pod of the same name was missed.
            self.delete_pod(other, now);
            return self.upsert_pod(pod, now);
        }
        self.cluster.objects.store(&Object::Pod(pod.clone()));
        let assigned = pod.is_assigned();
        let known = old.as_ref().is_some_and(|old| old.is_assigned() == assigned);
        if assigned {
            self.upsert_assigned(old, pod, now);
        } else if self.profile(&pod.spec.scheduler_name).is_some() {
            self.upsert_pending(old, pod, now);
        }
        let resource = if assigned { EventResource::AssignedPod } else { EventResource::UnschedulablePod };
        ClusterEvent::new(resource, if known { action::UPDATE } else { action::ADD })
    }

    fn upsert_assigned(&mut self, old: Option<Arc<Pod>>, pod: Arc<Pod>, now: Timestamp) {
        let placed = self.cluster.placed(&pod.metadata.uid);
        let info = match placed.and_then(|placed| PodInfo::like(Arc::clone(&pod), placed)) {
            Some(info) => Arc::new(info),
            None => self.pod_infos.info(Arc::clone(&pod)),
        };
        self.cluster.set_pod(info);
        let pod_object = Object::Pod(pod.clone());
        let (events, delta) = match old.filter(|old| old.is_assigned()) {
            Some(old) => (pod_updates(&old, &pod), Delta::Updated { old: Object::Pod(old), new: pod_object }),
            // As upstream's filtering handlers see it: among the assigned pods it is new.
            None => {
                let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
                self.queue.delete(&pod.metadata.uid, &plugins);
                (vec![ClusterEvent::new(EventResource::AssignedPod, action::ADD)], Delta::Added(pod_object))
            }
        };
        for event in events {
            self.requeue_for(&ClusterChange::of_object(event, delta.clone()), &anyone, now);
        }
    }

    fn upsert_pending(&mut self, old: Option<Arc<Pod>>, pod: Arc<Pod>, now: Timestamp) {
        let Some(old) = old else {
            let info = self.pod_infos.info(pod);
            let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
            return self.queue.add(info, now, &plugins);
        };
        if old.metadata.resource_version == pod.metadata.resource_version && !pod.metadata.resource_version.is_empty() {
            return;
        }
        if self.cluster.is_assumed(&pod.metadata.uid) {
            if pod.is_terminating() && !old.is_terminating() {
                self.assumed_pod_deleted(&pod, now);
            }
            return;
        }
        let after = self.pod_infos.info(Arc::clone(&pod));
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.update(&old, &after, now, &plugins);
        if old.is_nominated() && old.status.nominated_node_name != pod.status.nominated_node_name {
            self.requeue_for_freed_resources(&old, old.priority(), now);
        }
    }

    fn delete_pod(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Option<ClusterEvent> {
        let Some(Object::Pod(last)) = self.cluster.objects.remove(&Object::Pod(pod.clone())) else { return None };
        let uid = last.metadata.uid.clone();
        if last.is_assigned() {
            self.cluster.remove_pod(&uid);
            self.requeue_for_freed_resources(&last, i32::MAX, now);
            return Some(ClusterEvent::new(EventResource::AssignedPod, action::DELETE));
        }
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.delete(&uid, &plugins);
        if self.cluster.is_assumed(&uid) {
            self.assumed_pod_deleted(&last, now);
        } else if last.is_nominated() {
            self.requeue_for_freed_resources(&last, last.priority(), now);
        }
        Some(ClusterEvent::new(EventResource::UnschedulablePod, action::DELETE))
    }

    /// An assumed pod is deleted before it is bound: its resources are free again at once.
    fn assumed_pod_deleted(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let uid = &pod.metadata.uid;
        if self.is_waiting(uid) {
            self.reject_waiting(uid, Status::unschedulable("removed"), now);
        } else {
            self.cluster.forget(uid);
        }
        self.requeue_for_freed_resources(pod, i32::MAX, now);
    }

    /// Moves pods of at most this priority that may fit where a pod left, or will not come to, a node.
    fn requeue_for_freed_resources(&mut self, pod: &Arc<Pod>, priority: i32, now: Timestamp) {
        let event = ClusterEvent::new(EventResource::AssignedPod, action::DELETE);
        let change = ClusterChange::of_object(event, Delta::Deleted(Object::Pod(pod.clone())));
        self.requeue_for(&change, &|waiting| waiting.priority() <= priority, now);
    }
}
