//! The Node authorizer: a kubelet reads and writes what the pods of its node need, and no more.
//!
//! ```text
//!   store ─watch▶ graph (which node's pods use what) ─▶ authorize(Attributes) ─▶ Decision
//! ```
//!
//! Resources that are not divided by node are judged by the rules of the role `system:node`. What of an object a
//! kubelet may change is a matter of admission (`NodeRestriction`).

use std::sync::LazyLock;

use bayplan_model::field_selector::FieldSelector;

use super::policy::Rule;
use super::{Action, Attributes, Decision, rbac};
use crate::bootstrap::node_rules;
use crate::user::User;

mod graph;
mod uses;

pub(crate) use graph::NodeGraph;
use graph::Vertex;

const USER_PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
const LEASE_NAMESPACE: &str = "kube-node-lease";

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(node_rules);

/// The node of a kubelet: none for other users, an empty name for one that names no node.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX).filter(|_| user.in_group(GROUP))
}

/// Decides about the request of a kubelet; of other users it has no opinion.
pub(super) fn authorize(graph: &NodeGraph, request: &Attributes<'_>) -> Decision {
    match node_of(request.user) {
        None => refused(""),
        Some("") => refused(format!("unknown node for user {:?}", request.user.name)),
        Some(node) => Kubelet { node, graph, request }.authorize(),
    }
}

fn allowed() -> Decision {
    Decision { allowed: true, reason: String::new() }
}

fn refused(why: impl Into<String>) -> Decision {
    Decision { allowed: false, reason: why.into() }
}

/// A kubelet that asks.
struct Kubelet<'a> {
    node: &'a str,
    graph: &'a NodeGraph,
    request: &'a Attributes<'a>,
}

impl Kubelet<'_> {
    fn authorize(&self) -> Decision {
        let Action::Resource { group, resource, subresource, name, namespace } = self.request.action else {
            return self.by_rules();
        };
        let verb = self.request.verb.as_str();
        let namespaced = (namespace, name);
        match (group, resource) {
            ("", "secrets") => self.read(verb, subresource, namespace, Vertex::secret(namespaced)),
            ("", "configmaps") => self.read(verb, subresource, namespace, Vertex::config_map(namespaced)),
            ("", "persistentvolumeclaims") if subresource == "status" => match verb {
                "update" | "patch" => self.related(Vertex::claim(namespaced)),
                _ => refused("can only update PVC status"),
            },
            ("", "persistentvolumeclaims") => self.get(verb, subresource, Vertex::claim(namespaced)),
            ("", "persistentvolumes") => self.get(verb, subresource, Vertex::volume(name)),
            ("resource.k8s.io", "resourceclaims") => self.get(verb, subresource, Vertex::resource_claim(namespaced)),
            ("storage.k8s.io", "volumeattachments") => self.get(verb, subresource, Vertex::attachment(name)),
            ("", "serviceaccounts") => match (verb, subresource) {
                ("get", "") | ("create", "token") => self.related(Vertex::service_account(namespaced)),
                _ => refused("can only create tokens for individual service accounts"),
            },
            ("coordination.k8s.io", "leases") => self.lease(verb, subresource, namespaced),
            ("storage.k8s.io", "csinodes") => self.csi_node(verb, subresource, name),
            ("resource.k8s.io", "resourceslices") => self.resource_slice(verb, subresource, name),
            ("", "nodes") => self.own_node(verb, subresource, name),
            ("", "pods") => self.pod(verb, subresource, namespaced),
            _ => self.by_rules(),
        }
    }

    fn by_rules(&self) -> Decision {
        if RULES.iter().any(|rule| rbac::allows(rule, self.request)) { allowed() } else { refused("") }
    }

    /// Objects that are read one by one, or watched by name.
    fn read(&self, verb: &str, subresource: &str, namespace: &str, object: Vertex) -> Decision {
        match verb {
            "get" | "list" | "watch" if !subresource.is_empty() => refused("cannot read subresource"),
            "get" | "list" | "watch" if namespace.is_empty() => refused("can only read namespaced object of this type"),
            "get" | "list" | "watch" => self.related(object),
            _ => refused("can only read resources of this type"),
        }
    }

    fn get(&self, verb: &str, subresource: &str, object: Vertex) -> Decision {
        match (verb, subresource) {
            ("get", "") => self.related(object),
            ("get", _) => refused("cannot get subresource"),
            _ => refused("can only get individual resources of this type"),
        }
    }

    /// Objects that a pod of the node uses.
    fn related(&self, object: Vertex) -> Decision {
        if object.is_nameless() {
            return refused("No Object name found");
        }
        if self.graph.is_related(self.node, &object) {
            return allowed();
        }
        refused(format!("no relationship found between node '{}' and this object", self.node))
    }

    fn lease(&self, verb: &str, subresource: &str, (namespace, name): (&str, &str)) -> Decision {
        match verb {
            "get" | "create" | "update" | "patch" | "delete" if subresource.is_empty() => {}
            _ => return refused("can only get, create, update, patch, or delete a node lease"),
        }
        if namespace != LEASE_NAMESPACE {
            return refused(format!("can only access leases in the {LEASE_NAMESPACE:?} system namespace"));
        }
        // The name of a new one is admission's to judge.
        if verb != "create" && name != self.node {
            return refused("can only access node lease with the same name as the requesting node");
        }
        allowed()
    }

    fn csi_node(&self, verb: &str, subresource: &str, name: &str) -> Decision {
        match verb {
            _ if !subresource.is_empty() => refused("cannot authorize CSINode subresources"),
            "create" => allowed(),
            "get" | "update" | "patch" | "delete" if name == self.node => allowed(),
            "get" | "update" | "patch" | "delete" => {
                refused("can only access CSINode with the same name as the requesting node")
            }
            _ => refused("can only get, create, update, patch, or delete a CSINode"),
        }
    }

    fn resource_slice(&self, verb: &str, subresource: &str, name: &str) -> Decision {
        match verb {
            _ if !subresource.is_empty() => refused("cannot authorize ResourceSlice subresources"),
            "create" => allowed(),
            "get" | "update" | "patch" | "delete" => self.related(Vertex::resource_slice(name)),
            "list" | "watch" | "deletecollection" if self.selects("spec.nodeName") => allowed(),
            "list" | "watch" | "deletecollection" => {
                refused("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => refused(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, \
                          patch, delete, deletecollection",
            ),
        }
    }

    fn own_node(&self, verb: &str, subresource: &str, name: &str) -> Decision {
        match (subresource, verb) {
            // Which node, and what of it, is admission's to judge.
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => allowed(),
            ("", "get" | "list" | "watch") if name == self.node => allowed(),
            ("", "get" | "list" | "watch") => {
                refused(format!("node '{}' cannot read '{name}', only its own Node object", self.node))
            }
            _ => refused(""),
        }
    }

    fn pod(&self, verb: &str, subresource: &str, pod: (&str, &str)) -> Decision {
        match (subresource, verb) {
            ("", "get") => self.related(Vertex::pod(pod)),
            ("", "list" | "watch") if self.selects("spec.nodeName") => allowed(),
            ("", "list" | "watch") if !pod.1.is_empty() => self.related(Vertex::pod(pod)),
            ("", "list" | "watch") => refused("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => allowed(),
            _ => refused(""),
        }
    }

    /// True if the request is for what has the node's name in a field.
    fn selects(&self, field: &str) -> bool {
        let selector = FieldSelector::parse(self.request.field_selector);
        selector.is_ok_and(|selector| selector.exact_value(field) == Some(self.node))
    }
}

#[cfg(test)]
mod tests;
