use serde_json::{Value, json};

use super::*;
use crate::script::{Script, refused};

fn rule(resource: &str) -> Value {
    json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]})
}

fn role(name: &str, labels: Value, rules: Vec<Value>) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "rules": rules})
}

fn cluster(rules: Value) -> (ClusterRoleAggregationController, Vec<Wakeup>) {
    let cache = Arc::new(Cache::default());
    let controller = ClusterRoleAggregationController::new(cache.clone());
    let selectors = json!([{"matchLabels": {"to": "all"}}, {"matchLabels": {"too": "all"}}]);
    let all = json!({
        "metadata": {"name": "all", "labels": {"to": "all"}},
        "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": rules,
    });
    let mut woken = Vec::new();
    for object in [
        all,
        role("b", json!({"to": "all"}), vec![rule("pods"), rule("nodes")]),
        role("a", json!({"too": "all"}), vec![rule("secrets"), rule("pods")]),
        role("c", json!({}), vec![rule("leases")]),
    ] {
        let change = cache.set(Kind::ClusterRole, object.to_string().as_bytes()).unwrap();
        woken = controller.observe(&change);
    }
    (controller, woken)
}

#[test]
fn a_role_gets_each_rule_of_those_it_selects_once() {
    let (controller, woken) = cluster(json!(null));
    assert_eq!(woken, [Wakeup::now("all")]);
    let rules = json!([rule("pods"), rule("nodes"), rule("secrets")]);
    let cases = [
        ("written", Ok(json!({"metadata": {}})), true),
        ("gone", refused(404), true),
        ("refused", refused(500), false),
    ];
    for (case, answer, is_done) in cases {
        let step = ("MERGE-PATCH clusterroles/all", json!({"rules": rules}), answer);
        assert_eq!(Script::new(case, [step]).play(&controller, "all").is_ok(), is_done, "{case}");
    }
}

#[test]
fn rules_that_are_right_and_roles_of_their_own_are_left_alone() {
    let (controller, _) = cluster(json!([rule("pods"), rule("nodes"), rule("secrets")]));
    for key in ["all", "a", "absent"] {
        assert_eq!(Script::new("left alone", []).play(&controller, key).unwrap(), Requeue::OnChange);
    }
}

#[test]
fn a_role_that_selects_none_any_more_loses_its_rules() {
    let cache = Arc::new(Cache::default());
    let all = json!({"metadata": {"name": "all"}, "aggregationRule": {}, "rules": [rule("pods")]});
    cache.set(Kind::ClusterRole, all.to_string().as_bytes()).unwrap();
    let controller = ClusterRoleAggregationController::new(cache);
    let step = ("MERGE-PATCH clusterroles/all", json!({"rules": null}), Ok(json!({"metadata": {}})));
    Script::new("emptied", [step]).play(&controller, "all").unwrap();
}
