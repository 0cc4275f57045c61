//! The chart: what it renders, what it refuses, and that the plain manifests are what it renders.
//!
//! `HELM` names the helm to use, which `.ci/helm` builds. `cargo xtask manifests` writes the manifests.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

use crate::installed::{objects, of_kind, root};

/// The manifests, and the mode of the chart that each is.
const MANIFESTS: [(&str, &str); 3] =
    [("second-scheduler", "second"), ("shadow", "shadow"), ("in-place-of-kube-scheduler", "replace")];

/// What stands at the head of each.
const HEAD: &str = "# Written by `cargo xtask manifests` from deploy/chart/bayplan: change the chart instead.\n";

pub(crate) fn helm(arguments: &[&str]) -> Output {
    let helm = std::env::var("HELM").unwrap_or_else(|_| "helm".to_owned());
    let mut command = Command::new(&helm);
    command.args(arguments).current_dir(root());
    command.output().unwrap_or_else(|error| panic!("{helm}: {error}: HELM names it; `.ci/helm` builds one"))
}

/// What the chart renders with these values, in the namespace and under the name of the manifests.
pub(crate) fn render(values: &[&str]) -> Result<String, String> {
    let begin =
        ["template", "bayplan", "deploy/chart/bayplan", "--namespace", "kube-system", "--kube-version", "v1.36.4"];
    let output = helm(&[&begin, values].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// A rendered chart without what only helm's own installs have.
fn plain(rendered: &str) -> String {
    let of_helm = |line: &&str| line.starts_with("# Source: ") || line.contains("app.kubernetes.io/managed-by: Helm");
    let lines = rendered.lines().filter(|line| !of_helm(line)).map(|line| format!("{}\n", line.trim_end()));
    format!("{HEAD}{}", lines.collect::<String>())
}

#[test]
#[ignore = "needs helm: .ci/run runs it"]
fn the_manifests_are_what_the_chart_renders() {
    for (name, mode) in MANIFESTS {
        let path = root().join("deploy/manifests").join(format!("{name}.yaml"));
        let expected = plain(&render(&["--set", &format!("mode={mode}")]).unwrap());
        if std::env::var_os("BAYPLAN_WRITE_MANIFESTS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &expected).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == expected, "deploy/manifests/{name}.yaml is out of date: run `cargo xtask manifests`");
    }
}

#[test]
#[ignore = "needs helm: .ci/run runs it"]
fn the_chart_has_nothing_to_complain_of() {
    for (_, mode) in MANIFESTS {
        let output = helm(&["lint", "--strict", "deploy/chart/bayplan", "--set", &format!("mode={mode}")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
#[ignore = "needs helm: .ci/run runs it"]
fn values_that_mean_nothing_are_refused_by_name() {
    for (value, named) in [
        ("mode=third", "mode"),
        ("replicas=-1", "replicas"),
        ("replica=3", "replica"),
        ("image.repository=", "repository"),
        ("scheduler.config.kind=Pod", "kind"),
        ("port=70000", "port"),
    ] {
        let error = render(&["--set", value]).expect_err(value);
        assert!(error.contains(named), "{value}: {error}");
    }
    let error = render(&["--set", "serviceMonitor.enabled=true,service.enabled=false"]).unwrap_err();
    assert!(error.contains("serviceMonitor.enabled needs service.enabled"), "{error}");
}

/// What the values change.
#[test]
#[ignore = "needs helm: .ci/run runs it"]
fn options_render_what_they_say() {
    let all = objects(
        &render(&[
            "--set",
            "serviceMonitor.enabled=true,networkPolicy.enabled=true",
            "--set",
            "replicas=3,image.repository=r.example/b,image.tag=t",
            "--set",
            "scheduler.config.percentageOfNodesToScore=100,scheduler.config.leaderElection.resourceName=mine",
            "--set",
            "scheduler.extraArgs={--logging-format=json},nodeSelector.a=b,podLabels.team=x",
        ])
        .unwrap(),
    );
    let deployment = of_kind(&all, "Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(pod["containers"][0]["image"], "r.example/b:t");
    assert!(pod["containers"][0]["args"].as_array().unwrap().contains(&"--logging-format=json".into()));
    assert_eq!(pod["nodeSelector"]["a"], "b");
    let config = of_kind(&all, "ConfigMap")["data"]["config.yaml"].as_str().unwrap();
    let config = objects(config).remove(0);
    assert_eq!(
        (&config["percentageOfNodesToScore"], &config["leaderElection"]["resourceName"]),
        (&100.into(), &"mine".into())
    );
    assert_eq!(
        (&config["leaderElection"]["leaderElect"], &config["profiles"][0]["schedulerName"]),
        (&true.into(), &"bayplan".into())
    );
    let rules = of_kind(&all, "Role")["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["resourceNames"] == serde_json::json!(["mine"])), "{rules:?}");
    let monitor = &of_kind(&all, "ServiceMonitor")["spec"]["endpoints"][0];
    assert_eq!((&monitor["scheme"], &monitor["port"]), (&"https".into(), &"https-metrics".into()));
    assert_eq!(of_kind(&all, "NetworkPolicy")["spec"]["policyTypes"], serde_json::json!(["Ingress", "Egress"]));

    let few = objects(
        &render(&["--set", "rbac.create=false,serviceAccount.create=false,service.enabled=false,replicas=1"]).unwrap(),
    );
    let kinds: BTreeSet<&str> = few.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, BTreeSet::from(["ConfigMap", "Deployment"]));
}

/// The pods of every manifest can be nobody but an unprivileged user who writes nowhere, and are probed.
#[test]
fn the_pods_of_the_manifests_may_do_little() {
    for (name, _) in MANIFESTS {
        let objects = crate::installed::manifest(name);
        let pod = &of_kind(&objects, "Deployment")["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        assert_eq!(pod["priorityClassName"], "system-cluster-critical", "{name}");
        let container = &pod["containers"][0];
        let security = &container["securityContext"];
        assert_eq!(
            (&security["readOnlyRootFilesystem"], &security["allowPrivilegeEscalation"]),
            (&true.into(), &false.into())
        );
        assert_eq!(security["capabilities"]["drop"], serde_json::json!(["ALL"]), "{name}");
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["httpGet"]["port"], container["ports"][0]["name"], "{name}: {probe}");
        }
    }
}

/// Everything in values.yaml is in the schema, and the other way round, at every level that the chart defines.
#[test]
fn the_schema_knows_every_value() {
    let folder = root().join("deploy/chart/bayplan");
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let values = objects(&read("values.yaml")).remove(0);
    check("", &values, &schema);
}

fn check(path: &str, values: &Value, schema: &Value) {
    let names = |value: &Value| -> BTreeSet<String> {
        value.as_object().into_iter().flatten().map(|(name, _)| name.clone()).filter(|name| name != "global").collect()
    };
    assert_eq!(names(values), names(&schema["properties"]), "{path}");
    for (name, value) in values.as_object().unwrap() {
        let schema = &schema["properties"][name];
        if schema["additionalProperties"] == false && path.len() + name.len() > 0 && name != "resources" {
            check(&format!("{path}.{name}"), value, schema);
        }
    }
}

#[test]
fn the_chart_is_of_this_version() {
    let text = std::fs::read_to_string(root().join("deploy/chart/bayplan/Chart.yaml")).unwrap();
    let chart = objects(&text).remove(0);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&version.into(), &version.into()));
}
