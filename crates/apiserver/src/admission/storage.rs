//! Storage: the default class of claims, and who may grow a claim.

use bayplan_model::quantity::Quantity;
use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, Operation, row, text};

const GROUP: &str = "storage.k8s.io";
const CLASS_ANNOTATION: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
const DEFAULT_ANNOTATIONS: [&str; 2] = [
    "/metadata/annotations/storageclass.kubernetes.io~1is-default-class",
    "/metadata/annotations/storageclass.beta.kubernetes.io~1is-default-class",
];

/// DefaultStorageClass: a claim that says nothing gets the default class; the newest when there are several.
pub(super) async fn admit_class(context: &AdmissionContext<'_>, claim: &mut Value) -> Result<(), Status> {
    if !context.is_new("", "persistentvolumeclaims") || class_of(claim).is_some() {
        return Ok(());
    }
    let classes = context.objects.list(row(GROUP, "storageclasses")?, "").await?;
    let is_default = |class: &Value| DEFAULT_ANNOTATIONS.iter().any(|annotation| text(class, annotation) == "true");
    let newest = classes.iter().filter(|class| is_default(class)).min_by(|a, b| {
        let created = |class: &Value| text(class, "/metadata/creationTimestamp").to_owned();
        created(b).cmp(&created(a)).then_with(|| text(a, "/metadata/name").cmp(text(b, "/metadata/name")))
    });
    if let Some(class) = newest
        && claim["spec"].is_object()
    {
        claim["spec"]["storageClassName"] = class["metadata"]["name"].clone();
    }
    Ok(())
}

/// The class a claim names; an empty name is a choice too.
fn class_of(claim: &Value) -> Option<&str> {
    claim.pointer(CLASS_ANNOTATION).or_else(|| claim.pointer("/spec/storageClassName")).and_then(Value::as_str)
}

/// PersistentVolumeClaimResize: only bound claims of a class that allows it may grow.
pub(super) async fn validate_resize(
    context: &AdmissionContext<'_>,
    claim: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let (Operation::Update, true, Some(old)) = (context.operation, context.is("", "persistentvolumeclaims"), old)
    else {
        return Ok(());
    };
    let size = |claim: &Value| Quantity::parse(text(claim, "/spec/resources/requests/storage")).ok();
    if size(claim) <= size(old) {
        return Ok(());
    }
    if text(old, "/status/phase") != "Bound" {
        return Err(context.refuse(claim, "Only bound persistent volume claims can be expanded"));
    }
    let class = match class_of(claim).filter(|name| !name.is_empty()) {
        Some(name) => context.objects.get(row(GROUP, "storageclasses")?, "", name).await?,
        None => None,
    };
    if class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and \
               the storageclass that provisions the pvc must support resize";
    Err(context.refuse(claim, why))
}
