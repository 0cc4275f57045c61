//! What upstream fills into a pod spec.

use serde_json::{Map, Value};

use super::{image, volume_defaults};
use crate::defaulting::{child, children, default, default_nonzero, round_requirements, round_resource_list};
use crate::object::{Object, text};

/// Annotations of early kubelets, which upstream drops.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// The defaults of a pod template: those of its spec, without those that only pods get.
pub(crate) fn template_defaults(template: Option<&mut Value>) {
    let Some(template) = template.and_then(Value::as_object_mut) else { return };
    drop_init_container_annotations(template);
    if let Some(spec) = child(template, "spec") {
        spec_defaults(spec);
    }
}

pub(crate) fn drop_init_container_annotations(object: &mut Object) {
    let Some(metadata) = child(object, "metadata") else { return };
    let Some(annotations) = child(metadata, "annotations") else { return };
    let before = annotations.len();
    for name in INIT_CONTAINER_ANNOTATIONS {
        annotations.remove(name);
    }
    if before > 0 && annotations.is_empty() {
        metadata.remove("annotations");
    }
}

pub(crate) fn spec_defaults(spec: &mut Object) {
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "restartPolicy", "Always");
    default(spec, "securityContext", Map::new());
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "schedulerName", "default-scheduler");
    // The deprecated name mirrors the current one, whichever was given.
    let account = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount"),
        name => name,
    }
    .to_owned();
    if account.is_empty() {
        spec.remove("serviceAccount");
    } else {
        spec.insert("serviceAccountName".into(), account.clone().into());
        spec.insert("serviceAccount".into(), account.into());
    }
    children(spec, "volumes").for_each(volume_defaults::volume);
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        children(spec, containers).for_each(container_defaults);
    }
    round_resource_list(spec, "overhead");
    round_requirements(child(spec, "resources"));
}

fn container_defaults(container: &mut Object) {
    let image = text(container, "image");
    let policy = image::pull_policy(image);
    default(container, "imagePullPolicy", policy);
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    children(container, "ports").for_each(|port| default(port, "protocol", "TCP"));
    for variable in children(container, "env") {
        let Some(from) = child(variable, "valueFrom") else { continue };
        if let Some(field) = child(from, "fieldRef") {
            default(field, "apiVersion", "v1");
        }
        if let Some(key) = child(from, "fileKeyRef") {
            default(key, "optional", false);
        }
    }
    round_requirements(child(container, "resources"));
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child(container, name) {
            default_nonzero(probe, "timeoutSeconds", 1);
            default_nonzero(probe, "periodSeconds", 10);
            default_nonzero(probe, "successThreshold", 1);
            default_nonzero(probe, "failureThreshold", 3);
            http_get(child(probe, "httpGet"));
            if let Some(grpc) = child(probe, "grpc") {
                default(grpc, "service", "");
            }
        }
    }
    if let Some(lifecycle) = child(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = child(lifecycle, hook) {
                http_get(child(hook, "httpGet"));
            }
        }
    }
}

fn http_get(action: Option<&mut Object>) {
    if let Some(action) = action {
        default(action, "path", "/");
        default(action, "scheme", "HTTP");
    }
}
