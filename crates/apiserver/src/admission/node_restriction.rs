//! `NodeRestriction`: a kubelet changes its own node, the pods of its node and what belongs to it, and no more.

use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, Operation, list, row, text};
use crate::authz::node_of;

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The annotation of a pod that a kubelet runs from a file and shows to the API server, and where it is.
const MIRROR_NAME: &str = "kubernetes.io/config.mirror";
const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// The labels under `kubernetes.io` and `k8s.io` that a kubelet may set on its node; upstream's list.
const KUBELET_LABELS: [&str; 13] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];
/// The domains whose labels a kubelet may set.
const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Refuses what a kubelet may not write; says nothing about other users.
pub(super) async fn admit(context: &AdmissionContext<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    let Some(node) = node_of(context.user) else { return Ok(()) };
    let kubelet = Kubelet { node, context, object };
    if node.is_empty() {
        return kubelet.refuse(format!("could not determine node from user {:?}", context.user.name));
    }
    match (context.resource.group, context.resource.plural) {
        ("", "pods") => kubelet.pod(old).await,
        ("", "nodes") => kubelet.node(old),
        ("", "persistentvolumeclaims") => kubelet.claim(old),
        ("coordination.k8s.io", "leases") => kubelet.lease(),
        ("storage.k8s.io", "csinodes") => kubelet.csi_node(),
        ("resource.k8s.io", "resourceslices") => kubelet.resource_slice(old),
        _ => Ok(()),
    }
}

/// Refuses a token to a kubelet that is not bound to a pod of its node. `request` is the `TokenRequest`.
pub(crate) async fn admit_token(context: &AdmissionContext<'_>, request: &Value) -> Result<(), Status> {
    let Some(node) = node_of(context.user) else { return Ok(()) };
    let kubelet = Kubelet { node, context, object: request };
    let reference = |key: &str| text(request, &format!("/spec/boundObjectRef/{key}")).to_owned();
    if reference("apiVersion") != "v1" || reference("kind") != "Pod" || reference("name").is_empty() {
        return kubelet.refuse("node requested token not bound to a pod");
    }
    let uid = reference("uid");
    if uid.is_empty() {
        return kubelet.refuse("node requested token with a pod binding without a uid");
    }
    let pods = row("", "pods")?;
    let Some(pod) = context.objects.get(pods, context.namespace, &reference("name")).await? else {
        return kubelet.refuse("node requested token bound to a pod that does not exist");
    };
    if text(&pod, "/metadata/uid") != uid {
        return kubelet.refuse(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        ));
    }
    if text(&pod, "/spec/nodeName") != node {
        return kubelet.refuse("node requested token bound to a pod scheduled on a different node");
    }
    Ok(())
}

/// A kubelet that writes.
struct Kubelet<'a> {
    node: &'a str,
    context: &'a AdmissionContext<'a>,
    object: &'a Value,
}

impl Kubelet<'_> {
    fn refuse(&self, why: impl std::fmt::Display) -> Result<(), Status> {
        Err(self.context.refuse(self.object, why))
    }

    fn is_own(&self, pod: &Value) -> bool {
        text(pod, "/spec/nodeName") == self.node
    }

    async fn pod(&self, old: Option<&Value>) -> Result<(), Status> {
        let node = self.node;
        match (self.context.subresource, self.context.operation) {
            ("", Operation::Create) => self.mirror_pod().await,
            ("" | "eviction", Operation::Delete) => match old {
                Some(old) if !self.is_own(old) => {
                    self.refuse(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
                }
                _ => Ok(()),
            },
            ("", Operation::Update) => self.refuse(format!(
                "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
            )),
            ("status", Operation::Update) => self.pod_status(old.unwrap_or(&Value::Null)),
            // The pod itself is looked at when it is deleted.
            ("eviction", _) => Ok(()),
            (other, _) => {
                self.refuse(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
            }
        }
    }

    fn pod_status(&self, old: &Value) -> Result<(), Status> {
        let node = self.node;
        if !self.is_own(old) {
            return self
                .refuse(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
        }
        if map(old, "/metadata/labels").ne(map(self.object, "/metadata/labels")) {
            return self.refuse(format!("node {node:?} cannot update labels through pod status"));
        }
        for field in ["resourceClaimStatuses", "extendedResourceClaimStatus"] {
            if old["status"][field] != self.object["status"][field] {
                return self.refuse(format!("node {node:?} cannot update resource claim statuses"));
            }
        }
        Ok(())
    }

    /// A pod that a kubelet shows must be its own, and refer to nothing that it could read through it.
    async fn mirror_pod(&self) -> Result<(), Status> {
        let (node, pod) = (self.node, self.object);
        if pod.pointer(MIRROR).is_none() {
            return self.refuse(format!(
                "pod does not have {MIRROR_NAME:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if !self.is_own(pod) {
            return self.refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        self.owner().await?;
        let spec = &pod["spec"];
        if !text(spec, "/serviceAccountName").is_empty() {
            return self.refuse(format!("node {node:?} can not create pods that reference a service account"));
        }
        let refers =
            |kinds: &[&str]| list(spec, "/volumes").any(|volume| kinds.iter().any(|kind| !volume[*kind].is_null()));
        let containers = ["initContainers", "containers", "ephemeralContainers"];
        let environment = |kind: &str, whole: &str| {
            containers.iter().flat_map(|list_of| list(spec, &format!("/{list_of}")).collect::<Vec<_>>()).any(
                |container| {
                    list(container, "/env").any(|variable| !variable["valueFrom"][kind].is_null())
                        || list(container, "/envFrom").any(|source| !source[whole].is_null())
                },
            )
        };
        let secrets = list(spec, "/imagePullSecrets").next().is_some()
            || environment("secretKeyRef", "secretRef")
            || refers(&["secret", "projected", "csi"]);
        for (found, what) in [
            (secrets, "secrets"),
            (environment("configMapKeyRef", "configMapRef") || refers(&["configMap"]), "configmaps"),
            (refers(&["persistentVolumeClaim", "ephemeral"]), "persistentvolumeclaims"),
            (list(spec, "/resourceClaims").next().is_some(), "resourceclaims"),
        ] {
            if found {
                return self.refuse(format!("node {node:?} can not create pods that reference {what}"));
            }
        }
        Ok(())
    }

    /// The only owner of a mirror pod is its node.
    async fn owner(&self) -> Result<(), Status> {
        let node = self.node;
        let owners: Vec<&Value> = list(self.object, "/metadata/ownerReferences").collect();
        let [owner] = owners.as_slice() else {
            return self.refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
        };
        if text(owner, "/apiVersion") != "v1" || text(owner, "/kind") != "Node" || text(owner, "/name") != node {
            return self.refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
        }
        if owner["controller"] != true {
            return self
                .refuse(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
        }
        if owner["blockOwnerDeletion"] == true {
            return self.refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let stored = self.context.objects.get(row("", "nodes")?, "", node).await?;
        let uid = stored.as_deref().map_or("", |stored| text(stored, "/metadata/uid"));
        if text(owner, "/uid") != uid {
            return self.refuse(format!("node {node} UID mismatch: expected {} got {uid}", text(owner, "/uid")));
        }
        Ok(())
    }

    fn node(&self, old: Option<&Value>) -> Result<(), Status> {
        let (node, context) = (self.node, self.context);
        let named = match context.requested_name {
            "" => text(self.object, "/metadata/name"),
            name => name,
        };
        if named != node {
            return self.refuse(format!("node {node:?} is not allowed to modify node {named:?}"));
        }
        let nothing = Value::Null;
        let before = match context.operation {
            Operation::Create => &nothing,
            Operation::Update => old.unwrap_or(&nothing),
            Operation::Delete => return Ok(()),
        };
        if context.operation == Operation::Update {
            let empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            let same = |pointer: &str| {
                let (new, old) = (self.object.pointer(pointer), before.pointer(pointer));
                new == old || (new.is_none_or(empty) && old.is_none_or(empty))
            };
            if !same("/spec/taints") {
                return self.refuse(format!("node {node:?} is not allowed to modify taints"));
            }
            if !same("/metadata/ownerReferences") {
                return self.refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
        }
        let forbidden = changed_labels(before, self.object);
        if forbidden.is_empty() {
            return Ok(());
        }
        let verb = if context.operation == Operation::Create { "set" } else { "modify" };
        self.refuse(format!("node {node:?} is not allowed to {verb} the following labels: {}", forbidden.join(", ")))
    }

    /// Of a claim only the progress of its expansion is a kubelet's to write.
    fn claim(&self, old: Option<&Value>) -> Result<(), Status> {
        let node = self.node;
        if self.context.operation != Operation::Update || self.context.subresource != "status" {
            return self.refuse(format!("node {node:?} may only update PVC status"));
        }
        let without_progress = |claim: &Value| {
            let mut claim = claim.clone();
            if let Some(status) = claim["status"].as_object_mut() {
                for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
                    status.remove(field);
                }
            }
            if let Some(metadata) = claim["metadata"].as_object_mut() {
                metadata.remove("managedFields");
                metadata.remove("resourceVersion");
            }
            claim
        };
        match old {
            Some(old) if without_progress(old) != without_progress(self.object) => self.refuse(format!(
                "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
            )),
            _ => Ok(()),
        }
    }

    fn lease(&self) -> Result<(), Status> {
        let named = match self.context.requested_name {
            "" => text(self.object, "/metadata/name"),
            name => name,
        };
        if self.context.namespace != LEASE_NAMESPACE {
            return self.refuse(format!("can only access leases in the {LEASE_NAMESPACE:?} system namespace"));
        }
        if named != self.node {
            return self.refuse("can only access node lease with the same name as the requesting node");
        }
        Ok(())
    }

    fn csi_node(&self) -> Result<(), Status> {
        let named = match self.context.requested_name {
            "" => text(self.object, "/metadata/name"),
            name => name,
        };
        match named == self.node {
            true => Ok(()),
            false => self.refuse("can only access CSINode with the same name as the requesting node"),
        }
    }

    fn resource_slice(&self, old: Option<&Value>) -> Result<(), Status> {
        let (slice, verb) = match self.context.operation {
            Operation::Create => (self.object, "create"),
            Operation::Update => (old.unwrap_or(self.object), "update"),
            Operation::Delete => (old.unwrap_or(self.object), "delete"),
        };
        match text(slice, "/spec/nodeName") == self.node {
            true => Ok(()),
            false => {
                self.refuse(format!("can only {verb} ResourceSlice with the same NodeName as the requesting node"))
            }
        }
    }
}

/// The labels that differ and that a kubelet may not set.
fn changed_labels(old: &Value, new: &Value) -> Vec<String> {
    let labels = |object: &'_ Value| -> Vec<(String, Value)> {
        map(object, "/metadata/labels").map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let (before, after) = (labels(old), labels(new));
    let changed = |all: &[(String, Value)], others: &[(String, Value)]| -> Vec<String> {
        all.iter().filter(|label| !others.contains(label)).map(|(key, _)| key.clone()).collect()
    };
    let mut keys = changed(&before, &after);
    keys.extend(changed(&after, &before));
    keys.retain(|key| !is_kubelets(key));
    keys.sort();
    keys.dedup();
    keys
}

/// Whether a kubelet may set a label: those outside of Kubernetes' domains, its own, and those of a list.
fn is_kubelets(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return true };
    let below = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
    // Above all, what keeps pods of others away from a node.
    if below("node-restriction.kubernetes.io") {
        return false;
    }
    if !below("kubernetes.io") && !below("k8s.io") {
        return true;
    }
    KUBELET_LABELS.contains(&key) || KUBELET_DOMAINS.iter().any(|parent| below(parent))
}

fn map<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::serviceaccounts::tests::Fixture;
    use crate::user::User;

    async fn ask(what: &str, object: Value, old: Option<Value>) -> Result<(), String> {
        let parts: Vec<&str> = what.split(' ').collect();
        let (plural, subresource) = parts[1].split_once('/').unwrap_or((parts[1], ""));
        let (plural, group) = plural.split_once('.').unwrap_or((plural, ""));
        let (namespace, name) = parts[2].split_once('/').unwrap_or(("", parts[2]));
        let world = Fixture::with(&[
            ("nodes", json!({"metadata": {"name": "n1", "uid": "nu"}})),
            ("pods", json!({"metadata": {"name": "web", "namespace": "ns", "uid": "pu"}, "spec": {"nodeName": "n1"}})),
            ("pods", json!({"metadata": {"name": "far", "namespace": "ns", "uid": "fu"}, "spec": {"nodeName": "n2"}})),
        ]);
        let operation = match parts[0] {
            "create" | "token" => Operation::Create,
            "update" => Operation::Update,
            _ => Operation::Delete,
        };
        let user = User::new("system:node:n1", ["system:nodes"]);
        let context = AdmissionContext {
            operation,
            resource: bayplan_kinds::find(group, "v1", plural).unwrap(),
            subresource,
            namespace,
            name,
            requested_name: if parts[0] == "create" { "" } else { name },
            user: &user,
            dry_run: false,
            warnings: &crate::warnings::Warnings::default(),
            objects: &world,
            metrics: None,
            authorizer: &crate::authz::Authorizer::default(),
        };
        let judged = match parts[0] {
            "token" => admit_token(&context, &object).await,
            _ => admit(&context, &object, old.as_ref()).await,
        };
        judged.map_err(|status| status.message)
    }

    fn mirror(change: Value) -> Value {
        let mut pod = json!({
            "metadata": {
                "name": "static", "annotations": {MIRROR_NAME: "x"},
                "ownerReferences":
                    [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "nu", "controller": true}],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
        });
        pod["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        pod
    }

    #[tokio::test]
    async fn a_kubelet_shows_and_removes_the_pods_of_its_own_node() {
        assert_eq!(ask("create pods ns/static", mirror(json!({})), None).await, Ok(()));
        let mut foreign = mirror(json!({}));
        foreign["metadata"]["ownerReferences"][0]["uid"] = "old".into();
        let plain = json!({"metadata": {"name": "x"}, "spec": {"nodeName": "n1"}});
        for (pod, why) in [
            (plain, "can only create mirror pods"),
            (mirror(json!({"nodeName": "n2"})), "spec.nodeName set to itself"),
            (mirror(json!({"serviceAccountName": "admin"})), "reference a service account"),
            (mirror(json!({"volumes": [{"secret": {"secretName": "s"}}]})), "reference secrets"),
            (mirror(json!({"volumes": [{"configMap": {"name": "s"}}]})), "reference configmaps"),
            (mirror(json!({"volumes": [{"persistentVolumeClaim": {}}]})), "reference persistentvolumeclaims"),
            (mirror(json!({"containers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]})), "reference secrets"),
            (foreign, "UID mismatch"),
        ] {
            let refusal = ask("create pods ns/static", pod, None).await.unwrap_err();
            assert!(refusal.contains(why), "{refusal}");
        }
        let on = |node: &str| json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": node}, "status": {}});
        assert_eq!(ask("delete pods ns/web", Value::Null, Some(on("n1"))).await, Ok(()));
        assert!(ask("delete pods ns/far", Value::Null, Some(on("n2"))).await.is_err());
        assert_eq!(ask("update pods/status ns/web", on("n1"), Some(on("n1"))).await, Ok(()));
        assert!(ask("update pods/status ns/far", on("n2"), Some(on("n2"))).await.is_err());
        let mut labelled = on("n1");
        labelled["metadata"]["labels"] = json!({"a": "c"});
        assert!(ask("update pods/status ns/web", labelled, Some(on("n1"))).await.unwrap_err().contains("labels"));
        assert!(ask("update pods ns/web", on("n1"), Some(on("n1"))).await.is_err());
    }

    #[tokio::test]
    async fn a_kubelet_changes_its_own_node_but_not_its_taints_and_not_every_label() {
        let node = |labels: Value, taints: Value| {
            let metadata = json!({"name": "n1", "labels": labels});
            json!({"metadata": metadata, "spec": {"taints": taints}})
        };
        let plain = || node(json!({}), json!([]));
        assert_eq!(
            ask("create nodes n1", node(json!({"kubernetes.io/os": "linux", "x": "y"}), json!([])), None).await,
            Ok(())
        );
        assert_eq!(ask("update nodes/status n1", plain(), Some(plain())).await, Ok(()));
        assert!(ask("update nodes n2", plain(), Some(plain())).await.unwrap_err().contains("modify node \"n2\""));
        let tainted = node(json!({}), json!([{"key": "a", "effect": "NoSchedule"}]));
        assert!(ask("update nodes n1", tainted, Some(plain())).await.unwrap_err().contains("modify taints"));
        for label in ["node-restriction.kubernetes.io/team", "kubernetes.io/other", "node-role.kubernetes.io/master"] {
            let mut labels = json!({});
            labels[label] = "x".into();
            let refusal = ask("update nodes n1", node(labels, json!([])), Some(plain())).await.unwrap_err();
            assert!(refusal.contains(label), "{refusal}");
        }
    }

    #[tokio::test]
    async fn leases_csi_nodes_slices_and_tokens_are_those_of_the_node() {
        let named = |name: &str| json!({"metadata": {"name": name}, "spec": {"nodeName": name}});
        let token = |kind: &str, name: &str, uid: &str| {
            let bound = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
            json!({"spec": {"boundObjectRef": bound}})
        };
        for (what, object, allowed) in [
            ("create leases.coordination.k8s.io kube-node-lease/n1", named("n1"), true),
            ("create leases.coordination.k8s.io kube-node-lease/n2", named("n2"), false),
            ("create leases.coordination.k8s.io kube-system/n1", named("n1"), false),
            ("create csinodes.storage.k8s.io n1", named("n1"), true),
            ("create csinodes.storage.k8s.io n2", named("n2"), false),
            ("create resourceslices.resource.k8s.io x", named("n1"), true),
            ("create resourceslices.resource.k8s.io x", named("n2"), false),
            ("token serviceaccounts/token ns/robot", token("Pod", "web", "pu"), true),
            ("token serviceaccounts/token ns/robot", token("Pod", "web", "old"), false),
            ("token serviceaccounts/token ns/robot", token("Pod", "far", "fu"), false),
            ("token serviceaccounts/token ns/robot", token("Secret", "web", "pu"), false),
            ("token serviceaccounts/token ns/robot", json!({"spec": {}}), false),
        ] {
            assert_eq!(ask(what, object.clone(), None).await.is_ok(), allowed, "{what} {object}");
        }
    }
}
