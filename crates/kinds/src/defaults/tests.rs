//! Defaults that the recorded answers do not reach.

use serde_json::json;

use super::*;

#[test]
fn the_pull_policy_follows_the_tag() {
    let cases = [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.25", "IfNotPresent"),
        ("registry.example.com:5000/a/b", "Always"),
        ("registry.example.com:5000/a/b:v1", "IfNotPresent"),
        ("a@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097", "IfNotPresent"),
        ("a:latest@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097", "Always"),
        ("Not A Reference", "IfNotPresent"),
        ("", "IfNotPresent"),
    ];
    for (image, want) in cases {
        assert_eq!(pod::pull_policy(image), want, "{image}");
    }
}

#[test]
fn defaulting_twice_changes_nothing() {
    let kind = Kind { group: "", version: "v1", kind: "Pod" };
    let mut once = json!({
        "metadata": {}, "status": {},
        "spec": { "hostNetwork": true, "serviceAccount": "robot", "containers": [
            { "name": "c", "ports": [{ "containerPort": 80 }], "resources": { "limits": { "cpu": "100u" } } },
        ] },
    });
    apply_kind(kind, &mut once);
    assert_eq!(once["spec"]["serviceAccountName"], "robot");
    assert_eq!(once["spec"]["containers"][0]["ports"][0]["hostPort"], 80);
    assert_eq!(once["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1m");
    let mut twice = once.clone();
    apply_kind(kind, &mut twice);
    assert_eq!(once, twice);
}
