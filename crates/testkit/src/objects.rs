//! Builders of pods and nodes. They make valid objects of few fields; a test adds what it is about.
//!
//! ```
//! use bayplan_testkit::{node, pod};
//!
//! let web = pod("web").label("app", "web").request("cpu", "500m").view();
//! let n1 = node("n1").zone("a").taint("dedicated", "db", "NoSchedule").json();
//! assert_eq!(web.metadata.uid, "default/web");
//! assert_eq!(n1["status"]["allocatable"]["pods"], "110");
//! ```

use bayplan_model::node::{LABEL_HOSTNAME, LABEL_ZONE, Node};
use bayplan_model::pod::Pod;
use serde::Deserialize;
use serde_json::{Value, json};

/// A pod of one container without requests, in the namespace `default`, with its key as UID.
pub fn pod(name: &str) -> PodBuilder {
    PodBuilder(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("default/{name}")},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "image": "registry.example/app"}],
        },
    }))
}

/// A node with room for 110 pods, 4 cpus and 16Gi of memory, labelled with its name.
pub fn node(name: &str) -> NodeBuilder {
    NodeBuilder(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {LABEL_HOSTNAME: name}},
        "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
    }))
}

/// A pod being built.
#[derive(Clone, Debug)]
pub struct PodBuilder(Value);

/// A node being built.
#[derive(Clone, Debug)]
pub struct NodeBuilder(Value);

/// The methods both builders have.
macro_rules! builder {
    ($builder:ident, $view:ident) => {
        impl $builder {
            /// Sets a label.
            #[must_use]
            pub fn label(mut self, key: &str, value: &str) -> Self {
                self.0["metadata"]["labels"][key] = value.into();
                self
            }

            /// Sets an annotation.
            #[must_use]
            pub fn annotation(mut self, key: &str, value: &str) -> Self {
                self.0["metadata"]["annotations"][key] = value.into();
                self
            }

            /// Sets fields of the metadata, as [`merge`] does.
            #[must_use]
            pub fn metadata(mut self, fields: Value) -> Self {
                merge(&mut self.0["metadata"], fields);
                self
            }

            /// Sets fields of the spec, as [`merge`] does.
            #[must_use]
            pub fn spec(mut self, fields: Value) -> Self {
                merge(&mut self.0["spec"], fields);
                self
            }

            /// Sets fields of the status, as [`merge`] does.
            #[must_use]
            pub fn status(mut self, fields: Value) -> Self {
                merge(&mut self.0["status"], fields);
                self
            }

            /// The object as JSON.
            pub fn json(self) -> Value {
                self.0
            }

            /// The object as the scheduler reads it.
            pub fn view(self) -> $view {
                $view::deserialize(self.0).unwrap()
            }
        }

        impl From<$builder> for Value {
            fn from(builder: $builder) -> Value {
                builder.0
            }
        }
    };
}

builder!(PodBuilder, Pod);
builder!(NodeBuilder, Node);

impl PodBuilder {
    /// Moves the pod to a namespace; its UID follows.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        let name = self.0["metadata"]["name"].as_str().unwrap_or_default();
        self.0["metadata"]["uid"] = format!("{namespace}/{name}").into();
        self.0["metadata"]["namespace"] = namespace.into();
        self
    }

    /// Sets the request of the first container for a resource.
    #[must_use]
    pub fn request(mut self, resource: &str, amount: &str) -> Self {
        self.0["spec"]["containers"][0]["resources"]["requests"][resource] = amount.into();
        self
    }

    /// Sets the image of the first container.
    #[must_use]
    pub fn image(mut self, image: &str) -> Self {
        self.0["spec"]["containers"][0]["image"] = image.into();
        self
    }

    /// Adds a port the first container opens on its node.
    #[must_use]
    pub fn host_port(mut self, port: u16, protocol: &str, address: &str) -> Self {
        let port = json!({"containerPort": port, "hostPort": port, "protocol": protocol, "hostIP": address});
        push(&mut self.0["spec"]["containers"][0]["ports"], port);
        self
    }

    /// Binds the pod to a node.
    #[must_use]
    pub fn on_node(mut self, node: &str) -> Self {
        self.0["spec"]["nodeName"] = node.into();
        self
    }

    /// Nominates a node for the pod.
    #[must_use]
    pub fn nominated_to(mut self, node: &str) -> Self {
        self.0["status"]["nominatedNodeName"] = node.into();
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.0["spec"]["priority"] = priority.into();
        self
    }

    /// Adds a label the node must carry.
    #[must_use]
    pub fn node_selector(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["nodeSelector"][key] = value.into();
        self
    }

    /// Adds a toleration of the taint with this key and effect, whatever its value.
    #[must_use]
    pub fn tolerates(mut self, key: &str, effect: &str) -> Self {
        push(&mut self.0["spec"]["tolerations"], json!({"key": key, "operator": "Exists", "effect": effect}));
        self
    }

    /// Adds a volume that names a claim.
    #[must_use]
    pub fn claim(mut self, claim: &str) -> Self {
        push(&mut self.0["spec"]["volumes"], json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
        self
    }

    /// Adds a scheduling gate.
    #[must_use]
    pub fn gate(mut self, name: &str) -> Self {
        push(&mut self.0["spec"]["schedulingGates"], json!({"name": name}));
        self
    }
}

impl NodeBuilder {
    /// Sets how much of a resource pods may use.
    #[must_use]
    pub fn allocatable(mut self, resource: &str, amount: &str) -> Self {
        self.0["status"]["allocatable"][resource] = amount.into();
        self
    }

    /// Sets the label of the zone.
    #[must_use]
    pub fn zone(self, zone: &str) -> Self {
        self.label(LABEL_ZONE, zone)
    }

    /// Adds a taint.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        push(&mut self.0["spec"]["taints"], json!({"key": key, "value": value, "effect": effect}));
        self
    }

    /// Cordons the node.
    #[must_use]
    pub fn unschedulable(mut self) -> Self {
        self.0["spec"]["unschedulable"] = true.into();
        self
    }

    /// Adds an image that is present on the node.
    #[must_use]
    pub fn image(mut self, name: &str, bytes: i64) -> Self {
        push(&mut self.0["status"]["images"], json!({"names": [name], "sizeBytes": bytes}));
        self
    }
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = Value::Array(vec![item]),
    }
}

/// Sets the fields of an object to those given, field by field in nested objects; a null removes a field (RFC 7386).
pub fn merge(object: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else {
        *object = fields;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        match (value, object.as_object_mut()) {
            (Value::Null, Some(object)) => drop(object.remove(&name)),
            (value, _) => merge(&mut object[name.as_str()], value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builders_make_the_views_they_describe() {
        let pod =
            pod("a").namespace("team").request("cpu", "1").on_node("n").priority(3).claim("data").gate("g").view();
        assert_eq!((pod.metadata.key().as_str(), pod.metadata.uid.as_str()), ("team/a", "team/a"));
        assert_eq!((pod.spec.node_name.as_str(), pod.priority()), ("n", 3));
        assert_eq!(pod.named_claims().collect::<Vec<_>>(), ["data"]);
        assert_eq!(pod.spec.scheduling_gates.len(), 1);
        let node = node("n").zone("z").taint("k", "v", "NoExecute").unschedulable().view();
        assert_eq!((node.zone_key().as_str(), node.spec.taints.len()), (":\u{0}:z", 1));
        assert!(node.spec.unschedulable);
    }

    #[test]
    fn a_merge_sets_nested_fields_and_removes_nulls() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "d": 3});
        merge(&mut object, json!({"a": {"b": null, "e": 4}, "d": [5]}));
        assert_eq!(object, json!({"a": {"c": 2, "e": 4}, "d": [5]}));
    }
}
