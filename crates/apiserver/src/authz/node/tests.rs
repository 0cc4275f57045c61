//! What kubelets may do, by the table of upstream's rules.

use serde_json::{Value, json};

use super::*;
use crate::authz::{AuthorizationMode, Authorizer};
use crate::request::Verb;

fn pod() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {
            "nodeName": "n1",
            "serviceAccountName": "robot",
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{
                "env": [
                    {"valueFrom": {"secretKeyRef": {"name": "env"}}},
                    {"valueFrom": {"configMapKeyRef": {"name": "env"}}},
                ],
                "envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "from"}}],
            }],
            "volumes": [
                {"name": "a", "secret": {"secretName": "volume"}},
                {"name": "b", "configMap": {"name": "volume"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "d", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "e", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "csi"}}},
                {"name": "f",
                 "projected": {"sources": [{"secret": {"name": "part"}}, {"configMap": {"name": "part"}}]}},
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        },
        "status": {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made"}]},
    })
}

fn graph() -> NodeGraph {
    let csi = json!({"driver": "x", "nodeStageSecretRef": {"name": "stage", "namespace": "storage"},
                     "controllerPublishSecretRef": {"name": "controller", "namespace": "storage"}});
    let claim = json!({"namespace": "ns", "name": "data"});
    NodeGraph::of(&[
        ("pods", pod()),
        ("persistentvolumes", json!({"metadata": {"name": "pv"}, "spec": {"claimRef": claim, "csi": csi}})),
        ("volumeattachments", json!({"metadata": {"name": "va"}, "spec": {"nodeName": "n1"}})),
        ("resourceslices", json!({"metadata": {"name": "slice"}, "spec": {"nodeName": "n1"}})),
    ])
}

/// Asks as the kubelet of a node: `verb resource[.group][/subresource] [namespace/]name [fieldSelector]`.
fn ask(graph: &NodeGraph, node: &str, question: &str) -> Decision {
    let parts: Vec<&str> = question.split(' ').collect();
    let (resource, subresource) = parts[1].split_once('/').unwrap_or((parts[1], ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (namespace, name) = parts.get(2).unwrap_or(&"").split_once('/').unwrap_or(("", parts.get(2).unwrap_or(&"")));
    let user = User::new(format!("system:node:{node}"), [GROUP]);
    let verb = Verb::from(parts[0]);
    let action = Action::Resource { group, resource, subresource, name, namespace };
    let field_selector = parts.get(3).copied().unwrap_or_default();
    authorize(graph, &Attributes { user: &user, verb: &verb, action, field_selector })
}

#[test]
fn a_kubelet_may_what_the_pods_of_its_node_need_and_another_nodes_may_not() {
    let graph = graph();
    for question in [
        "get secrets ns/pull",
        "list secrets ns/env",
        "watch secrets ns/from",
        "get secrets ns/volume",
        "get secrets ns/csi",
        "get secrets ns/part",
        "get secrets storage/stage",
        "get configmaps ns/env",
        "get configmaps ns/from",
        "get configmaps ns/volume",
        "get configmaps ns/part",
        "get persistentvolumeclaims ns/data",
        "get persistentvolumeclaims ns/web-d",
        "patch persistentvolumeclaims/status ns/data",
        "get persistentvolumes pv",
        "get volumeattachments.storage.k8s.io va",
        "get resourceclaims.resource.k8s.io ns/gpu",
        "get resourceclaims.resource.k8s.io ns/made",
        "delete resourceslices.resource.k8s.io slice",
        "create serviceaccounts/token ns/robot",
        "get serviceaccounts ns/robot",
        "get pods ns/web",
    ] {
        assert!(ask(&graph, "n1", question).allowed, "{question}");
        let other = ask(&graph, "n2", question);
        assert_eq!(other.reason, "no relationship found between node 'n2' and this object", "{question}");
        assert!(!other.allowed);
    }
    // With its pod go the rights.
    graph.remove("pods", &pod());
    assert!(!ask(&graph, "n1", "get secrets ns/pull").allowed);
    assert!(!ask(&graph, "n1", "get persistentvolumes pv").allowed);
}

#[test]
fn a_kubelet_may_nothing_else() {
    let graph = graph();
    for (question, why) in [
        ("get secrets ns/other", "no relationship found"),
        ("get secrets storage/controller", "no relationship found"),
        ("list secrets ns/", "No Object name found"),
        ("list secrets", "can only read namespaced object of this type"),
        ("delete secrets ns/pull", "can only read resources of this type"),
        ("list persistentvolumes", "can only get individual resources of this type"),
        ("update persistentvolumeclaims ns/data", "can only get individual resources of this type"),
        ("create serviceaccounts/token ns/other", "no relationship found"),
        ("get leases.coordination.k8s.io kube-node-lease/n2", "same name as the requesting node"),
        ("get leases.coordination.k8s.io kube-system/n1", "\"kube-node-lease\" system namespace"),
        ("list leases.coordination.k8s.io kube-node-lease/", "can only get, create, update, patch, or delete"),
        ("get csinodes.storage.k8s.io n2", "same name as the requesting node"),
        ("list pods", "can only list/watch pods with spec.nodeName field selector"),
        ("list pods / spec.nodeName=n2", "can only list/watch pods with spec.nodeName field selector"),
        ("list resourceslices.resource.k8s.io / spec.nodeName=n2", "with nodeName field selector"),
        ("get nodes n2", "node 'n1' cannot read 'n2', only its own Node object"),
        ("list nodes", "only its own Node object"),
        ("delete nodes n1", ""),
        ("list namespaces", ""),
        ("create pods/binding ns/web", ""),
    ] {
        let decision = ask(&graph, "n1", question);
        assert!(!decision.allowed && decision.reason.contains(why), "{question}: {decision:?}");
    }
    for question in [
        "update leases.coordination.k8s.io kube-node-lease/n1",
        "create leases.coordination.k8s.io kube-node-lease/",
        "create csinodes.storage.k8s.io",
        "patch csinodes.storage.k8s.io n1",
        "list pods / spec.nodeName=n1",
        "watch resourceslices.resource.k8s.io / spec.nodeName=n1",
        "list nodes n1",
        "patch nodes/status n1",
        "create pods/eviction ns/web",
        "create events default/",
        "list services",
        "create tokenreviews.authentication.k8s.io",
    ] {
        assert!(ask(&graph, "n1", question).allowed, "{question}");
    }
}

#[test]
fn only_a_member_of_the_nodes_is_a_kubelet() {
    let graph = graph();
    let verb = Verb::Get;
    let action = Action::Resource { group: "", resource: "secrets", subresource: "", name: "pull", namespace: "ns" };
    let request = |user: &User| authorize(&graph, &Attributes { user, verb: &verb, action, field_selector: "" });
    assert!(request(&User::new("system:node:n1", [GROUP])).allowed);
    assert!(!request(&User::new("system:node:n1", ["others"])).allowed);
    assert!(!request(&User::new("n1", [GROUP])).allowed);
    assert!(request(&User::new("system:node:", [GROUP])).reason.contains("unknown node"));
}

#[test]
fn a_mirror_pod_gives_no_rights_and_a_moved_pod_takes_them_along() {
    let graph = NodeGraph::default();
    let mut mirror = pod();
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    graph.put("pods", &mirror);
    assert!(ask(&graph, "n1", "get pods ns/web").allowed);
    assert!(!ask(&graph, "n1", "get secrets ns/pull").allowed);
    let mut moved = pod();
    moved["spec"]["nodeName"] = "n2".into();
    graph.put("pods", &moved);
    assert!(ask(&graph, "n2", "get secrets ns/pull").allowed && !ask(&graph, "n1", "get pods ns/web").allowed);
    moved["spec"]["nodeName"] = "".into();
    graph.put("pods", &moved);
    assert!(graph.is_empty());
}

#[test]
fn modes_are_asked_in_turn_and_what_none_allows_says_why() {
    let kubelet = User::new("system:node:n1", [GROUP]);
    let verb = Verb::Get;
    let action = Action::Resource { group: "", resource: "secrets", subresource: "", name: "x", namespace: "ns" };
    let request = Attributes { user: &kubelet, verb: &verb, action, field_selector: "" };
    for (modes, allowed, why) in [
        (vec![AuthorizationMode::Node, AuthorizationMode::Rbac], false, "no relationship found"),
        (vec![AuthorizationMode::Node, AuthorizationMode::AlwaysAllow], true, ""),
        (vec![AuthorizationMode::AlwaysDeny], false, "Everything is forbidden."),
        (vec![], false, ""),
    ] {
        let decision = Authorizer::new(Default::default(), modes.clone()).authorize(&request);
        assert!(decision.allowed == allowed && decision.reason.contains(why), "{modes:?}: {decision:?}");
    }
}
