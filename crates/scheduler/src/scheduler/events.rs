//! Objects that come, change and go: what each means for the cluster and for the queue.

use std::sync::Arc;

use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use jiff::Timestamp;

use super::Scheduler;
use crate::cluster::{Object, PodInfo};
use crate::framework::event::{node_updates, pod_updates};
use crate::framework::{ClusterEvent, EventResource, Status, action};
use crate::queue::ClusterChange;
use crate::queue_plugins::ProfilePlugins;

fn anyone(_: &PodInfo) -> bool {
    true
}

impl Scheduler {
    /// What it amounted to is returned.
    pub(super) fn upsert(&mut self, object: Object, now: Timestamp) -> Option<ClusterEvent> {
        match object {
            Object::Pod(pod) if pod.is_terminal() => self.delete_pod(&pod, now),
            Object::Pod(pod) => Some(self.upsert_pod(pod, now)),
            Object::Node(node) => Some(self.upsert_node(node, now)),
            other => {
                let old = self.cluster.objects.store(&other);
                let resource = other.event_resource()?;
                let kind = if old.is_some() { action::UPDATE } else { action::ADD };
                let event = ClusterEvent::new(resource, kind);
                self.requeue_for(&ClusterChange { event, old, new: Some(other) }, &anyone, now);
                Some(event)
            }
        }
    }

    pub(super) fn delete(&mut self, object: Object, now: Timestamp) -> Option<ClusterEvent> {
        match object {
            Object::Pod(pod) => self.delete_pod(&pod, now),
            Object::Node(node) => Some(self.delete_node(&node, now)),
            other => {
                let old = self.cluster.objects.remove(&other)?;
                let event = ClusterEvent::new(old.event_resource()?, action::DELETE);
                self.requeue_for(&ClusterChange { event, old: Some(old), new: None }, &anyone, now);
                Some(event)
            }
        }
    }

    fn upsert_node(&mut self, node: Arc<Node>, now: Timestamp) -> ClusterEvent {
        let old = self.cluster.set_node(node.clone());
        let amounts_to = if old.is_some() { action::UPDATE } else { action::ADD };
        let events = match &old {
            None => vec![ClusterEvent::new(EventResource::Node, action::ADD)],
            Some(old) => node_updates(old, &node),
        };
        for event in events {
            let (old, new) = (old.clone().map(Object::Node), Some(Object::Node(node.clone())));
            self.requeue_for(&ClusterChange { event, old, new }, &anyone, now);
        }
        ClusterEvent::new(EventResource::Node, amounts_to)
    }

    fn delete_node(&mut self, node: &Arc<Node>, now: Timestamp) -> ClusterEvent {
        // Hints look at the cluster as it was: the event comes first.
        let event = ClusterEvent::new(EventResource::Node, action::DELETE);
        self.requeue_for(&ClusterChange { event, old: Some(Object::Node(node.clone())), new: None }, &anyone, now);
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
        let was_assigned = old.as_ref().filter(|old| old.is_assigned());
        let (events, before) = match was_assigned {
            Some(old) => (pod_updates(old, &pod), Some(Object::Pod(old.clone()))),
            None => {
                let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
                self.queue.delete(&pod.metadata.uid, &plugins);
                (vec![ClusterEvent::new(EventResource::AssignedPod, action::ADD)], None)
            }
        };
        for event in events {
            let new = Some(Object::Pod(pod.clone()));
            self.requeue_for(&ClusterChange { event, old: before.clone(), new }, &anyone, now);
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

    /// A pod that was given a node is deleted before it is bound: its room is free again at once.
    fn assumed_pod_deleted(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let uid = &pod.metadata.uid;
        if self.is_waiting(uid) {
            self.reject_waiting(uid, Status::unschedulable("removed"), now);
        } else {
            self.cluster.forget(uid);
        }
        self.requeue_for_freed_resources(pod, i32::MAX, now);
    }

    /// Tells pods of at most this priority that a pod left (or will not come to) a node.
    fn requeue_for_freed_resources(&mut self, pod: &Arc<Pod>, priority: i32, now: Timestamp) {
        let event = ClusterEvent::new(EventResource::AssignedPod, action::DELETE);
        let change = ClusterChange { event, old: Some(Object::Pod(pod.clone())), new: None };
        self.requeue_for(&change, &|waiting| waiting.priority() <= priority, now);
    }
}
