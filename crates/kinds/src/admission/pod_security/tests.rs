use serde_json::json;

use super::*;

const LATEST: Version = Version::Latest;

fn found(level: Level, version: Version, spec: &Value) -> String {
    in_full(&violations(LevelVersion { level, version }, &Value::Null, spec))
}

fn restricted_container() -> Value {
    json!({"name": "a", "securityContext": {
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }})
}

#[test]
fn baseline_forbids_ways_out_of_the_container() {
    let cases = [
        (json!({"containers": [{"name": "a"}]}), ""),
        (json!({"hostNetwork": true, "hostIPC": true}), "host namespaces (hostNetwork=true, hostIPC=true)"),
        (
            json!({
                "initContainers": [{"name": "i", "securityContext": {"privileged": true}}],
                "containers": [{"name": "a", "securityContext": {"privileged": true}}],
            }),
            r#"privileged (containers "i", "a" must not set securityContext.privileged=true)"#,
        ),
        (
            json!({"containers": [{"name": "a", "ports": [{"hostPort": 9}, {"hostPort": 10}, {"containerPort": 1}]}]}),
            r#"hostPort (container "a" uses hostPorts 10, 9)"#,
        ),
        (
            json!({"securityContext": {"seLinuxOptions": {"type": "x", "user": "u"}}, "containers": [
                {"name": "a", "securityContext": {"seLinuxOptions": {"role": "r"}}},
            ]}),
            "seLinuxOptions (pod and container \"a\" set forbidden securityContext.seLinuxOptions: type \"x\"; \
             user may not be set; role may not be set)",
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "a"}, {"name": "net.ipv4.tcp_rmem"}, {"name": "b"}]}}),
            "forbidden sysctls (a, b)",
        ),
        (
            json!({"containers": [{"name": "a", "lifecycle": {"preStop": {"tcpSocket": {"host": "h"}}}}]}),
            r#"probe or lifecycle host (container "a" uses probe or lifecycle host "h")"#,
        ),
        (
            json!({"containers": [{"name": "a", "securityContext": {"procMount": "Unmasked"}}]}),
            r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#,
        ),
        (json!({"hostUsers": false, "containers": [{"name": "a", "securityContext": {"procMount": "Unmasked"}}]}), ""),
    ];
    for (spec, expected) in cases {
        assert_eq!(found(Level::Baseline, LATEST, &spec), expected, "{spec}");
    }
}

#[test]
fn restricted_asks_for_more_and_takes_the_place_of_some_checks() {
    let pod = |changes: Value| {
        let mut container = restricted_container();
        for (key, value) in changes.as_object().unwrap() {
            container["securityContext"][key] = value.clone();
        }
        json!({"containers": [container]})
    };
    let cases = [
        (pod(json!({})), ""),
        (
            pod(json!({"capabilities": {"add": ["SYS_TIME"]}})),
            "unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]; \
             container \"a\" must not include \"SYS_TIME\" in securityContext.capabilities.add)",
        ),
        (pod(json!({"runAsUser": 0})), r#"runAsUser=0 (container "a" must not set runAsUser=0)"#),
        (
            pod(json!({"runAsNonRoot": null})),
            r#"runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)"#,
        ),
        (
            pod(json!({"seccompProfile": {"type": "Unconfined"}})),
            "seccompProfile (container \"a\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            json!({"containers": [restricted_container()], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            r#"restricted volume types (volume "v" uses restricted volume type "hostPath")"#,
        ),
        (
            json!({"os": {"name": "windows"}, "containers": [{"name": "a"}]}),
            r#"runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)"#,
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(found(Level::Restricted, LATEST, &spec), expected, "{spec}");
    }
}

#[test]
fn older_versions_have_the_rules_of_their_time() {
    let hooked = json!({"containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": "h"}}}]});
    assert_eq!(found(Level::Baseline, Version::Minor(33), &hooked), "");
    assert_ne!(found(Level::Baseline, Version::Minor(34), &hooked), "");
    assert_ne!(found(Level::Baseline, Version::Minor(99), &hooked), "");
    let capable = json!({"containers": [{"name": "a", "securityContext": {
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"add": ["SYS_TIME"]},
    }}]});
    let expected = "non-default capabilities (container \"a\" must not include \"SYS_TIME\" in \
                    securityContext.capabilities.add)";
    assert_eq!(found(Level::Restricted, Version::Minor(18), &capable), expected);
}

#[test]
fn labels_choose_the_policy_and_warnings_follow_what_is_enforced() {
    let of = |labels: Value| {
        let (policy, errors) = Policy::of(&json!({"metadata": {"labels": labels}}));
        let errors: Vec<String> = errors.iter().map(|error| error.field.clone()).collect();
        (policy.enforce.to_string(), policy.audit.to_string(), policy.warn.to_string(), errors.len())
    };
    let [enforce, version, warn, audit] =
        ["enforce", "enforce-version", "warn", "audit"].map(|name| format!("pod-security.kubernetes.io/{name}"));
    let none = "privileged:latest";
    let cases = [
        (json!({}), (none, none, none, 0)),
        (json!({&enforce: "baseline", &version: "v1.20"}), ("baseline:v1.20", none, "baseline:v1.20", 0)),
        (json!({&enforce: "baseline", &warn: "restricted"}), ("baseline:latest", none, "restricted:latest", 0)),
        (json!({&enforce: "strict"}), ("restricted:latest", none, none, 1)),
        (json!({&audit: "strict", &version: "1.2"}), (none, none, none, 2)),
        (json!({&version: "v1.02"}), (none, none, none, 1)),
    ];
    for (labels, (enforced, audited, warned, errors)) in cases {
        assert_eq!(of(labels.clone()), (enforced.into(), audited.into(), warned.into(), errors), "{labels}");
    }
}
