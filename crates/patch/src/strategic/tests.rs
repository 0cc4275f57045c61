use super::*;
use bayplan_model::schema::Schema;
use serde_json::json;

fn pod(original: Value, patch: Value) -> Result<Value, Error> {
    apply(original, &patch, Schema::get().definition("", "v1", "Pod").unwrap())
}

#[track_caller]
fn check(original: Value, patch: Value, result: Value) {
    assert_eq!(pod(original, patch), Ok(result));
}

#[track_caller]
fn check_error(original: Value, patch: Value, error: &str) {
    assert_eq!(pod(original, patch).unwrap_err().to_string(), error);
}

#[test]
fn maps_merge_and_null_deletes() {
    check(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}, "name": "x"}}),
        json!({"metadata": {"labels": {"a": null, "c": "3"}, "gone": null}}),
        json!({"metadata": {"labels": {"b": "2", "c": "3"}, "name": "x"}}),
    );
}

#[test]
fn containers_merge_by_name_and_new_ones_come_first() {
    check(
        json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}}),
        json!({"spec": {"containers": [{"name": "c", "image": "3"}, {"name": "b", "image": "4"}]}}),
        json!({"spec": {"containers": [
            {"name": "c", "image": "3"}, {"name": "a", "image": "1"}, {"name": "b", "image": "4"},
        ]}}),
    );
}

#[test]
fn lists_without_strategy_are_replaced() {
    check(
        json!({"spec": {"tolerations": [{"key": "a"}], "nodeName": "n"}}),
        json!({"spec": {"tolerations": [{"key": "b"}]}}),
        json!({"spec": {"tolerations": [{"key": "b"}], "nodeName": "n"}}),
    );
    let node = Schema::get().definition("", "v1", "Node").unwrap();
    let result = apply(json!({"spec": {"taints": [{"key": "a"}]}}), &json!({"spec": {"taints": [{"key": "b"}]}}), node);
    assert_eq!(result, Ok(json!({"spec": {"taints": [{"key": "b"}]}})));
}

#[test]
fn elements_are_deleted_and_lists_replaced_by_directive() {
    let original = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
    check(
        original.clone(),
        json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
        json!({"spec": {"containers": [{"name": "b"}]}}),
    );
    check(
        original,
        json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}}),
        json!({"spec": {"containers": [{"name": "c"}]}}),
    );
}

#[test]
fn scalars_merge_as_a_set_and_are_deleted_by_the_parallel_list() {
    check(
        json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"], "finalizers": ["d", "a"]}}),
        json!({"metadata": {"finalizers": ["d", "a", "c"]}}),
    );
}

#[test]
fn the_element_order_is_set() {
    check(
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}}),
        json!({"spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [{"name": "c", "tty": true}],
        }}),
        json!({"spec": {"containers": [{"name": "b"}, {"name": "c", "tty": true}, {"name": "a"}]}}),
    );
}

#[test]
fn keys_that_are_not_retained_go() {
    check(
        json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
        json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}),
        json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
    );
}

#[test]
fn errors_have_upstreams_words() {
    let original = json!({"metadata": {"name": "x", "labels": {}}, "spec": {"containers": [{"name": "a"}]}});
    for (patch, error) in [
        (json!({"$patch": "jump"}), "unknown patch type: jump in map: map[$patch:jump]"),
        (json!({"$patch": 1.5e30}), "unknown patch type: %!s(float64=1.5e+30) in map: map[$patch:1.5e+30]"),
        (
            json!({"spec": {"containers": [{"tty": true}]}}),
            "map: map[tty:true] does not contain declared merge key: name",
        ),
        (json!({"spec": {"containers": [{"$patch": "merge"}]}}), "merging lists cannot yet be specified in the patch"),
        (json!({"metadata": {"$retainKeys": ["labels"], "name": "y"}}), "invalid patch format of retainKeys"),
        (json!({"spec": {"$setElementOrder/containers": 1}}), "expected a []interface {}, but received a int64"),
        (json!({"spec": {"$setElementOrder": []}}), "invalid patch format of setElementOrder list"),
        (json!({"spec": {"$deleteFromPrimitiveList": []}}), "invalid patch format of primitive list"),
        (
            json!({"spec": {"$setElementOrder/jump": []}}),
            "unable to find api field in struct PodSpec for the json field \"jump\"",
        ),
        (json!({"spec": {"containers": ["a"]}}), "list element types are not identical: [[map[name:a]] [a]]"),
    ] {
        check_error(original.clone(), patch, error);
    }
    check_error(json!({}), json!([]), "invalid JSON document");
}

#[test]
fn null_elements_are_an_error_not_a_panic() {
    check_error(
        json!({"metadata": {"finalizers": ["a"]}}),
        json!({"metadata": {"finalizers": [null]}}),
        "list element types are not identical: [[a] [<nil>]]",
    );
}

#[test]
fn a_patch_that_names_one_element_again_and_again_is_refused() {
    let variable = |number: usize| json!({"name": "c", "env": [{"name": format!("v{number}"), "value": ""}]});
    let patch = |count: usize| json!({"spec": {"containers": (0..count).map(variable).collect::<Vec<_>>()}});
    let original = json!({"spec": {"containers": [{"name": "c", "env": [{"name": "v", "value": ""}]}]}});
    let merged = pod(original.clone(), patch(100)).unwrap();
    assert_eq!(merged["spec"]["containers"][0]["env"].as_array().map(Vec::len), Some(101));
    let refused = pod(original.clone(), patch(5_000)).unwrap_err();
    assert_eq!((refused.clone(), refused.fault()), (Error::TooManyPasses, Fault::TooCostly));
    // As many variables of one container that is named once are no trouble.
    let variables: Vec<Value> = (0..5_000).map(|number| json!({"name": format!("v{number}"), "value": ""})).collect();
    assert!(pod(original, json!({"spec": {"containers": [{"name": "c", "env": variables}]}})).is_ok());
}

#[test]
fn a_patch_is_printed_as_go_prints_it() {
    let patch = json!({"spec": {"replicas": "many", "list": [1, null]}, "a": true});
    assert_eq!(printed(&patch), "map[a:true spec:map[list:[1 <nil>] replicas:many]]");
}
