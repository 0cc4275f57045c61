//! What `pods/ephemeralcontainers` and `pods/resize` may change.

use std::collections::BTreeMap;

use bayplan_model::quoted::Quoted;
use serde_json::Value;

use super::quality_of_service::quality_of_service;
use crate::field::{Change, ErrorList, Path};
use crate::object::{Object, list, put, text};

/// The resources that can change while a pod runs.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// Ephemeral containers can only be added.
pub(super) fn ephemeral_containers(errors: &mut ErrorList, new: &Value, old: &Value) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    let path = Path::root("spec");
    // Of several with one name the first, which goes last because the last one stays.
    let given: BTreeMap<&str, &Value> =
        list(spec, "ephemeralContainers").iter().rev().map(|container| (text(container, "name"), container)).collect();
    for container in list(before, "ephemeralContainers") {
        let name = text(container, "name");
        let existing = format!("existing ephemeral containers {} may not be", Quoted(name));
        let path = path.child("ephemeralContainers");
        match given.get(name) {
            None => errors.forbidden(path, &format!("{existing} removed\n")),
            Some(same) if *same == container => {}
            Some(new) => {
                let definition = "io.k8s.api.core.v1.EphemeralContainer";
                let change = Change { definition, old: container, new };
                errors.forbidden_change(path, &format!("{existing} changed"), path, change);
            }
        }
    }
}

/// A resize changes CPU and memory of containers, within the pod's quality of service.
pub(super) fn resize(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let (spec, before) = (&new["spec"], &old["spec"]);
    for containers in ["containers", "initContainers"] {
        if list(spec, containers).len() != list(before, containers).len() {
            return errors.forbidden(path.child(containers), "containers may not be added or removed on resize");
        }
    }
    // A kubelet that supports resizing reports the resources of the containers it runs.
    let statuses = list(&old["status"], "containerStatuses");
    if statuses.iter().find(|status| !status["state"]["running"].is_null()).is_some_and(|s| s["resources"].is_null()) {
        return errors.forbidden(path, "Pod running on node without support for resize");
    }
    let quality = text(&old["status"], "qosClass");
    if !quality.is_empty() && quality_of_service(spec) != quality {
        errors.invalid(path, quality, "Pod QOS Class may not change as a result of resizing");
    }
    for containers in ["containers", "initContainers"] {
        let list_path = path.child(containers);
        for (index, (container, before)) in list(spec, containers).iter().zip(list(before, containers)).enumerate() {
            let container_path = list_path.index(index);
            nothing_removed(errors, container_path.child("resources"), &container["resources"], &before["resources"]);
        }
    }
    let mut rest = spec.as_object().cloned().unwrap_or_default();
    restore_resizable(&mut rest, before);
    if Some(&rest) != before.as_object() {
        errors.forbidden(path, "only cpu and memory resources are mutable");
    }
}

fn nothing_removed(errors: &mut ErrorList, path: Path<'_>, new: &Value, old: &Value) {
    for (part, detail) in
        [("requests", "resource requests cannot be removed"), ("limits", "resource limits cannot be removed")]
    {
        let had = |resource: &&str| old[part].get(resource).is_some() && new[part].get(resource).is_none();
        if RESIZABLE.iter().any(had) {
            errors.forbidden(path.child(part), detail);
        }
    }
}

/// Puts back what may change, so that the rest must be equal.
fn restore_resizable(rest: &mut Object, old: &Value) {
    for containers in ["containers", "initContainers"] {
        let Some(Value::Array(given)) = rest.get_mut(containers) else { continue };
        for (container, before) in given.iter_mut().zip(list(old, containers)) {
            let sidecar = containers == "containers" || before["restartPolicy"] == "Always";
            if let (true, Value::Object(container)) = (sidecar, container) {
                restore_resizable_of(container, before);
            }
        }
    }
    restore_resizable_of(rest, old);
}

fn restore_resizable_of(holder: &mut Object, old: &Value) {
    let mut resources = holder.get("resources").and_then(Value::as_object).cloned().unwrap_or_default();
    for part in ["requests", "limits"] {
        let mut amounts = resources.get(part).and_then(Value::as_object).cloned().unwrap_or_default();
        for resource in RESIZABLE {
            put(&mut amounts, resource, old["resources"][part].get(resource));
        }
        let amounts = (!amounts.is_empty()).then_some(Value::Object(amounts));
        put(&mut resources, part, amounts.as_ref().or_else(|| old["resources"].get(part)));
    }
    let resources = (!resources.is_empty()).then_some(Value::Object(resources));
    put(holder, "resources", resources.as_ref().or_else(|| old.get("resources")));
}
