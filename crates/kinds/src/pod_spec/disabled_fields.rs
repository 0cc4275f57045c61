//! Fields of pod specs whose feature gates are off: they are dropped unless the stored object has them.

use serde_json::Value;

use super::container_rules::CONTAINERS;
use crate::defaulting::{child, children};
use crate::object::{Object, given, list};

/// Sources of projected volumes behind ClusterTrustBundleProjection and PodCertificateRequest.
const SOURCES: [&str; 2] = ["clusterTrustBundle", "podCertificate"];

/// Drops the fields from a pod, or from the template of whatever makes pods.
pub(crate) fn drop_disabled(object: &mut Object, old: &Value) {
    let Some(spec) = child(object, "spec") else { return };
    if spec.contains_key("containers") {
        return from_spec(spec, &old["spec"]);
    }
    if let Some(spec) = child(spec, "template").and_then(|template| child(template, "spec")) {
        return from_spec(spec, &old["spec"]["template"]["spec"]);
    }
    let job = child(spec, "jobTemplate").and_then(|job| child(job, "spec"));
    if let Some(spec) = job.and_then(|job| child(job, "template")).and_then(|template| child(template, "spec")) {
        from_spec(spec, &old["spec"]["jobTemplate"]["spec"]["template"]["spec"]);
    }
}

fn from_spec(spec: &mut Object, old: &Value) {
    let uses_source = |name: &str| {
        let volumes = list(old, "volumes").iter();
        volumes.flat_map(|volume| list(&volume["projected"], "sources")).any(|source| given(source, name))
    };
    for name in SOURCES {
        for volume in children(spec, "volumes") {
            let Some(projected) = child(volume, "projected") else { continue };
            if children(projected, "sources").any(|source| source.contains_key(name)) && !uses_source(name) {
                children(projected, "sources").for_each(|source| drop(source.remove(name)));
            }
        }
    }
    // Behind ContainerStopSignals.
    let uses_signal = || {
        let containers = CONTAINERS.iter().flat_map(|kind| list(old, kind));
        containers.into_iter().any(|container| given(&container["lifecycle"], "stopSignal"))
    };
    for kind in CONTAINERS {
        for container in children(spec, kind) {
            let Some(lifecycle) = child(container, "lifecycle") else { continue };
            if !lifecycle.contains_key("stopSignal") || uses_signal() {
                continue;
            }
            lifecycle.remove("stopSignal");
            if lifecycle.is_empty() {
                container.remove("lifecycle");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_no_gate_allows_is_dropped_unless_it_is_stored() {
        let object = json!({ "spec": { "template": { "spec": {
            "volumes": [{ "name": "v", "projected": { "sources": [{ "clusterTrustBundle": { "path": "a" } }] } }],
            "containers": [{ "name": "c", "lifecycle": { "stopSignal": "SIGUSR1" } }, { "name": "d", "lifecycle": {} }],
        } } } });
        let mut dropped = object.as_object().unwrap().clone();
        drop_disabled(&mut dropped, &Value::Null);
        let spec = &dropped["spec"]["template"]["spec"];
        assert_eq!(spec["volumes"][0]["projected"]["sources"], json!([{}]));
        assert_eq!(spec["containers"], json!([{ "name": "c" }, { "name": "d", "lifecycle": {} }]));
        let mut kept = object.as_object().unwrap().clone();
        drop_disabled(&mut kept, &object);
        assert_eq!(Value::Object(kept), object);
    }
}
