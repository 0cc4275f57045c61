//! Objects that are created, scaled and deleted, and the pods that follow.

use std::sync::Arc;

use bayplan_controllers::deployment::template::same;
use bayplan_controllers::pod::Pod as OwnedPod;
use bayplan_controllers::replicaset::ranking::deletion_order;
use bayplan_model::pod::Pod;
use bayplan_scheduler::Object;
use bayplan_sources::Resource;
use serde::Deserialize;
use serde_json::Value;

use super::answer::{Deleted, Placed};
use super::expansion::{Template, Workload, is_workload};
use super::session::{Outcome, Session, pods};
use super::{Error, ObjectName, PODS_PER_ACTION_MAX, Priority};
use crate::completion::{DEFAULT_NAMESPACE, display_name, resource, text};

/// Filters that a DaemonSet's controller asks itself: it makes no pod for a node that they refuse.
const DAEMON_FILTERS: [&str; 3] = ["NodeName", "TaintToleration", "NodeAffinity"];

impl Session<'_> {
    /// Creates objects in their order.
    pub(super) fn apply(&mut self, objects: Vec<Value>, replicas: Option<usize>, from: &str) -> Result<String, Error> {
        let (placed, pending, count) = (self.placed.len(), self.pending.len(), objects.len());
        let mut last_pod = None;
        for (at, mut object) in objects.into_iter().enumerate() {
            self.name(&mut object, at);
            if text(&object, "/kind") == "Pod" && text(&object, "/apiVersion") == "v1" {
                self.template = None;
                let written = self.completed(object)?;
                let mut pod =
                    Pod::deserialize(&written).map_err(|error| Error::Unreadable(display_name(&written), error))?;
                self.make_claims(&mut pod, &written)?;
                self.create(pod);
                last_pod = Some(written);
            } else if is_workload(&object) {
                last_pod = None;
                self.apply_workload(object, replicas)?;
            } else {
                self.store(object)?;
            }
        }
        if let Some(pod) = last_pod {
            // What was completed once would be refused as a new pod: its priority is set.
            let options = super::Options { as_written: true, ..self.options.clone() };
            self.template = Some(Template::of_pod(&pod, &self.completion, &options)?);
        }
        let made = self.placed.len() + self.pending.len() - placed - pending;
        Ok(format!("create {} of {from}: {}", counted(count, "object"), counted(made, "pod")))
    }

    /// Gives an object the namespace and the name that it lacks.
    fn name(&self, object: &mut Value, at: usize) {
        let namespaced = resource(object).map_or_else(|| is_workload(object), |resource| resource.namespaced);
        if !object["metadata"].is_object() {
            object["metadata"] = Value::Object(serde_json::Map::new());
        }
        if namespaced && text(object, "/metadata/namespace").is_empty() {
            let namespace = Some(self.options.namespace.as_str()).filter(|namespace| !namespace.is_empty());
            object["metadata"]["namespace"] = namespace.unwrap_or(DEFAULT_NAMESPACE).into();
        }
        if text(object, "/metadata/name").is_empty() {
            let prefix = text(object, "/metadata/generateName").to_owned();
            object["metadata"]["name"] = format!("{prefix}{at}").into();
        }
    }

    fn completed(&self, object: Value) -> Result<Value, Error> {
        if self.options.as_written { Ok(object) } else { Ok(self.completion.complete(object, self.options.now)?) }
    }

    /// Stores an object that is neither a pod nor makes pods.
    pub(super) fn store(&mut self, object: Value) -> Result<(), Error> {
        let Some(resource) = resource(&object) else {
            let (kind, name) = (text(&object, "/kind").to_owned(), display_name(&object));
            self.notes.push(format!("{kind} {name} is left out: no decision reads its kind"));
            return Ok(());
        };
        let object = self.completed(object)?;
        self.completion.learn(resource.kind, &object);
        self.put_written(resource, &object)?;
        self.retry_pending = true;
        Ok(())
    }

    /// Stores an object as it is.
    pub(super) fn put_written(&mut self, resource: &'static Resource, object: &Value) -> Result<(), Error> {
        self.changed();
        let written = self.state.write(resource, object);
        written.map(drop).map_err(|error| Error::Unreadable(display_name(object), error))
    }

    /// An object as it was written, as a value.
    pub(super) fn written(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
        serde_json::from_str(self.state.written(resource, namespace, name)?.get()).ok()
    }

    fn apply_workload(&mut self, object: Value, replicas: Option<usize>) -> Result<(), Error> {
        let object = self.completed(object)?;
        if let Some(resource) = resource(&object) {
            self.put_written(resource, &object)?;
        }
        self.bring_about(Workload::of(object, replicas))
    }

    /// Makes the pods that a workload lacks, and removes those that it has too many.
    fn bring_about(&mut self, workload: Workload) -> Result<(), Error> {
        if workload.replicas.is_some_and(|wanted| wanted > PODS_PER_ACTION_MAX) {
            return Err(Error::Invalid(format!("{} wants more than {PODS_PER_ACTION_MAX} pods", workload.name)));
        }
        match workload.kind.as_str() {
            "Deployment" => self.roll_out(workload),
            "DaemonSet" => self.run_daemons(&workload),
            _ => {
                let existing = self.owned_by(&workload.kind, &workload.namespace, &workload.name);
                let template = self.template_of(&workload.object, &workload)?;
                self.resize(&workload, template, existing)
            }
        }
    }

    /// The template of a workload's pods, with the priority that an earlier action gave them.
    fn template_of(&self, owner: &Value, workload: &Workload) -> Result<Template, Error> {
        let template = Template::new(owner, &self.completion, self.options)?;
        let is_this = |of: &ObjectName| {
            of.kind == workload.kind && of.namespace == workload.namespace && of.name == workload.name
        };
        let given = self.priorities.iter().rev().find(|(of, _)| is_this(of));
        Ok(match given {
            Some((_, priority)) => template.with_priority(*priority),
            None => template,
        })
    }

    /// A Deployment: the pods of its current ReplicaSet grow or shrink, those of former ones are gone at the end.
    fn roll_out(&mut self, workload: Workload) -> Result<(), Error> {
        let replica_sets = Self::resource("apps/v1", "ReplicaSet")?;
        let owned = self.replica_sets_of(&workload.namespace, &workload.name);
        let is_current = |set: &&Value| same(&set["spec"]["template"], workload.template());
        let current = owned.iter().find(is_current).cloned();
        for former in owned.iter().filter(|set| Some(*set) != current.as_ref()) {
            for pod in self.owned_by("ReplicaSet", &workload.namespace, text(former, "/metadata/name")) {
                self.delete_pod(&pod);
            }
        }
        let set = match current {
            Some(set) => set,
            None => {
                let set = workload.replica_set();
                self.put_written(replica_sets, &set)?;
                set
            }
        };
        let existing = self.owned_by("ReplicaSet", &workload.namespace, text(&set, "/metadata/name"));
        let template = self.template_of(&set, &workload)?;
        self.resize(&workload, template, existing)
    }

    fn replica_sets_of(&self, namespace: &str, deployment: &str) -> Vec<Value> {
        let Ok(replica_sets) = Self::resource("apps/v1", "ReplicaSet") else { return Vec::new() };
        let all = self.state.all_written(replica_sets).into_iter();
        let sets = all.filter(|(of, _, _)| *of == namespace).filter_map(|(_, _, json)| {
            let set: Value = serde_json::from_str(json.get()).ok()?;
            let owners = set["metadata"]["ownerReferences"].as_array()?;
            let owned = owners.iter().any(|owner| owner["kind"] == "Deployment" && owner["name"] == deployment);
            owned.then_some(set)
        });
        sets.collect()
    }

    /// The pods that an object controls.
    fn owned_by(&self, kind: &str, namespace: &str, name: &str) -> Vec<Arc<Pod>> {
        let owned =
            |pod: &&Arc<Pod>| pod.metadata.controller().is_some_and(|owner| owner.kind == kind && owner.name == name);
        self.state.cluster().objects.pods.in_namespace(namespace).filter(owned).cloned().collect()
    }

    fn resize(&mut self, workload: &Workload, template: Template, existing: Vec<Arc<Pod>>) -> Result<(), Error> {
        let wanted = workload.replicas.unwrap_or(0);
        if existing.len() > wanted {
            self.retry_pending = true;
            for pod in self.superfluous(workload, existing, wanted) {
                self.delete_pod(&pod);
            }
        } else {
            let mut number = workload.start;
            for _ in existing.len()..wanted {
                number = self.next_free(&template, number);
                let key = format!("{}/{}", template.namespace(), template.name(number));
                match self.instantiate(&template, number, self.options.preempt)? {
                    Outcome::Node(node) => self.placed.push(Placed { pod: key, node }),
                    Outcome::Pending(explanation) => self.pending.push(*explanation),
                }
                number += 1;
            }
        }
        self.template = Some(template);
        Ok(())
    }

    /// The pods that a controller deletes first; of a StatefulSet those with the highest ordinals.
    fn superfluous(&self, workload: &Workload, existing: Vec<Arc<Pod>>, wanted: usize) -> Vec<Arc<Pod>> {
        let surplus = existing.len() - wanted;
        if workload.kind == "StatefulSet" {
            let mut by_ordinal = existing;
            let ordinal =
                |pod: &Arc<Pod>| pod.metadata.name.rsplit('-').next().and_then(|text| text.parse::<u64>().ok());
            by_ordinal.sort_by_key(|pod| std::cmp::Reverse(ordinal(pod)));
            by_ordinal.truncate(surplus);
            return by_ordinal;
        }
        let view = |pod: &Arc<Pod>| {
            let meta = &pod.metadata;
            let written = self.state.written(pods(), &meta.namespace, &meta.name);
            let read = written.and_then(|json| serde_json::from_str::<OwnedPod>(json.get()).ok());
            let new =
                || OwnedPod { metadata: meta.clone(), node_name: pod.spec.node_name.clone(), ..OwnedPod::default() };
            Arc::new(read.unwrap_or_else(new))
        };
        let views: Vec<Arc<OwnedPod>> = existing.iter().map(view).collect();
        let order = deletion_order(&views, &views, self.options.now);
        let first = order.into_iter().take(surplus).map(|ranked| ranked.pod.metadata.name.clone());
        first.filter_map(|name| existing.iter().find(|pod| pod.metadata.name == name).cloned()).collect()
    }

    /// The first number from this one on for which a template's pod does not exist.
    pub(super) fn next_free(&self, template: &Template, mut number: usize) -> usize {
        let pods = &self.state.cluster().objects.pods;
        while pods.get(template.namespace(), &template.name(number)).is_some() {
            number += 1;
        }
        number
    }

    /// Creates and decides one pod of a template, with the claims that are made for it.
    pub(super) fn instantiate(&mut self, template: &Template, number: usize, preempt: bool) -> Result<Outcome, Error> {
        let claims = Self::resource("v1", "PersistentVolumeClaim")?;
        for claim in template.volume_claims(number) {
            let exists = self.state.written(claims, template.namespace(), text(&claim, "/metadata/name")).is_some();
            if !exists {
                let claim = self.completed(claim)?;
                self.put_written(claims, &claim)?;
            }
        }
        let mut pod = template.pod(number);
        self.make_claims(&mut pod, template.written())?;
        Ok(self.create_and_decide(pod, preempt))
    }

    /// A DaemonSet: one pod for each node that its controller finds eligible.
    fn run_daemons(&mut self, workload: &Workload) -> Result<(), Error> {
        let existing = self.owned_by("DaemonSet", &workload.namespace, &workload.name);
        for pod in &existing {
            self.remove_pod(&pod.metadata.namespace, &pod.metadata.name);
        }
        let template = self.template_of(&workload.object, workload)?;
        let mut nodes: Vec<String> = self.state.cluster().nodes().map(|node| node.name.to_string()).collect();
        nodes.sort();
        for node in nodes {
            let pod = template.pod_on(&node).map_err(|error| Error::Unreadable(workload.name.clone(), error))?;
            let (key, namespace, name) =
                (pod.metadata.key(), pod.metadata.namespace.clone(), pod.metadata.name.clone());
            match self.create_and_decide(pod, self.options.preempt) {
                Outcome::Node(node) => self.placed.push(Placed { pod: key, node }),
                // The pod may go to one node only: all others are left out before they are asked.
                Outcome::Pending(explanation) => {
                    let mut refused_by = explanation.refused_by.iter().filter(|by| by.nodes == 1);
                    if refused_by.any(|by| DAEMON_FILTERS.contains(&by.plugin)) {
                        self.remove_pod(&namespace, &name);
                    } else {
                        self.pending.push(*explanation);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives a workload that is there another number of pods.
    pub(super) fn scale(&mut self, name: &ObjectName, replicas: usize) -> Result<String, Error> {
        if !["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job"].contains(&name.kind) {
            return Err(Error::Invalid(format!("{} cannot be scaled", name.display())));
        }
        let resource = Self::resource(name.api_version, name.kind)?;
        let written = self.written(resource, &name.namespace, &name.name);
        let object = written.ok_or_else(|| Error::Missing(name.display()))?;
        let workload = Workload::of(object, Some(replicas));
        let before = self.count_of(name);
        self.bring_about(workload)?;
        Ok(format!("scale {} from {before} to {}", name.display(), counted(replicas, "pod")))
    }

    /// How many pods a workload has.
    fn count_of(&self, name: &ObjectName) -> usize {
        self.pods_of(name).len()
    }

    fn pods_of(&self, name: &ObjectName) -> Vec<Arc<Pod>> {
        match name.kind {
            "Pod" => self.state.cluster().objects.pods.get(&name.namespace, &name.name).cloned().into_iter().collect(),
            "Deployment" => {
                let sets = self.replica_sets_of(&name.namespace, &name.name);
                let pods = |set: &Value| self.owned_by("ReplicaSet", &name.namespace, text(set, "/metadata/name"));
                sets.iter().flat_map(pods).collect()
            }
            kind => self.owned_by(kind, &name.namespace, &name.name),
        }
    }

    /// Deletes an object, and the pods that go with it.
    pub(super) fn delete(&mut self, name: &ObjectName) -> Result<String, Error> {
        let resource = Self::resource(name.api_version, name.kind)?;
        self.retry_pending = true;
        if name.kind == "Node" {
            return self.delete_node(&name.name);
        }
        let pods = match name.kind {
            "Namespace" => self.state.cluster().objects.pods.in_namespace(&name.name).cloned().collect(),
            _ => self.pods_of(name),
        };
        let exists = self.state.written(resource, &name.namespace, &name.name).is_some();
        if !exists && pods.is_empty() {
            return Err(Error::Missing(name.display()));
        }
        for pod in &pods {
            self.delete_pod(pod);
        }
        if name.kind == "Deployment" {
            let replica_sets = Self::resource("apps/v1", "ReplicaSet")?;
            for set in self.replica_sets_of(&name.namespace, &name.name) {
                drop(self.state.remove(replica_sets, &name.namespace, text(&set, "/metadata/name")));
            }
        }
        self.changed();
        drop(self.state.remove(resource, &name.namespace, &name.name));
        Ok(match pods.len() {
            _ if name.kind == "Pod" => format!("delete {}", name.display()),
            0 => format!("delete {}", name.display()),
            count => format!("delete {} and its {}", name.display(), counted(count, "pod")),
        })
    }

    /// Removes a pod for good.
    pub(super) fn delete_pod(&mut self, pod: &Pod) {
        let key = pod.metadata.key();
        self.remove_pod(&pod.metadata.namespace, &pod.metadata.name);
        // A pod that this question made and removed again was never there.
        let made = self.placed.len() + self.pending.len();
        self.placed.retain(|placed| placed.pod != key);
        self.pending.retain(|pending| pending.pod.to_string() != key);
        if self.placed.len() + self.pending.len() == made {
            self.deleted.push(Deleted { pod: key, node: pod.spec.node_name.clone() });
        }
    }

    /// Gives a pod, or the pods of a workload, another priority.
    pub(super) fn set_priority(&mut self, of: &ObjectName, priority: &Priority) -> Result<String, Error> {
        let value = match priority {
            Priority::Value(value) => *value,
            Priority::Class(class) => {
                let value = self.completion.priority(class);
                value.ok_or_else(|| Error::Missing(format!("priorityclass {class}")))?
            }
        };
        let resource = Self::resource(of.api_version, of.kind)?;
        let pods = self.pods_of(of);
        let exists = self.state.written(resource, &of.namespace, &of.name).is_some();
        if pods.is_empty() && !exists {
            return Err(Error::Missing(of.display()));
        }
        for pod in &pods {
            let mut changed = (**pod).clone();
            changed.spec.priority = Some(value);
            self.state.put(Object::Pod(Arc::new(changed)));
        }
        self.changed();
        self.priorities.push((of.clone(), value));
        self.retry_pending = true;
        Ok(format!("set the priority of {} to {value}: {}", of.display(), counted(pods.len(), "pod")))
    }
}

/// A number of things, in words.
pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
