//! A pod written as what it has other than an earlier one: pods of one template differ in little more than their names.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::meta::ObjectMeta;
use crate::pod::{Pod, PodSpec, PodStatus};

/// The fields of a pod's `metadata`, `spec` and `status` that are others than those of its base. A field that the base
/// has and the pod has not is written as empty. Annotations are left out: no decision reads those of a pod.
#[derive(Clone, Copy, Debug)]
pub struct PodChanges<'a> {
    /// The pod that whoever reads it knows already.
    pub base: &'a Pod,
    /// The pod that is written.
    pub pod: &'a Pod,
}

impl Serialize for PodChanges<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Pod { metadata, spec, status, manifest: _ } = self.pod;
        let mut parts = serializer.serialize_map(Some(3))?;
        parts.serialize_entry("metadata", &Differing { base: &self.base.metadata, now: metadata })?;
        parts.serialize_entry("spec", &Differing { base: &self.base.spec, now: spec })?;
        parts.serialize_entry("status", &Differing { base: &self.base.status, now: status })?;
        parts.end()
    }
}

/// A part of a pod, and the same part of its base.
struct Differing<'a, T> {
    base: &'a T,
    now: &'a T,
}

/// Writes the fields that differ, under the names that the API has for them.
macro_rules! differing {
    ($type:ident { $($field:ident $name:literal)* } without { $($left_out:ident)* }) => {
        impl Serialize for Differing<'_, $type> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                // Field by field, so that the compiler asks about a new one.
                let $type { $($field,)* $($left_out: _,)* } = self.now;
                let mut fields = serializer.serialize_map(None)?;
                $(
                    if *$field != self.base.$field {
                        fields.serialize_entry($name, $field)?;
                    }
                )*
                fields.end()
            }
        }
    };
}

differing! {
    ObjectMeta {
        name "name"
        generate_name "generateName"
        namespace "namespace"
        uid "uid"
        resource_version "resourceVersion"
        generation "generation"
        creation_timestamp "creationTimestamp"
        deletion_timestamp "deletionTimestamp"
        deletion_grace_period_seconds "deletionGracePeriodSeconds"
        labels "labels"
        finalizers "finalizers"
        owner_references "ownerReferences"
    } without { annotations }
}

differing! {
    PodSpec {
        node_name "nodeName"
        scheduler_name "schedulerName"
        priority "priority"
        preemption_policy "preemptionPolicy"
        node_selector "nodeSelector"
        affinity "affinity"
        tolerations "tolerations"
        topology_spread_constraints "topologySpreadConstraints"
        containers "containers"
        init_containers "initContainers"
        volumes "volumes"
        overhead "overhead"
        resources "resources"
        scheduling_gates "schedulingGates"
        resource_claims "resourceClaims"
        host_network "hostNetwork"
        host_users "hostUsers"
    } without {}
}

differing! {
    PodStatus {
        phase "phase"
        conditions "conditions"
        nominated_node_name "nominatedNodeName"
        start_time "startTime"
        container_statuses "containerStatuses"
        init_container_statuses "initContainerStatuses"
        resources "resources"
        allocated_resources "allocatedResources"
        resource_claim_statuses "resourceClaimStatuses"
        extended_resource_claim_status "extendedResourceClaimStatus"
    } without {}
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(json: Value) -> Pod {
        serde_json::from_value(json).unwrap()
    }

    /// A pod that has every field.
    fn full() -> Value {
        let list = json!({"cpu": "1"});
        let resources = json!({"requests": list});
        let container = json!({"name": "c", "image": "i", "resources": resources});
        json!({
            "metadata": {
                "name": "p", "generateName": "p-", "namespace": "d", "uid": "u", "resourceVersion": "1",
                "generation": 3, "creationTimestamp": "2026-01-02T03:04:05Z",
                "deletionTimestamp": "2026-01-02T03:04:06Z", "deletionGracePeriodSeconds": 30,
                "labels": {"a": "b"}, "finalizers": ["f"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x"}],
            },
            "spec": {
                "nodeName": "n", "schedulerName": "s", "priority": 5, "preemptionPolicy": "Never",
                "nodeSelector": {"a": "b"},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}],
                }}},
                "tolerations": [{"key": "t", "operator": "Exists"}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
                "containers": [container], "initContainers": [container],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}], "overhead": list,
                "resources": resources, "schedulingGates": [{"name": "g"}],
                "resourceClaims": [{"name": "r", "resourceClaimName": "c"}], "hostNetwork": true, "hostUsers": false,
            },
            "status": {
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "nominatedNodeName": "m",
                "startTime": "2026-01-02T03:04:07Z", "containerStatuses": [{"name": "c"}],
                "initContainerStatuses": [{"name": "c"}], "resources": resources, "allocatedResources": list,
                "resourceClaimStatuses": [{"name": "r", "resourceClaimName": "c"}],
                "extendedResourceClaimStatus": {"resourceClaimName": "e"},
            },
        })
    }

    /// What a reader makes of the base and the changes.
    fn merged(base: &Pod, changes: &Value) -> Pod {
        let mut whole = serde_json::to_value(base).unwrap();
        for part in ["metadata", "spec", "status"] {
            for (name, value) in changes[part].as_object().unwrap() {
                whole[part][name] = value.clone();
            }
        }
        pod(whole)
    }

    #[test]
    fn a_pod_is_its_base_and_what_is_written_of_it_whatever_they_have() {
        let full = full();
        let mut all = vec![pod(full.clone()), Pod::default()];
        for part in ["metadata", "spec", "status"] {
            for name in full[part].as_object().unwrap().keys() {
                let mut without = full.clone();
                without[part].as_object_mut().unwrap().remove(name);
                let without = pod(without);
                assert_ne!(without, all[0], "{part}.{name} is read");
                all.push(without);
            }
        }
        assert_eq!(all.len(), 2 + 12 + 17 + 10, "every field is left out once");
        for base in &all {
            for pod in &all {
                let changes = serde_json::to_value(PodChanges { base, pod }).unwrap();
                assert_eq!(merged(base, &changes), *pod, "{changes}");
            }
        }
    }

    #[test]
    fn no_more_is_written_than_what_differs() {
        let base = pod(full());
        let mut bound = base.clone();
        bound.metadata.name = "q".into();
        bound.spec.node_name = String::new();
        bound.metadata.annotations.insert("a".into(), "hidden".into());
        let text = serde_json::to_string(&PodChanges { base: &base, pod: &bound }).unwrap();
        assert_eq!(text, r#"{"metadata":{"name":"q"},"spec":{"nodeName":""},"status":{}}"#);
    }
}
