//! DefaultIngressClass: an ingress that names no class gets the default one; the newest when there are several.

use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, row, text};

const CLASS_ANNOTATION: &str = "/metadata/annotations/kubernetes.io~1ingress.class";
const DEFAULT_ANNOTATION: &str = "/metadata/annotations/ingressclass.kubernetes.io~1is-default-class";

pub(super) async fn admit(context: &AdmissionContext<'_>, ingress: &mut Value) -> Result<(), Status> {
    const GROUP: &str = "networking.k8s.io";
    let named = |pointer| ingress.pointer(pointer).is_some_and(|class| !class.is_null());
    if !context.is_new(GROUP, "ingresses") || named("/spec/ingressClassName") || named(CLASS_ANNOTATION) {
        return Ok(());
    }
    let classes = context.objects.list(row(GROUP, "ingressclasses")?, "").await?;
    let newest = classes.iter().filter(|class| text(class, DEFAULT_ANNOTATION) == "true").min_by(|a, b| {
        let created = |class: &Value| text(class, "/metadata/creationTimestamp").to_owned();
        created(b).cmp(&created(a)).then_with(|| text(a, "/metadata/name").cmp(text(b, "/metadata/name")))
    });
    if let Some(class) = newest
        && ingress["spec"].is_object()
    {
        ingress["spec"]["ingressClassName"] = class["metadata"]["name"].clone();
    }
    Ok(())
}
