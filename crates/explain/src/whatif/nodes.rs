//! Nodes that are added, cordoned and deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::node::{LABEL_ZONE, Node};
use bayplan_model::pod::Pod;
use bayplan_scheduler::Object;
use bayplan_sources::Resource;
use serde_json::{Value, json};

use super::answer::Deleted;
use super::drain::stays_on_drain;
use super::expansion::{Template, rename_node};
use super::session::Session;
use super::workloads::counted;
use super::{Error, NODES_PER_ACTION_MAX, NodeTemplate};
use crate::completion::{display_name, text};
use crate::pools::{is_in_pool, pool_of};

/// The taint of a cordoned node, which the node lifecycle controller adds.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

impl Session<'_> {
    /// Adds nodes like those of a pool, or like one that was given.
    pub(super) fn add_nodes(&mut self, count: usize, like: NodeTemplate) -> Result<String, Error> {
        if count > NODES_PER_ACTION_MAX {
            return Err(Error::Invalid(format!("at most {NODES_PER_ACTION_MAX} nodes can be added at once")));
        }
        self.retry_pending = true;
        match like {
            NodeTemplate::Pool(pool) => self.add_like_pool(count, &pool),
            NodeTemplate::Node(node) => self.add_like_node(count, *node),
        }
    }

    fn add_like_node(&mut self, count: usize, mut node: Value) -> Result<String, Error> {
        if text(&node, "/kind") != "Node" {
            return Err(Error::Invalid(format!("--add needs a node, and {} is none", display_name(&node))));
        }
        if !self.options.as_written {
            node = self.completion.complete(node, self.options.now)?;
        }
        let base = match text(&node, "/metadata/name") {
            "" => "node".to_owned(),
            name => name.to_owned(),
        };
        let nodes = Self::resource("v1", "Node")?;
        for _ in 0..count {
            let name = self.free_node_name(&base, count == 1);
            let mut copy = node.clone();
            rename_node(&mut copy, &name);
            self.put_written(nodes, &copy)?;
            self.run_known_daemons(&name)?;
        }
        Ok(format!("add {} like {base}", counted(count, "node")))
    }

    /// The first of `base`, `base-1`, `base-2`, … that no node has.
    fn free_node_name(&self, base: &str, plain: bool) -> String {
        let free = |name: &String| self.state.cluster().node(name).is_none();
        let numbered = (1..).map(|number| format!("{base}-{number}"));
        plain.then(|| base.to_owned()).into_iter().chain(numbered).find(free).unwrap_or_default()
    }

    /// Puts the pods of all DaemonSets that are known on a new node.
    fn run_known_daemons(&mut self, node: &str) -> Result<(), Error> {
        let daemon_sets = Self::resource("apps/v1", "DaemonSet")?;
        let known: Vec<Value> = self
            .state
            .all_written(daemon_sets)
            .into_iter()
            .filter_map(|(_, _, json)| serde_json::from_str(json.get()).ok())
            .collect();
        for daemon_set in known {
            let template = Template::new(&daemon_set, &self.completion, self.options)?;
            let pod = template.pod_on(node).map_err(|error| Error::Unreadable(display_name(&daemon_set), error))?;
            let (namespace, name) = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
            if let super::Outcome::Pending(_) = self.create_and_decide(pod, false) {
                self.remove_pod(&namespace, &name);
            }
        }
        Ok(())
    }

    /// Adds nodes where the pool has the fewest: each is a copy of one of its nodes in that zone.
    fn add_like_pool(&mut self, count: usize, pool: &str) -> Result<String, Error> {
        let mut zones: BTreeMap<String, (usize, Arc<Node>)> = BTreeMap::new();
        for info in self.state.cluster().nodes() {
            let node = info.node();
            if !is_in_pool(node, pool) && *info.name != *pool {
                continue;
            }
            let zone = node.metadata.labels.get(LABEL_ZONE).cloned().unwrap_or_default();
            let (known, model) = zones.entry(zone).or_insert_with(|| (0, Arc::new(node.clone())));
            *known += 1;
            let healthier = !node.spec.unschedulable && model.spec.unschedulable;
            let smaller =
                node.spec.unschedulable == model.spec.unschedulable && node.metadata.name < model.metadata.name;
            if healthier || smaller {
                *model = Arc::new(node.clone());
            }
        }
        if zones.is_empty() {
            let mut pools: Vec<&str> = self.state.cluster().nodes().filter_map(|node| pool_of(node.node())).collect();
            pools.sort_unstable();
            pools.dedup();
            let known = if pools.is_empty() { "none".to_owned() } else { pools.join(", ") };
            return Err(Error::Invalid(format!("no pool and no node is named {pool}; the pools are: {known}")));
        }
        let base = pool.rsplit('=').next().unwrap_or(pool);
        for _ in 0..count {
            let Some((existing, model)) = zones.values_mut().min_by_key(|(existing, _)| *existing) else { break };
            *existing += 1;
            let model = model.clone();
            let name = self.free_node_name(&format!("{base}-new"), false);
            self.copy_node(&model, &name)?;
        }
        Ok(format!("add {} like those of {pool}", counted(count, "node")))
    }

    /// Adds a new node like another one, with its agents, drivers and devices, but without its other pods.
    fn copy_node(&mut self, model: &Node, name: &str) -> Result<(), Error> {
        let former = &model.metadata.name;
        let nodes = Self::resource("v1", "Node")?;
        let mut copy = self.written(nodes, "", former).ok_or_else(|| Error::Missing(format!("node {former}")))?;
        rename_node(&mut copy, name);
        renewed(&mut copy);
        self.put_written(nodes, &copy)?;
        let csi_nodes = Self::resource("storage.k8s.io/v1", "CSINode")?;
        if let Some(mut csi_node) = self.written(csi_nodes, "", former) {
            rename_node(&mut csi_node, name);
            self.put_written(csi_nodes, &csi_node)?;
        }
        self.copy_slices(former, name)?;
        let daemons: Vec<Arc<Pod>> = match self.state.cluster().node(former) {
            Some(info) => info.pods().iter().filter(|pod| stays_on_drain(pod)).map(|pod| pod.pod.clone()).collect(),
            None => Vec::new(),
        };
        for daemon in daemons {
            let mut pod = (*daemon).clone();
            pod.metadata.name = format!("{}-{name}", pod.metadata.name);
            pod.metadata.uid = pod.metadata.key();
            name.clone_into(&mut pod.spec.node_name);
            self.state.put(Object::Pod(Arc::new(pod)));
        }
        self.changed();
        Ok(())
    }

    fn copy_slices(&mut self, former: &str, name: &str) -> Result<(), Error> {
        let slices = Self::resource("resource.k8s.io/v1", "ResourceSlice")?;
        let own: Vec<Value> = (self.state.all_written(slices).into_iter())
            .filter_map(|(_, _, json)| serde_json::from_str::<Value>(json.get()).ok())
            .filter(|slice| text(slice, "/spec/nodeName") == former)
            .collect();
        for mut slice in own {
            let slice_name = format!("{}-{name}", text(&slice, "/metadata/name"));
            slice["metadata"] = json!({"name": slice_name, "uid": slice_name});
            slice["spec"]["nodeName"] = name.into();
            if text(&slice, "/spec/pool/name") == former {
                slice["spec"]["pool"]["name"] = name.into();
            }
            self.put_written(slices, &slice)?;
        }
        Ok(())
    }

    /// Lets nodes take no more pods.
    pub(super) fn cordon(&mut self, names: &[String]) -> Result<String, Error> {
        for name in names {
            self.cordon_one(name)?;
        }
        Ok(format!("cordon {}", names.join(", ")))
    }

    pub(super) fn cordon_one(&mut self, name: &str) -> Result<(), Error> {
        let nodes: &'static Resource = Self::resource("v1", "Node")?;
        let missing = || Error::Missing(format!("node {name}"));
        let mut node = self.written(nodes, "", name).ok_or_else(missing)?;
        if !node["spec"].is_object() {
            node["spec"] = json!({});
        }
        node["spec"]["unschedulable"] = true.into();
        if !node["spec"]["taints"].is_array() {
            node["spec"]["taints"] = json!([]);
        }
        if let Some(taints) = node["spec"]["taints"].as_array_mut()
            && !taints.iter().any(|taint| taint["key"] == UNSCHEDULABLE)
        {
            taints.push(json!({"key": UNSCHEDULABLE, "effect": "NoSchedule"}));
        }
        self.put_written(nodes, &node)
    }

    /// Deletes a node. Its pods go with it; those of controllers are created again.
    pub(super) fn delete_node(&mut self, name: &str) -> Result<String, Error> {
        let nodes = Self::resource("v1", "Node")?;
        let Some(info) = self.state.cluster().node(name) else { return Err(Error::Missing(format!("node {name}"))) };
        let mut pods: Vec<Arc<Pod>> = info.pods().iter().map(|pod| pod.pod.clone()).collect();
        pods.sort_by_key(|pod| pod.metadata.key());
        drop(self.state.remove(nodes, "", name));
        for pod in &pods {
            self.remove_pod(&pod.metadata.namespace, &pod.metadata.name);
        }
        let count = pods.len();
        for pod in pods {
            if !stays_on_drain(&pod) && pod.metadata.controller().is_some() {
                self.recreate(&pod, name.to_owned());
            } else {
                self.deleted.push(Deleted { pod: pod.metadata.key(), node: name.to_owned() });
            }
        }
        Ok(format!("delete node {name} with its {}", counted(count, "pod")))
    }
}

/// Takes from the copy of a node what only the old one had.
fn renewed(node: &mut Value) {
    if let Some(spec) = node["spec"].as_object_mut() {
        for field in ["unschedulable", "providerID", "podCIDR", "podCIDRs"] {
            spec.remove(field);
        }
        if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
            // The taints of conditions come and go with the state of a node.
            taints.retain(|taint| !text(taint, "/key").starts_with("node.kubernetes.io/"));
        }
    }
    if let Some(status) = node["status"].as_object_mut() {
        for field in ["images", "volumesInUse", "volumesAttached", "addresses"] {
            status.remove(field);
        }
    }
}
