//! Generated templates: the 200 pod templates and ten node templates of a mixed cluster, and pods that fit nowhere.

use serde_json::{Value, json};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";
const TEMPLATES: usize = 200;

/// Ten node templates: two kinds of disk, and every fifth has a taint.
pub(crate) fn nodes() -> Vec<Value> {
    (0..10)
        .map(|kind| {
            let disk = if kind % 2 == 0 { "ssd" } else { "hdd" };
            let taints = match kind {
                4 => json!([{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]),
                9 => json!([{"key": "spot", "value": "true", "effect": "PreferNoSchedule"}]),
                _ => json!([]),
            };
            let capacity = json!({"cpu": (8 + 8 * (kind % 3)).to_string(), "memory": "64Gi", "pods": "110"});
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"labels": {"disk": disk, "generation": format!("g{}", kind % 5)}},
                "spec": {"taints": taints},
                "status": {
                    "capacity": capacity, "allocatable": capacity, "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            })
        })
        .collect()
}

/// 200 pod templates: each is an application of its own with two of the constraints that a pod may have.
pub(crate) fn pods() -> Vec<Value> {
    (0..TEMPLATES)
        .map(|template| {
            let app = format!("app-{template:03}");
            let requests = json!({
                "cpu": format!("{}m", 50 * (1 + template % 8)),
                "memory": format!("{}Mi", 64 * (1 + template % 11)),
            });
            let mut pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"labels": {"app": app, "tier": format!("tier-{}", template % 7)}},
                "spec": {"containers": [
                    {"name": "c", "image": format!("registry.example/app-{template}:1"),
                        "resources": {"requests": requests}},
                ]},
            });
            add_constraint(&mut pod["spec"], &app, template % 10);
            // An application that must be in one zone cannot be spread over all of them.
            match (template % 10, (template / 10) % 10) {
                (2, 4) | (4, 2) => {}
                (_, which) => add_constraint(&mut pod["spec"], &app, which),
            }
            pod
        })
        .collect()
}

fn add_constraint(spec: &mut Value, app: &str, which: usize) {
    let own = json!({"matchLabels": {"app": app}});
    let spread = |when: &str, key: &str| {
        let selector = own.clone();
        json!([{"maxSkew": 3, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}])
    };
    let term = |key: &str| json!({"labelSelector": own.clone(), "topologyKey": key});
    let preferred = |key: &str| json!([{"weight": 10, "podAffinityTerm": term(key)}]);
    match which {
        0 => spec["nodeSelector"] = json!({"disk": "ssd"}),
        1 => spec["tolerations"] = json!([{"key": "dedicated", "operator": "Exists"}]),
        2 => spec["topologySpreadConstraints"] = spread("DoNotSchedule", ZONE),
        3 => spec["topologySpreadConstraints"] = spread("ScheduleAnyway", ZONE),
        4 => spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term(ZONE)]),
        5 => {
            let terms = json!([term(HOSTNAME)]);
            spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = terms;
        }
        6 => spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = preferred(ZONE),
        7 => {
            let terms = preferred(HOSTNAME);
            spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = terms;
        }
        8 => {
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
                "nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "generation", "operator": "In", "values": ["g0", "g1", "g2"]},
                ]}],
            })
        }
        _ => {}
    }
}

/// Ten pod templates that fit nowhere, because no node has that many processors.
pub(crate) fn unschedulable() -> Vec<Value> {
    (0..10)
        .map(|template| {
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [
                {"name": "c", "resources": {"requests": {"cpu": (100_000 + template).to_string()}}},
            ]}})
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_mixed_cluster_has_two_hundred_different_pod_templates_of_every_kind() {
        let pods = pods();
        let distinct: BTreeSet<String> = pods.iter().map(Value::to_string).collect();
        assert_eq!(distinct.len(), TEMPLATES);
        for needle in
            ["nodeSelector", "tolerations", "DoNotSchedule", "ScheduleAnyway", "podAffinity", "podAntiAffinity"]
        {
            assert!(distinct.iter().any(|pod| pod.contains(needle)), "{needle}");
        }
    }
}
