//! Admin access to devices: claims ask for it only in namespaces that allow it (KEP-5018).

use bayplan_model::status::Status;
use serde_json::Value;

use super::{Call, Objects, Registry};
use crate::status_errors::FieldError;

/// The label of namespaces whose claims may have admin access.
const LABEL: &str = "resource.kubernetes.io/admin-access";

impl Registry {
    /// What is wrong with the admin access that a new claim or template asks for, or a changed status grants.
    pub(super) async fn admin_access_errors(
        &self,
        call: &Call<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Vec<FieldError>, Status> {
        let Some(field) = asked_at(call, object, old) else { return Ok(Vec::new()) };
        let namespaces = bayplan_kinds::find("", "v1", "namespaces").expect("a row of the table");
        let labels = self.labels(namespaces, "", call.namespace).await?;
        if labels.is_some_and(|labels| labels.get(LABEL).is_some_and(|value| value == "true")) {
            return Ok(Vec::new());
        }
        let detail = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
        Ok(vec![FieldError::forbidden(field, detail)])
    }
}

/// The first field that asks for admin access, if the write is one that may ask.
fn asked_at(call: &Call<'_>, object: &Value, old: Option<&Value>) -> Option<String> {
    if call.resource.group != "resource.k8s.io" {
        return None;
    }
    let first = |list: &Value, asks: fn(&Value) -> bool| list.as_array()?.iter().position(asks);
    let exactly = |request: &Value| request["exactly"]["adminAccess"] == true;
    let granted = |object: &Value| {
        first(&object["status"]["allocation"]["devices"]["results"], |result| result["adminAccess"] == true)
    };
    let requests = match (call.resource.plural, call.subresource, old) {
        ("resourceclaims", "", None) => &object["spec"]["devices"]["requests"],
        // Templates name the field as their claims do.
        ("resourceclaimtemplates", "", None) => &object["spec"]["spec"]["devices"]["requests"],
        // What is allocated does not change.
        ("resourceclaims", "status", Some(old)) if granted(old).is_none() => {
            return granted(object).map(|index| format!("status.allocation.devices.results[{index}].adminAccess"));
        }
        _ => return None,
    };
    first(requests, exactly).map(|index| format!("spec.devices.requests[{index}].adminAccess"))
}
