//! Edits of the cluster state that can be undone exactly, for questions about a changed state.

use std::sync::Arc;

use bayplan_model::pod::Pod;

use super::{Cluster, Object, PlacedPod};

/// A pod that was taken off its node; [`Cluster::put_back`] puts it where it was among the node's pods.
#[derive(Clone, Debug)]
pub struct TakenPod {
    placed: PlacedPod,
    /// By name: the slot of a placeholder goes with its last pod.
    node: Arc<str>,
}

impl Cluster {
    /// The stored object of a kind; the namespace is empty for cluster-scoped kinds.
    pub fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<Object> {
        match kind {
            "Node" => {
                let id = self.by_name.get(name)?;
                self.node_in_slot(*id).node_object().cloned().map(Object::Node)
            }
            kind => self.objects.find(kind, namespace, name),
        }
    }

    /// Removes the stored object of this kind and name and returns it. A pod leaves its node.
    pub fn remove(&mut self, object: &Object) -> Option<Object> {
        match object {
            Object::Node(node) => self.remove_node(&node.metadata.name).map(Object::Node),
            other => {
                let removed = self.objects.remove(other);
                if let Some(Object::Pod(pod)) = &removed {
                    self.remove_pod(&pod.metadata.uid);
                }
                removed
            }
        }
    }

    /// Lists a pod among the stored ones without putting it on a node.
    pub fn list_pod(&mut self, pod: Arc<Pod>) {
        self.objects.store(&Object::Pod(pod));
    }

    /// The name of the node a pod is on.
    pub fn node_of(&self, uid: &str) -> Option<&Arc<str>> {
        self.placed.get(uid).map(|placed| &self.node_in_slot(placed.node).name)
    }

    /// Takes a pod off its node, so that it can be put back.
    pub fn take_pod(&mut self, uid: &str) -> Option<TakenPod> {
        let placed = self.placed.get(uid)?.clone();
        let node = self.node_in_slot(placed.node).name.clone();
        self.remove_pod(uid);
        if let Some(id) = self.by_name.get(&node).copied() {
            self.node_in_slot_mut(id).mark_ports();
        }
        Some(TakenPod { placed, node })
    }

    /// Undoes [`Cluster::take_pod`]. What was changed on the node after it has to be undone before, last change first:
    /// then the pods of the node are in the order they had, on which the choice among equal victims depends.
    pub fn put_back(&mut self, taken: TakenPod) {
        let TakenPod { placed: PlacedPod { info, at, assumed, .. }, node } = taken;
        let id = self.claim_slot(&node);
        self.add_pod(info.clone(), id, assumed);
        let last = self.node_in_slot(id).pods().len() - 1;
        let at = (at as usize).min(last);
        self.node_in_slot_mut(id).swap_pods(at, last);
        for index in [at, last] {
            let uid = self.node_in_slot(id).pods()[index].uid().to_owned();
            if let Some(placed) = self.placed.get_mut(&uid) {
                placed.at = index as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bayplan_testkit::{node, pod};

    use super::*;
    use crate::cluster::PodInfo;

    fn names(cluster: &Cluster) -> Vec<String> {
        let node = cluster.node("n").unwrap();
        for (at, pod) in node.pods().iter().enumerate() {
            assert_eq!(cluster.placed[pod.uid()].at as usize, at);
        }
        node.pods().iter().map(|pod| pod.metadata.name.clone()).collect()
    }

    #[test]
    fn pods_that_are_put_back_last_first_are_where_they_were() {
        let mut cluster = Cluster::new();
        cluster.store(Object::Node(Arc::new(node("n").view())));
        for name in ["a", "b", "c", "d"] {
            cluster.store(Object::Pod(Arc::new(pod(name).request("cpu", "1").on_node("n").view())));
        }
        let assumed = Arc::new(PodInfo::new(Arc::new(pod("e").request("cpu", "1").view())));
        cluster.assume(assumed, "n").unwrap();
        let requested = cluster.node("n").unwrap().requested.clone();
        for order in [["b", "d", "a"], ["e", "a", "c"], ["c", "b", "e"]] {
            let taken = order.map(|name| cluster.take_pod(&format!("default/{name}")).unwrap());
            assert_eq!(names(&cluster).len(), 2);
            taken.into_iter().rev().for_each(|taken| cluster.put_back(taken));
            assert_eq!(names(&cluster), ["a", "b", "c", "d", "e"], "{order:?}");
            assert_eq!(cluster.node("n").unwrap().requested, requested);
            assert_eq!((cluster.assumed_count(), cluster.is_assumed("default/e")), (1, true));
        }
    }

    #[test]
    fn an_object_of_any_kind_is_found_and_removed_by_its_name() {
        let mut cluster = Cluster::new();
        let on_node = pod("p").on_node("n").json();
        let class = serde_json::json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": "c"}, "provisioner": "x"});
        for json in [node("n").json(), on_node, class] {
            cluster.store(Object::decode(&json).unwrap().unwrap());
        }
        for (kind, namespace, name) in [("Pod", "default", "p"), ("Node", "", "n"), ("StorageClass", "", "c")] {
            let object = cluster.find(kind, namespace, name).unwrap();
            assert!(cluster.remove(&object).is_some(), "{kind}");
            assert!(cluster.find(kind, namespace, name).is_none() && cluster.remove(&object).is_none(), "{kind}");
        }
        assert_eq!((cluster.node_count(), cluster.placed_count()), (0, 0));
    }
}
