//! Edits of a state that can be undone: what-ifs change one state and put it back instead of copying a cluster.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::inspect::{Profile, Reserve};
use bayplan_scheduler::{Nomination, Object, PodInfo, Status, TakenPod};
use bayplan_sources::Resource;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::{Key, State, decode};

/// What was there before an edit. Edits are undone last one first.
#[must_use = "an edit stays unless it is undone"]
pub struct Undo {
    key: Key,
    written: Option<Arc<RawValue>>,
    before: Before,
}

enum Before {
    /// The scheduler does not read objects of this kind.
    Unread,
    Pod(PodBefore),
    Object {
        old: Option<Object>,
        new: Option<Object>,
    },
}

/// A pod that was taken out of the state.
#[derive(Default)]
pub(super) struct PodBefore {
    stored: Option<Arc<Pod>>,
    pending: Option<Arc<PodInfo>>,
    /// The node it was nominated to.
    nominated: Option<String>,
    taken: Option<TakenPod>,
}

impl State {
    /// Stores an object as it is written, or a new version of it.
    pub fn write(&mut self, resource: &'static Resource, json: &Value) -> Result<Undo, serde_json::Error> {
        let raw = to_raw_value(json)?;
        let decoded = decode(resource, &raw)?;
        let text = |field: &str| json["metadata"][field].as_str().unwrap_or_default();
        let key: Key = (resource.name, text("namespace").into(), text("name").into());
        let before = match decoded {
            None => Before::Unread,
            Some(Object::Pod(pod)) => {
                let before = self.take_pod(&key.1, &key.2);
                self.put(Object::Pod(pod));
                Before::Pod(before)
            }
            Some(new) => {
                let old = self.cluster.find(resource.kind, &key.1, &key.2);
                self.cluster.store(new.clone());
                Before::Object { old, new: Some(new) }
            }
        };
        let written = self.written.insert(key.clone(), raw.into());
        Ok(Undo { key, written, before })
    }

    /// Removes an object; none when it is not there.
    pub fn remove(&mut self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Undo> {
        let key: Key = (resource.name, namespace.into(), name.into());
        let written = self.written.remove(&key);
        let before = match resource.kind {
            "Pod" => Before::Pod(self.take_pod(namespace, name)),
            kind => match self.cluster.find(kind, namespace, name) {
                Some(old) => {
                    self.cluster.remove(&old);
                    Before::Object { old: Some(old), new: None }
                }
                None => Before::Unread,
            },
        };
        let is_known = written.is_some()
            || match &before {
                Before::Unread => false,
                Before::Pod(pod) => pod.stored.is_some() || pod.pending.is_some() || pod.taken.is_some(),
                Before::Object { .. } => true,
            };
        is_known.then_some(Undo { key, written, before })
    }

    /// Puts back what was there before an edit.
    pub fn undo(&mut self, undo: Undo) {
        let Undo { key, written, before } = undo;
        match before {
            Before::Unread => {}
            Before::Pod(before) => self.put_pod_back(&key.1, &key.2, before),
            Before::Object { old: Some(old), .. } => self.cluster.store(old),
            Before::Object { old: None, new } => drop(new.and_then(|new| self.cluster.remove(&new))),
        }
        match written {
            Some(written) => drop(self.written.insert(key, written)),
            None => drop(self.written.remove(&key)),
        }
    }

    /// Takes a pod out of the state, on a node or not.
    pub(super) fn take_pod(&mut self, namespace: &str, name: &str) -> PodBefore {
        let pending = self.pending.remove(&(namespace.to_owned(), name.to_owned()));
        let Some(Object::Pod(known)) = self.cluster.find("Pod", namespace, name) else {
            return PodBefore { pending, ..PodBefore::default() };
        };
        let uid = &known.metadata.uid;
        let nominated = self.nominator.node_of(uid).map(str::to_owned);
        self.nominator.remove(uid);
        let taken = self.cluster.take_pod(uid);
        self.cluster.remove(&Object::Pod(known.clone()));
        PodBefore { stored: Some(known), pending, nominated, taken }
    }

    fn put_pod_back(&mut self, namespace: &str, name: &str, before: PodBefore) {
        drop(self.take_pod(namespace, name));
        if let Some(stored) = before.stored {
            // Only the list of pods: the pod goes back to its node by itself, to its former place among the others.
            self.cluster.list_pod(stored);
        }
        if let Some(taken) = before.taken {
            self.cluster.put_back(taken);
        }
        if let Some(info) = before.pending {
            if let Some(node) = before.nominated {
                self.nominator.add(&info, &Nomination::Override(node));
            }
            self.pending.insert((namespace.to_owned(), name.to_owned()), info);
        }
    }

    /// Puts a pending pod on a node, as the scheduler does once it has decided: the pod is assumed there, and Reserve
    /// takes volumes and devices. When Reserve refuses, the pod is taken off the node again.
    pub fn place(&mut self, profile: &Profile, pod: &Arc<PodInfo>, reserve: Reserve, node: &str) -> Result<(), Status> {
        self.cluster.assume(pod.clone(), node).map_err(|error| Status::error(error.to_string()))?;
        let status = reserve.run(profile, &mut self.cluster, pod, node);
        if !status.is_success() {
            self.cluster.forget(pod.uid());
            return Err(status);
        }
        self.nominator.remove(pod.uid());
        self.pending.remove(&(pod.metadata.namespace.clone(), pod.metadata.name.clone()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bayplan_scheduler::inspect::{Attempt, Search};
    use bayplan_sources::ClusterObjects;
    use bayplan_testkit::{node, pod};
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::Profiles;

    fn resource(kind: &str) -> &'static Resource {
        bayplan_sources::RESOURCES.iter().find(|resource| resource.kind == kind).unwrap()
    }

    fn state(objects: &[Value]) -> State {
        State::new(ClusterObjects::of(objects))
    }

    /// Everything that an edit may change, as text.
    fn shown(state: &State) -> String {
        let cluster = state.cluster();
        let nodes = cluster.nodes().map(|node| {
            let pods: Vec<String> = node.pods().iter().map(|pod| pod.key()).collect();
            format!("{} {:?} {:?} {:?}", node.name, node.node().spec, node.requested.milli_cpu, pods)
        });
        let nodes: Vec<String> = nodes.collect();
        let pending: Vec<(String, Option<&str>)> =
            state.pending().map(|pod| (pod.key(), state.nominator().node_of(pod.uid()))).collect();
        let listed: Vec<String> = cluster.objects.pods.iter().map(|pod| pod.metadata.key()).collect();
        let classes: Vec<&String> = cluster.objects.storage_classes.iter().map(|class| &class.provisioner).collect();
        let mut written: Vec<(&Key, &str)> = state.written.iter().map(|(key, json)| (key, json.get())).collect();
        written.sort();
        format!("{nodes:#?}\n{pending:#?}\n{listed:?}\n{classes:?}\n{written:#?}")
    }

    fn class(provisioner: &str) -> Value {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "c"},
            "provisioner": provisioner})
    }

    #[test]
    fn edits_that_are_undone_last_first_leave_nothing_behind() {
        let mut objects = vec![node("n").json(), class("one"), pod("waits").nominated_to("n").json()];
        objects.extend(["a", "b", "c"].map(|name| pod(name).request("cpu", "1").on_node("n").json()));
        objects.push(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "p"}, "value": 1}));
        let mut state = state(&objects);
        let before = shown(&state);
        let undos = vec![
            state.remove(resource("Pod"), "default", "a").unwrap(),
            state.remove(resource("Pod"), "default", "waits").unwrap(),
            state.write(resource("Pod"), &pod("b").request("cpu", "2").on_node("n").json()).unwrap(),
            state.write(resource("Node"), &node("n").unschedulable().json()).unwrap(),
            state.write(resource("Node"), &node("m").json()).unwrap(),
            state.write(resource("StorageClass"), &class("two")).unwrap(),
            state.remove(resource("StorageClass"), "", "c").unwrap(),
            state.write(resource("Pod"), &pod("d").json()).unwrap(),
            state.remove(resource("PriorityClass"), "", "p").unwrap(),
        ];
        assert!(state.remove(resource("Pod"), "default", "a").is_none());
        assert_ne!(shown(&state), before);
        assert_eq!(state.cluster().node("n").unwrap().requested.milli_cpu, 3000);
        undos.into_iter().rev().for_each(|undo| state.undo(undo));
        assert_eq!(shown(&state), before);
    }

    #[test]
    fn a_pod_is_placed_as_the_scheduler_would_place_it() {
        let configuration = bayplan_scheduler::config::Configuration::default();
        let profiles = Profiles::build(&configuration, &bayplan_scheduler::Registry::default()).unwrap();
        let profile = profiles.first().unwrap().clone();
        let mut state = state(&[node("n").json(), pod("p").request("cpu", "3").nominated_to("n").json()]);
        let info = state.pending().next().unwrap().clone();
        let now = Timestamp::UNIX_EPOCH;
        let mut attempt = Attempt::new(&profile, state.cluster(), state.nominator(), &info, now);
        assert_eq!(attempt.find(Search::ALL).unwrap().feasible.len(), 1);
        let reserve = attempt.into_reserve();
        state.place(&profile, &info, reserve, "n").unwrap();
        assert_eq!(state.cluster().node("n").unwrap().requested.milli_cpu, 3000);
        assert_eq!((state.pending().count(), state.nominator().is_empty()), (0, true));
    }
}
