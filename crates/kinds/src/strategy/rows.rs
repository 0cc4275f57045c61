//! The strategies, one row a kind.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Generation, OnCreate, OnUpdate, Row, StatusRule, job, pod, restore, restore_metadata, service, storage};

/// A kind about which nothing is special.
pub(super) const PLAIN: Row = Row {
    group: "",
    version: "v1",
    kind: "",
    status: StatusRule::None,
    generation: Generation::Uncounted,
    create_on_update: false,
    unconditional_update: true,
    graceful: false,
    returns_object: false,
    selectable: &[],
    on_create: None,
    on_update: None,
    warn: None,
};

const fn row(group: &'static str, kind: &'static str) -> Row {
    Row { group, kind, ..PLAIN }
}

impl Row {
    const fn status(mut self) -> Row {
        self.status = StatusRule::Owned;
        self
    }

    const fn generation(mut self, generation: Generation) -> Row {
        self.generation = generation;
        self
    }

    const fn create_on_update(mut self) -> Row {
        self.create_on_update = true;
        self
    }

    const fn needs_version(mut self) -> Row {
        self.unconditional_update = false;
        self
    }

    const fn returns_object(mut self) -> Row {
        self.returns_object = true;
        self
    }

    const fn selectable(mut self, fields: &'static [&'static str]) -> Row {
        self.selectable = fields;
        self
    }

    const fn on_create(mut self, hook: OnCreate) -> Row {
        self.on_create = Some(hook);
        self
    }

    const fn on_update(mut self, hook: OnUpdate) -> Row {
        self.on_update = Some(hook);
        self
    }
}

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const RESOURCE: &str = "resource.k8s.io";

pub(super) static ROWS: &[Row] = &[
    Row { graceful: true, ..row("", "Pod") }
        .status()
        .generation(Generation::Spec)
        .returns_object()
        .selectable(POD_FIELDS)
        .on_create(pod::on_create)
        .on_update(pod::on_update),
    Row { status: StatusRule::KeptOnCreate, ..row("", "Node") }.selectable(&["spec.unschedulable"]),
    row("", "Namespace")
        .status()
        .returns_object()
        .selectable(&["status.phase"])
        .on_create(namespace_on_create)
        .on_update(namespace_on_update),
    Row { warn: Some(service::warnings), ..row("", "Service") }
        .status()
        .create_on_update()
        .returns_object()
        .selectable(&["spec.clusterIP", "spec.type"])
        .on_update(service::on_update),
    row("", "Endpoints").create_on_update(),
    row("", "Event").create_on_update().selectable(EVENT_FIELDS),
    row("events.k8s.io", "Event").create_on_update().selectable(EVENT_FIELDS),
    row("", "LimitRange").create_on_update(),
    row("", "ConfigMap"),
    row("", "Secret").selectable(&["type"]).on_update(secret_on_update),
    row("", "ServiceAccount").returns_object(),
    row("", "PodTemplate").generation(Generation::Fixed).returns_object(),
    row("", "ResourceQuota").status().returns_object(),
    row("", "ReplicationController").status().generation(Generation::Spec).selectable(&["status.replicas"]),
    row("", "PersistentVolume")
        .status()
        .returns_object()
        .on_create(storage::volume_on_create)
        .on_update(storage::volume_on_update),
    row("", "PersistentVolumeClaim")
        .status()
        .returns_object()
        .on_create(storage::claim_on_create)
        .on_update(storage::claim_on_update),
    row("apps", "Deployment").status().generation(Generation::SpecAndAnnotations).on_update(deployment_on_update),
    row("apps", "ReplicaSet").status().generation(Generation::Spec),
    row("apps", "StatefulSet").status().generation(Generation::Spec),
    row("apps", "DaemonSet")
        .status()
        .generation(Generation::Spec)
        .on_create(daemon_set_on_create)
        .on_update(daemon_set_on_update),
    row("apps", "ControllerRevision"),
    row("batch", "Job")
        .status()
        .generation(Generation::Spec)
        .selectable(&["status.successful"])
        .on_create(job::on_create),
    row("batch", "CronJob").status().generation(Generation::Spec),
    row("policy", "PodDisruptionBudget").status().generation(Generation::Spec).needs_version(),
    row("scheduling.k8s.io", "PriorityClass").generation(Generation::Fixed),
    row("coordination.k8s.io", "Lease")
        .create_on_update()
        .needs_version()
        .on_create(lease_on_create)
        .on_update(lease_on_update),
    row("discovery.k8s.io", "EndpointSlice").generation(Generation::ContentAndLabels),
    row("node.k8s.io", "RuntimeClass").create_on_update().needs_version(),
    row(RBAC, "Role").create_on_update(),
    row(RBAC, "RoleBinding").create_on_update(),
    row(RBAC, "ClusterRole").create_on_update(),
    row(RBAC, "ClusterRoleBinding").create_on_update(),
    row(STORAGE, "StorageClass").returns_object(),
    row(STORAGE, "VolumeAttributesClass").returns_object(),
    row(STORAGE, "CSIDriver").generation(Generation::SpecOnUpdate).needs_version().returns_object(),
    row(STORAGE, "CSINode").needs_version().returns_object(),
    row(STORAGE, "CSIStorageCapacity").needs_version(),
    row(STORAGE, "VolumeAttachment").status().needs_version().returns_object().on_update(status_keeps_metadata),
    row(RESOURCE, "DeviceClass").generation(Generation::Spec).returns_object(),
    row(RESOURCE, "ResourceClaim").status().returns_object().on_update(status_keeps_metadata),
    row(RESOURCE, "ResourceClaimTemplate").returns_object(),
    row(RESOURCE, "ResourceSlice")
        .generation(Generation::Spec)
        .returns_object()
        .selectable(&["spec.nodeName", "spec.driver"]),
    Row { version: "v2", ..row("autoscaling", "HorizontalPodAutoscaler") }.status(),
    row("networking.k8s.io", "Ingress").status().generation(Generation::Spec),
    row("networking.k8s.io", "IngressClass").generation(Generation::Spec),
    row("networking.k8s.io", "NetworkPolicy").generation(Generation::Spec),
];

const KUBERNETES_FINALIZER: &str = "kubernetes";

fn namespace_on_create(object: &mut Map<String, Value>, _now: Timestamp) {
    object.insert("status".into(), json!({ "phase": "Active" }));
    let spec = object.entry("spec").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(spec) = spec else { return };
    let finalizers = spec.entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(finalizers) = finalizers
        && !finalizers.iter().any(|finalizer| finalizer == KUBERNETES_FINALIZER)
    {
        finalizers.push(KUBERNETES_FINALIZER.into());
    }
}

fn namespace_on_update(object: &mut Map<String, Value>, old: &Value, subresource: &str, _now: Timestamp) {
    match subresource {
        "" => {
            let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
            match old["spec"].get("finalizers") {
                Some(finalizers) => {
                    spec.insert("finalizers".into(), finalizers.clone());
                }
                None => {
                    spec.remove("finalizers");
                }
            }
        }
        "finalize" => restore(object, old, "status"),
        _ => {}
    }
}

fn secret_on_update(object: &mut Map<String, Value>, old: &Value, _subresource: &str, _now: Timestamp) {
    if object.get("type").and_then(Value::as_str).unwrap_or("").is_empty() {
        restore(object, old, "type");
    }
}

fn deployment_on_update(object: &mut Map<String, Value>, old: &Value, subresource: &str, _now: Timestamp) {
    if subresource == "status" {
        restore_metadata(object, old, "labels");
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn set_template_generation(object: &mut Map<String, Value>, generation: i64) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(annotations) = annotations {
        annotations.insert(TEMPLATE_GENERATION.into(), generation.to_string().into());
    }
}

fn template_generation(object: &Value) -> i64 {
    object["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn daemon_set_on_create(object: &mut Map<String, Value>, _now: Timestamp) {
    let given = object.get("metadata").map_or(0, |metadata| template_generation(&json!({ "metadata": metadata })));
    set_template_generation(object, given.max(1));
}

fn daemon_set_on_update(object: &mut Map<String, Value>, old: &Value, subresource: &str, _now: Timestamp) {
    let changed =
        subresource.is_empty() && object.get("spec").map(|spec| &spec["template"]) != Some(&old["spec"]["template"]);
    set_template_generation(object, template_generation(old) + i64::from(changed));
}

/// Coordinated leader election is off by default: its fields may stay, but not come.
fn lease_on_create(object: &mut Map<String, Value>, _now: Timestamp) {
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

fn lease_on_update(object: &mut Map<String, Value>, old: &Value, _subresource: &str, _now: Timestamp) {
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
    for field in ["strategy", "preferredHolder"] {
        if old["spec"].get(field).is_none() {
            spec.remove(field);
        }
    }
}

/// The status endpoints of these kinds do not write labels, annotations, finalizers or owners.
fn status_keeps_metadata(object: &mut Map<String, Value>, old: &Value, subresource: &str, _now: Timestamp) {
    if subresource == "status" {
        for field in ["deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"] {
            restore_metadata(object, old, field);
        }
    }
}
