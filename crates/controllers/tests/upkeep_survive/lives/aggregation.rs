//! ClusterRoles that are made of others: each has exactly the rules of those it selects, over two tiers.

use std::sync::Arc;

use bayplan_controllers::{ClusterRoleAggregationController, Kind};
use bayplan_testkit::Rng;
use serde_json::{Value, json};

use super::{Edit, Life, anything, name, nobody, silent};
use crate::server::Server;

const ROLES: &str = "clusterroles";

pub(super) const LIFE: Life = Life {
    name: "clusterrole-aggregation",
    kinds: &[Kind::ClusterRole],
    controller: |cache| Arc::new(ClusterRoleAggregationController::new(cache)),
    stages: &[first_roles, labels_move, rules_change, somebody_writes_over_them, roles_go],
    report: silent,
    others: nobody,
    edit,
    assert_always: anything,
    assert_kept,
};

fn rule(resource: &str) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]})
}

fn role(name: &str, labels: Value, resources: &[&str]) -> Value {
    let rules: Vec<Value> = resources.iter().map(|resource| rule(resource)).collect();
    json!({"metadata": {"name": name, "labels": labels}, "rules": rules})
}

fn made_of(name: &str, labels: Value, selectors: &[Value]) -> Value {
    let selectors: Vec<Value> = selectors.iter().map(|labels| json!({"matchLabels": labels})).collect();
    json!({"metadata": {"name": name, "labels": labels}, "aggregationRule": {"clusterRoleSelectors": selectors}})
}

fn first_roles(server: &Server) {
    let all = [
        made_of("view", json!({"to": "edit"}), &[json!({"to": "view"})]),
        made_of("edit", json!({}), &[json!({"to": "edit"}), json!({"also": "edit"})]),
        role("a", json!({"to": "view"}), &["pods", "nodes"]),
        role("b", json!({"to": "view", "also": "edit"}), &["nodes", "secrets"]),
        role("c", json!({"also": "edit"}), &["leases"]),
        role("d", json!({}), &["events"]),
    ];
    all.into_iter().for_each(|role| server.put(ROLES, role));
}

fn labels_move(server: &Server) {
    server.edit(ROLES, "b", |role| role["metadata"]["labels"] = json!({}));
    server.edit(ROLES, "d", |role| role["metadata"]["labels"] = json!({"to": "view"}));
}

fn rules_change(server: &Server) {
    server.edit(ROLES, "a", |role| role["rules"] = json!([rule("services")]));
    server.edit(ROLES, "c", |role| role["rules"] = json!([]));
}

fn somebody_writes_over_them(server: &Server) {
    for name in ["view", "edit"] {
        server.edit(ROLES, name, |role| role["rules"] = json!([rule("everything")]));
    }
}

fn roles_go(server: &Server) {
    for name in ["a", "d"] {
        server.remove(ROLES, name);
    }
}

fn edit(rng: &mut Rng) -> Edit {
    let leaf = *rng.pick(&["a", "b", "c", "d"]);
    let labels = rng.pick(&[json!({}), json!({"to": "view"}), json!({"also": "edit"})]).clone();
    let resource = *rng.pick(&["pods", "nodes", "leases"]);
    match rng.below(5) {
        0 => Box::new(move |server| server.remove(ROLES, leaf)),
        1 => Box::new(move |server| server.edit(ROLES, leaf, |role| role["rules"] = json!([rule(resource)]))),
        2 => Box::new(move |server| server.edit(ROLES, "view", |role| role["rules"] = json!([rule(resource)]))),
        3 => Box::new(move |server| server.edit(ROLES, leaf, |role| role["metadata"]["labels"] = labels.clone())),
        _ => Box::new(move |server| {
            if server.find(ROLES, leaf).is_none() {
                server.put(ROLES, role(leaf, labels.clone(), &[resource, "pods"]));
            }
        }),
    }
}

/// Whether a role has the one label that a selector asks for.
fn selects(selector: &Value, role: &Value) -> bool {
    let asked = selector["matchLabels"].as_object().unwrap();
    asked.iter().all(|(label, value)| role["metadata"]["labels"][label] == *value)
}

fn assert_kept(server: &Server, when: &str) {
    let roles = server.objects(ROLES);
    for role in roles.iter().filter(|role| !role["aggregationRule"].is_null()) {
        let mut expected: Vec<&Value> = Vec::new();
        for selector in role["aggregationRule"]["clusterRoleSelectors"].as_array().unwrap() {
            for other in roles.iter().filter(|other| name(other) != name(role) && selects(selector, other)) {
                for rule in other["rules"].as_array().into_iter().flatten() {
                    if !expected.contains(&rule) {
                        expected.push(rule);
                    }
                }
            }
        }
        let rules: Vec<&Value> = role["rules"].as_array().into_iter().flatten().collect();
        assert_eq!(rules, expected, "{when}: rules of {}", name(role));
    }
}
