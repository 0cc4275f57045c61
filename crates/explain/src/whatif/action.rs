//! What a what-if may do to a cluster.

use serde_json::Value;

/// The name of an object: kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// As the API spells it: `Deployment`.
    pub kind: &'static str,
    /// Its group and version.
    pub api_version: &'static str,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The kinds that actions may name: kind, version, whether in namespaces, and what kubectl calls them.
const KINDS: &[(&str, &str, bool, &[&str])] = &[
    ("Pod", "v1", true, &["pod", "pods", "po"]),
    ("Node", "v1", false, &["node", "nodes", "no"]),
    ("Deployment", "apps/v1", true, &["deployment", "deployments", "deploy"]),
    ("ReplicaSet", "apps/v1", true, &["replicaset", "replicasets", "rs"]),
    ("StatefulSet", "apps/v1", true, &["statefulset", "statefulsets", "sts"]),
    ("DaemonSet", "apps/v1", true, &["daemonset", "daemonsets", "ds"]),
    ("Job", "batch/v1", true, &["job", "jobs"]),
    ("ReplicationController", "v1", true, &["replicationcontroller", "replicationcontrollers", "rc"]),
    ("PodDisruptionBudget", "policy/v1", true, &["poddisruptionbudget", "poddisruptionbudgets", "pdb"]),
    ("PersistentVolumeClaim", "v1", true, &["persistentvolumeclaim", "persistentvolumeclaims", "pvc"]),
    ("PersistentVolume", "v1", false, &["persistentvolume", "persistentvolumes", "pv"]),
    ("StorageClass", "storage.k8s.io/v1", false, &["storageclass", "storageclasses", "sc"]),
    ("PriorityClass", "scheduling.k8s.io/v1", false, &["priorityclass", "priorityclasses", "pc"]),
    ("Namespace", "v1", false, &["namespace", "namespaces", "ns"]),
    ("Service", "v1", true, &["service", "services", "svc"]),
    ("ResourceClaim", "resource.k8s.io/v1", true, &["resourceclaim", "resourceclaims"]),
    ("ResourceSlice", "resource.k8s.io/v1", false, &["resourceslice", "resourceslices"]),
    ("DeviceClass", "resource.k8s.io/v1", false, &["deviceclass", "deviceclasses"]),
    ("LimitRange", "v1", true, &["limitrange", "limitranges", "limits"]),
];

impl ObjectName {
    /// Reads `kind/name` or `kind/namespace/name`.
    pub fn parse(text: &str, namespace: &str) -> Result<Self, String> {
        let mut parts = text.split('/');
        let (kind, rest): (&str, Vec<&str>) = (parts.next().unwrap_or_default(), parts.collect());
        let lower = kind.to_ascii_lowercase();
        let plural = lower.split('.').next().unwrap_or_default();
        let Some((kind, api_version, namespaced, _)) = KINDS.iter().find(|known| known.3.contains(&plural)) else {
            let known: Vec<&str> = KINDS.iter().map(|known| known.3[0]).collect();
            return Err(format!("{text:?}: {kind:?} is not one of {}", known.join(", ")));
        };
        let (namespace, name) = match rest.as_slice() {
            [name] if !name.is_empty() => (namespace, *name),
            [namespace, name] if *namespaced && !name.is_empty() => (*namespace, *name),
            _ => return Err(format!("{text:?} is not of the form kind/name, for example deploy/web")),
        };
        let namespace = if *namespaced { namespace.to_owned() } else { String::new() };
        Ok(ObjectName { kind, api_version, namespace, name: name.to_owned() })
    }

    /// As messages show it.
    pub fn display(&self) -> String {
        let kind = self.kind.to_ascii_lowercase();
        if self.namespace.is_empty() {
            format!("{kind} {}", self.name)
        } else {
            format!("{kind} {}/{}", self.namespace, self.name)
        }
    }
}

/// What a new node is like.
#[derive(Clone, Debug)]
pub enum NodeTemplate {
    /// The nodes of a pool, or a node of this name.
    Pool(String),
    /// A node object.
    Node(Box<Value>),
}

/// A priority, or the name of the class that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Priority {
    /// A value.
    Value(i32),
    /// The name of a PriorityClass.
    Class(String),
}

/// One thing that is done.
#[derive(Clone, Debug)]
pub enum Action {
    /// Objects are created; workloads are expanded into their pods.
    Apply {
        /// The objects, in their order.
        objects: Vec<Value>,
        /// How many pods each workload gets, whatever it says itself.
        replicas: Option<usize>,
        /// Where they come from, for the answer's list of actions.
        from: String,
    },
    /// Nodes are added.
    AddNodes {
        /// How many.
        count: usize,
        /// What they are like.
        like: NodeTemplate,
    },
    /// Nodes take no more pods.
    Cordon(Vec<String>),
    /// Nodes take no more pods, and those on them have to leave.
    Drain(Vec<String>),
    /// An object is deleted, and what it owns.
    Delete(ObjectName),
    /// A workload gets another number of pods.
    Scale {
        /// The workload.
        workload: ObjectName,
        /// How many pods it gets.
        replicas: usize,
    },
    /// A pod, or the pods of a workload, get another priority.
    SetPriority {
        /// The pod or workload.
        of: ObjectName,
        /// The priority.
        priority: Priority,
    },
}
