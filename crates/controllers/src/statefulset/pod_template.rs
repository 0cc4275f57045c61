//! The pods and claims that a set creates: the template's, with a name, labels, a host name and volumes of their own.

use bayplan_model::meta::Map;
use serde_json::{Value, json};

use super::claimant;
use super::identity::{POD_INDEX_LABEL, POD_NAME_LABEL, pod_name};
use super::object::{ClaimTemplate, StatefulSet};
use crate::error::Error;
use crate::pod_control::pod_object;
use crate::revisions::REVISION_LABEL;
use crate::workload::template_map;

/// The pod with this number, as a revision's template describes it.
pub fn pod(set: &StatefulSet, template: &Value, revision: &str, ordinal: i64) -> Result<Value, Error> {
    let mut pod = pod_object(template, &claimant(set).owner_reference())?;
    let name = pod_name(set, ordinal);
    let metadata = &mut pod["metadata"];
    metadata["namespace"] = json!(set.metadata.namespace);
    identify(metadata, &name, ordinal);
    metadata["labels"][REVISION_LABEL] = json!(revision);
    pod["spec"]["hostname"] = json!(name);
    if !set.spec.service_name.is_empty() {
        pod["spec"]["subdomain"] = json!(set.spec.service_name);
    }
    if !set.spec.volume_claim_templates.is_empty() {
        pod["spec"]["volumes"] = volumes(set, ordinal, pod["spec"]["volumes"].take());
    }
    Ok(pod)
}

/// Gives a pod's metadata its name, and the labels that follow from it.
pub(super) fn identify(metadata: &mut Value, name: &str, ordinal: i64) {
    metadata["name"] = json!(name);
    metadata["labels"][POD_NAME_LABEL] = json!(name);
    metadata["labels"][POD_INDEX_LABEL] = json!(ordinal.to_string());
}

/// The volumes of a pod: one for each claim, and those that it has besides.
pub(super) fn volumes(set: &StatefulSet, ordinal: i64, others: Value) -> Value {
    let templates = &set.spec.volume_claim_templates;
    let claimed = templates.iter().map(|template| {
        let claim = claim_name(set, template, ordinal);
        json!({"name": template.name, "persistentVolumeClaim": {"claimName": claim}})
    });
    let others = if let Value::Array(volumes) = others { volumes } else { Vec::new() };
    let others = others.into_iter().filter(|volume| templates.iter().all(|template| volume["name"] != template.name));
    claimed.chain(others).collect()
}

/// The name of the claim that a pod has of a template.
pub(super) fn claim_name(set: &StatefulSet, template: &ClaimTemplate, ordinal: i64) -> String {
    format!("{}-{}-{ordinal}", template.name, set.metadata.name)
}

/// The claim that a pod has of a template.
pub(super) fn claim(set: &StatefulSet, template: &ClaimTemplate, ordinal: i64) -> Value {
    let mut claim = (*template.value).clone();
    let mut labels: Map = template_map(&claim, "/metadata/labels");
    for (key, value) in set.spec.selector.source().match_labels.iter() {
        labels.insert(key.clone(), value.clone());
    }
    claim["apiVersion"] = json!("v1");
    claim["kind"] = json!("PersistentVolumeClaim");
    claim["metadata"]["name"] = json!(claim_name(set, template, ordinal));
    claim["metadata"]["namespace"] = json!(set.metadata.namespace);
    claim["metadata"]["labels"] = json!(labels);
    claim
}
