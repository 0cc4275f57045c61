//! Device selectors, and what a kube-apiserver v1.36 answers to them.

use serde_json::{Value, json};

use super::{device_class, resource_claim, resource_claim_template};
use crate::field::ErrorList;
use crate::kind::Kind;

/// Four loops around a pattern that each round makes anew.
const ATTACK: &str = concat!(
    "[0,1,2,3,4,5,6,7,8,9].exists(a, [0,1,2,3,4,5,6,7,8,9].exists(b, [0,1,2,3,4,5,6,7,8,9].exists(e, ",
    "[0,1,2,3,4,5,6,7,8,9].exists(f, ",
    "device.attributes[\"d.example\"].t.matches(\"(a{0,60}){0,30}c\" + string(a+b+e+f))))))",
);

fn cel(expression: &str) -> Value {
    json!({"cel": {"expression": expression}})
}

fn attack() -> Value {
    cel(ATTACK)
}

fn claim(selectors: Value) -> Value {
    let exactly = json!({"deviceClassName": "x", "selectors": selectors});
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "d"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    })
}

fn template(selectors: Value) -> Value {
    let mut template = claim(selectors);
    template["kind"] = "ResourceClaimTemplate".into();
    template["spec"] = json!({"spec": template["spec"]});
    template
}

fn class(selectors: Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "d"},
        "spec": {"selectors": selectors},
    })
}

fn created(kind: &Kind, object: &Value) -> Vec<String> {
    let namespaced = object["kind"] != "DeviceClass";
    let mut object = object.clone();
    kind.default(&mut object);
    kind.validation
        .create(namespaced, ErrorList::default(), &object)
        .iter()
        .map(|error| format!("{} {error}", error.reason))
        .collect()
}

fn updated(kind: &Kind, object: &Value, old: &Value) -> Vec<String> {
    let namespaced = object["kind"] != "DeviceClass";
    kind.validation
        .update(namespaced, ErrorList::default(), "", object, old)
        .iter()
        .map(|error| format!("{} {error}", error.reason))
        .collect()
}

const EXACTLY: &str = "spec.devices.requests[0].exactly.selectors";

#[test]
fn selectors_of_claims_are_refused_as_upstream_refuses_them() {
    let all = [
        (json!([attack()]), vec!["FieldValueForbidden [0].cel.expression: Forbidden: too complex, exceeds cost limit"]),
        (
            json!([cel("devise.driver == \"x\"")]),
            vec![
                "FieldValueInvalid [0].cel.expression: Invalid value: \"devise.driver == \\\"x\\\"\": compilation \
                 failed: ERROR: <input>:1:1: undeclared reference to 'devise' (in container '')\n | devise.driver == \
                 \"x\"\n | ^",
            ],
        ),
        (
            json!([cel("device.driver")]),
            vec![
                "FieldValueInvalid [0].cel.expression: Invalid value: \"device.driver\": must evaluate to bool or the \
                 unknown type, not string",
            ],
        ),
        (
            json!([cel("")]),
            vec![
                "FieldValueInvalid [0].cel.expression: Invalid value: \"\": compilation failed: ERROR: <input>:1:0: \
                 Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', \
                 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
            ],
        ),
        (json!([{}]), vec!["FieldValueRequired [0].cel: Required value"]),
        (
            json!([cel(&format!("true{}", " ".repeat(10240)))]),
            vec!["FieldValueTooLong [0].cel.expression: Too long: may not be more than 10240 bytes"],
        ),
        (json!([cel(&format!("true{}", " ".repeat(10236)))]), vec![]),
        (
            json!([cel("device.driver.find(\"(\") == \"\"")]),
            vec![
                "InternalError [0].cel.expression: Internal error: program instantiation failed: error parsing regexp: \
                 missing closing ): `(`",
            ],
        ),
        (json!(vec![cel("true"); 33]), vec!["FieldValueTooMany : Too many: 33: must have at most 32 items"]),
        (
            json!([cel("true"), cel("1"), cel("2")]),
            vec![
                "FieldValueInvalid [1].cel.expression: Invalid value: \"1\": must evaluate to bool or the unknown \
                 type, not int",
                "FieldValueInvalid [2].cel.expression: Invalid value: \"2\": must evaluate to bool or the unknown \
                 type, not int",
            ],
        ),
        (json!([cel("device.driver == \"x\"")]), vec![]),
    ];
    for (selectors, expected) in all {
        let at =
            |path: &str| expected.iter().map(|error| error.replacen(' ', &format!(" {path}"), 1)).collect::<Vec<_>>();
        assert_eq!(created(&resource_claim::KIND, &claim(selectors.clone())), at(EXACTLY));
        let of_template = created(&resource_claim_template::KIND, &template(selectors.clone()));
        assert_eq!(of_template, at(&format!("spec.{EXACTLY}")));
        assert_eq!(created(&device_class::KIND, &class(selectors)), at("spec.selectors"));
    }
}

#[test]
fn alternatives_are_checked_and_counted() {
    let mut object = claim(json!([]));
    let alternative =
        |name: &str, selectors: Value| json!({"name": name, "deviceClassName": "x", "selectors": selectors});
    object["spec"]["devices"]["requests"] =
        json!([{"name": "r", "firstAvailable": [alternative("a", json!([cel("nope")]))]}]);
    assert_eq!(
        created(&resource_claim::KIND, &object),
        ["FieldValueInvalid spec.devices.requests[0].firstAvailable[0].selectors[0].cel.expression: Invalid value: \
             \"nope\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n \
             | nope\n | ^"]
    );
    let nine: Vec<Value> = (0..9).map(|i| alternative(&format!("a{i}"), json!([]))).collect();
    object["spec"]["devices"]["requests"] = json!([{"name": "r", "firstAvailable": nine}]);
    let too_many = "FieldValueTooMany spec.devices.requests[0].firstAvailable: Too many: 9: must have at most 8 items";
    assert_eq!(created(&resource_claim::KIND, &object), [too_many]);
    let requests: Vec<Value> =
        (0..33).map(|i| json!({"name": format!("r{i}"), "exactly": {"deviceClassName": "x"}})).collect();
    object["spec"]["devices"]["requests"] = requests.into();
    let too_many = "FieldValueTooMany spec.devices.requests: Too many: 33: must have at most 32 items";
    assert_eq!(created(&resource_claim::KIND, &object), [too_many]);
}

#[test]
fn the_spec_of_a_claim_cannot_be_changed() {
    let with_version = |mut object: Value| {
        object["metadata"]["resourceVersion"] = "1".into();
        object
    };
    let (old, new) = (with_version(claim(json!([cel("true")]))), with_version(claim(json!([attack()]))));
    let errors = updated(&resource_claim::KIND, &new, &old);
    assert!(errors.len() == 1 && errors[0].ends_with("field is immutable"), "{errors:?}");
    // What was stored before it was checked stays as it is.
    assert_eq!(updated(&resource_claim::KIND, &new, &new), Vec::<String>::new());
    let (old, new) = (with_version(template(json!([cel("true")]))), with_version(template(json!([attack()]))));
    let errors = updated(&resource_claim_template::KIND, &new, &old);
    assert!(errors.len() == 1 && errors[0].ends_with("field is immutable"), "{errors:?}");
}

#[test]
fn what_is_newer_than_the_version_before_is_for_stored_selectors() {
    let includes = cel(r#"device.attributes["a"].b.includes("x")"#);
    let mut object = class(json!([includes]));
    object["metadata"]["resourceVersion"] = "1".into();
    let errors = created(&device_class::KIND, &object);
    assert!(errors.len() == 1 && errors[0].contains("undeclared reference to 'includes'"), "{errors:?}");
    assert_eq!(updated(&device_class::KIND, &object, &object), Vec::<String>::new());
    let mut changed = object.clone();
    changed["spec"]["selectors"] = json!([includes, cel("true")]);
    assert_eq!(updated(&device_class::KIND, &changed, &object).len(), 1);
}
