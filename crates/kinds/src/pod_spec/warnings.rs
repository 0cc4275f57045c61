//! What clients are warned of in the spec of a pod or template. Upstream: the package `pkg/api/pod`, its warnings.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::affinity_rules::PREFERRED;
use super::annotation_rules::{SECCOMP_OF_CONTAINER, SECCOMP_OF_POD};
use super::container_rules::CONTAINERS;
use super::resource_rules::quantity;
use super::{REQUIRED, app_armor};
use crate::object::{given, list, number, text};

/// Annotations that do nothing any more, and what does instead.
const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

/// Volume sources that are no longer filled: the field, its name in messages, and since when.
const VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Labels of nodes whose names changed, and since when.
fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        _ => return None,
    })
}

/// The warnings of a pod (an empty path) or of the template at a path, `spec.template.`.
pub(crate) fn warnings(path: &str, of: &Value) -> Vec<String> {
    let (annotations, spec) = (&of["metadata"]["annotations"], &of["spec"]);
    let mut found = Vec::new();
    node_labels(&mut found, path, spec);
    for (key, why) in ANNOTATIONS.iter().filter(|(key, _)| given(annotations, key)) {
        found.push(format!("{path}metadata.annotations[{key}]: {why}"));
    }
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        for (_, shown, why) in VOLUMES.iter().filter(|(field, ..)| given(volume, field)) {
            found.push(format!("{path}spec.volumes[{index}].{shown}: {why}"));
        }
    }
    token_paths(&mut found, path, spec);
    repeated(&mut found, path, spec);
    for resource in ["memory", "ephemeral-storage"] {
        fraction(&mut found, &spec["overhead"], resource, &|| format!("{path}spec.overhead"));
    }
    if given(annotations, SECCOMP_OF_POD) && !given(&spec["securityContext"], "seccompProfile") {
        found.push(format!(
            "{path}metadata.annotations[{SECCOMP_OF_POD}]: non-functional in v1.27+; use the \"seccompProfile\" field \
             instead"
        ));
    }
    for kind in CONTAINERS {
        for (index, container) in list(spec, kind).iter().enumerate() {
            let own = || format!("{path}spec.{kind}[{index}]");
            profiles(&mut found, path, annotations, spec, container);
            amounts(&mut found, &own, container);
            variables(&mut found, &own, list(container, "env"));
        }
    }
    ports(&mut found, path, spec);
    port_names(&mut found, path, spec);
    if number(spec, "terminationGracePeriodSeconds") < 0 {
        found.push(format!(
            "{path}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated \
             as 1"
        ));
    }
    affinity(&mut found, path, spec);
    found
}

fn node_labels(found: &mut Vec<String>, path: &str, spec: &Value) {
    for key in spec["nodeSelector"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if let Some(why) = deprecated_label(key) {
            found.push(format!("{path}spec.nodeSelector[{key}]: {why}"));
        }
    }
    let node = &spec["affinity"]["nodeAffinity"];
    let mut term = |at: String, term: &Value| {
        for (index, expression) in list(term, "matchExpressions").iter().enumerate() {
            let key = text(expression, "key");
            if let Some(why) = deprecated_label(key) {
                found.push(format!("{at}.matchExpressions[{index}].key: {key} is {why}"));
            }
        }
    };
    let affinity = format!("{path}spec.affinity.nodeAffinity");
    for (index, required) in list(&node[REQUIRED], "nodeSelectorTerms").iter().enumerate() {
        term(format!("{affinity}.{REQUIRED}.nodeSelectorTerms[{index}]"), required);
    }
    for (index, preferred) in list(node, PREFERRED).iter().enumerate() {
        term(format!("{affinity}.{PREFERRED}[{index}].preference"), &preferred["preference"]);
    }
    for (index, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let at = format!("{path}spec.topologySpreadConstraints[{index}]");
        let key = text(constraint, "topologyKey");
        if let Some(why) = deprecated_label(key) {
            found.push(format!("{at}.topologyKey: {key} is {why}"));
        }
        if !given(constraint, "labelSelector") {
            found.push(format!("{at}.labelSelector: a null labelSelector results in matching no pod"));
        }
    }
}

/// Files that a token of the same volume, or of another, hides.
fn token_paths(found: &mut Vec<String>, path: &str, spec: &Value) {
    let mut tokens = BTreeSet::new();
    for volume in list(spec, "volumes") {
        for source in
            list(&volume["projected"], "sources").iter().filter(|source| given(*source, "serviceAccountToken"))
        {
            tokens.insert(text(&source["serviceAccountToken"], "path"));
        }
    }
    if tokens.is_empty() {
        return;
    }
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let at = format!("{path}spec.volumes[{index}].projected.sources");
        let mut hidden = |what: String, file: &str| {
            if tokens.contains(file) {
                found.push(format!("{at}.{what}: has duplicated path with ServiceAccountToken {file:?}"));
            }
        };
        for source in list(&volume["projected"], "sources") {
            for (kind, shown) in [("configMap", "configMap"), ("secret", "secrets"), ("downwardAPI", "downwardAPI")] {
                for (index, item) in list(&source[kind], "items").iter().enumerate() {
                    hidden(format!("{shown}[{index}]"), text(item, "path"));
                }
            }
            if given(source, "clusterTrustBundle") {
                hidden("ClusterTrustBundle".to_owned(), text(&source["clusterTrustBundle"], "path"));
            }
        }
    }
}

fn repeated(found: &mut Vec<String>, path: &str, spec: &Value) {
    for (entries, field) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut seen = BTreeSet::new();
        for (index, entry) in list(spec, entries).iter().enumerate() {
            let value = text(entry, field);
            if !seen.insert(value) {
                found.push(format!("{path}spec.{entries}[{index}].{field}: duplicate {field} {value:?}"));
            }
        }
    }
    for (index, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            found.push(format!("{path}spec.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
}

fn fraction(found: &mut Vec<String>, amounts: &Value, resource: &str, at: &dyn Fn() -> String) {
    if let Some(amount) = quantity(&amounts[resource])
        && amount.milli_value() % 1000 != 0
    {
        let shown = amount.to_string();
        let at = at();
        found.push(format!("{at}[{resource}]: fractional byte value {shown:?} is invalid, must be an integer"));
    }
}

fn amounts(found: &mut Vec<String>, own: &dyn Fn() -> String, container: &Value) {
    for resource in ["memory", "ephemeral-storage"] {
        for part in ["limits", "requests"] {
            fraction(found, &container["resources"][part], resource, &|| format!("{}.resources.{part}", own()));
        }
    }
}

/// Annotations of containers where a field would do.
fn profiles(found: &mut Vec<String>, path: &str, annotations: &Value, spec: &Value, container: &Value) {
    if !annotations.is_object() {
        return;
    }
    let (name, context) = (text(container, "name"), &container["securityContext"]);
    let key = format!("{SECCOMP_OF_CONTAINER}{name}");
    if given(annotations, &key) && !given(context, "seccompProfile") {
        found.push(format!(
            "{path}metadata.annotations[{key}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
        ));
    }
    // New pods get the field, and their clients the warning before it.
    if !path.is_empty() {
        found.extend(app_armor::warning(path, annotations, spec, container));
    }
}

/// A variable may refer to an earlier one of its name; anything else hides that.
fn variables(found: &mut Vec<String>, own: &dyn Fn() -> String, variables: &[Value]) {
    let mut seen = BTreeSet::new();
    for (index, variable) in variables.iter().enumerate() {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        if seen.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        if given(variable, "valueFrom") || value == reference || !value.contains(&reference) {
            let at = own();
            found.push(format!(
                "{at}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

/// The most ports of one number that are compared with each other.
const ALIKE_MAX: usize = 32;

fn ports(found: &mut Vec<String>, path: &str, spec: &Value) {
    let mut known: BTreeMap<(i64, &str), Vec<(String, &Value)>> = BTreeMap::new();
    for kind in CONTAINERS {
        for (index, container) in list(spec, kind).iter().enumerate() {
            for (place, port) in list(container, "ports").iter().enumerate() {
                let at = format!("{path}spec.{kind}[{index}].ports[{place}]");
                let (host_ip, host_port) = (text(port, "hostIP"), number(port, "hostPort"));
                if !host_ip.is_empty() && host_port == 0 {
                    found.push(format!(
                        "{at}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} \
                         HostIP:{}}}",
                        text(port, "name"),
                        number(port, "containerPort"),
                        text(port, "protocol"),
                        host_ip
                    ));
                }
                let alike = known.entry((number(port, "containerPort"), text(port, "protocol"))).or_default();
                for (other_at, other) in alike.iter() {
                    let (other_ip, other_port) = (text(*other, "hostIP"), number(*other, "hostPort"));
                    let what = if (host_ip, host_port) == (other_ip, other_port) {
                        "duplicate"
                    } else if host_port == 0 || other_port == 0 {
                        "overlapping"
                    } else if host_port == other_port && host_ip.is_empty() != other_ip.is_empty() {
                        "dangerously ambiguous"
                    } else {
                        continue;
                    };
                    found.push(format!("{at}: {what} port definition with {other_at}"));
                }
                if alike.len() < ALIKE_MAX {
                    alike.push((at, port));
                }
            }
        }
    }
}

/// Names of ports that containers share which run together.
fn port_names(found: &mut Vec<String>, path: &str, spec: &Value) {
    let mut known: BTreeMap<&str, String> = BTreeMap::new();
    for kind in ["initContainers", "containers"] {
        for (index, container) in list(spec, kind).iter().enumerate() {
            if kind == "initContainers" && text(container, "restartPolicy") != "Always" {
                continue;
            }
            for (place, port) in list(container, "ports").iter().enumerate() {
                let (name, at) = (text(port, "name"), format!("{path}spec.{kind}[{index}].ports[{place}]"));
                match known.get(name) {
                    _ if name.is_empty() => {}
                    Some(first) => found.push(format!(
                        "{at}: duplicate port name {name:?} with {first}, services and probes that select ports by \
                         name will use {first}"
                    )),
                    None => {
                        known.insert(name, at);
                    }
                }
            }
        }
    }
}

fn affinity(found: &mut Vec<String>, path: &str, spec: &Value) {
    const DETAIL: &str = "a null labelSelector results in matching no pod";
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (affinity, at) = (&spec["affinity"][kind], format!("{path}spec.affinity.{kind}"));
        for (index, term) in list(affinity, REQUIRED).iter().enumerate() {
            if !given(term, "labelSelector") {
                found.push(format!("{at}.{REQUIRED}[{index}].labelSelector: {DETAIL}"));
            }
        }
        for (index, term) in list(affinity, PREFERRED).iter().enumerate() {
            if !given(&term["podAffinityTerm"], "labelSelector") {
                found.push(format!("{at}.{PREFERRED}[{index}].podAffinityTerm.labelSelector: {DETAIL}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_odd_is_said_with_its_path() {
        let template = json!({
            "metadata": { "annotations": { "scheduler.alpha.kubernetes.io/critical-pod": "" } },
            "spec": {
                "nodeSelector": { "beta.kubernetes.io/os": "linux" },
                "imagePullSecrets": [{ "name": "a" }, { "name": "a" }],
                "containers": [{
                    "name": "c",
                    "env": [
                        { "name": "A", "value": "1" }, { "name": "A", "value": "$(A)2" }, { "name": "A", "value": "3" },
                    ],
                    "ports": [{ "containerPort": 80, "protocol": "TCP" }, { "containerPort": 80, "protocol": "TCP" }],
                    "resources": { "limits": { "memory": "100m" } },
                }],
            },
        });
        assert_eq!(
            warnings("spec.template.", &template),
            [
                "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \
                 \"kubernetes.io/os\" instead",
                "spec.template.metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in \
                 v1.16+; use the \"priorityClassName\" field instead",
                "spec.template.spec.imagePullSecrets[1].name: duplicate name \"a\"",
                "spec.template.spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, \
                 must be an integer",
                "spec.template.spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped \
                 when using apply",
                "spec.template.spec.containers[0].ports[1]: duplicate port definition with \
                 spec.template.spec.containers[0].ports[0]",
            ]
        );
    }
}
