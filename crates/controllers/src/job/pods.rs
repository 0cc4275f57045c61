//! The JSON of the pods that a Job creates.

use std::sync::Arc;

use bayplan_model::api::encode;
use bytes::Bytes;
use serde_json::{Value, json};

use super::indexes::COMPLETION_INDEX;
use super::object::{BATCH_V1, Job, TRACKING_FINALIZER};
use super::tally::{FAILURE_COUNT, IGNORED_FAILURE_COUNT, inherited_failures};
use crate::error::Error;
use crate::pod::Pod;
use crate::pod_control::pod_object;
use crate::workload::controller_reference;

/// The environment variable with a pod's index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// The longest prefix the API server completes into a name without cutting it.
const GENERATE_NAME_MAX: usize = 58;

/// What the pods of a Job have in common.
pub(super) struct PodMaker<'a> {
    job: &'a Job,
    pod: Value,
}

impl<'a> PodMaker<'a> {
    pub(super) fn new(job: &'a Job) -> Result<Self, Error> {
        let owner = controller_reference(BATCH_V1, "Job", &job.metadata);
        let mut template = (*job.spec.template).clone();
        if job.is_indexed() {
            // The labels are those of the index at least, so that a template without any is none less.
            template["metadata"]["labels"][COMPLETION_INDEX] = json!("");
        }
        let mut pod = pod_object(&template, &owner)?;
        let finalizers = pod["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let others = finalizers.into_iter().filter(|finalizer| finalizer != TRACKING_FINALIZER);
        pod["metadata"]["finalizers"] = others.chain([json!(TRACKING_FINALIZER)]).collect();
        if job.is_indexed() {
            for list in ["initContainers", "containers"] {
                let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
                containers.into_iter().flatten().for_each(add_index_variable);
            }
        }
        Ok(PodMaker { job, pod })
    }

    /// A pod without index.
    pub(super) fn plain(&self) -> Bytes {
        encode(&self.pod)
    }

    /// The pod of an index; it takes the place of one that failed, if any.
    pub(super) fn of_index(&self, index: i64, replaced: Option<&Arc<Pod>>) -> Bytes {
        let (job, mut pod) = (self.job, self.pod.clone());
        let name = &job.metadata.name;
        let metadata = &mut pod["metadata"];
        metadata["generateName"] = json!(generate_name(name, index));
        metadata["annotations"][COMPLETION_INDEX] = json!(index.to_string());
        metadata["labels"][COMPLETION_INDEX] = json!(index.to_string());
        if job.spec.backoff_limit_per_index.is_some() {
            let (failures, ignored) = inherited_failures(job, replaced);
            metadata["annotations"][FAILURE_COUNT] = json!(failures.to_string());
            if ignored > 0 {
                metadata["annotations"][IGNORED_FAILURE_COUNT] = json!(ignored.to_string());
            }
        }
        pod["spec"]["hostname"] = json!(format!("{name}-{index}"));
        encode(&pod)
    }
}

/// The job's name gives way, never the index.
fn generate_name(job: &str, index: i64) -> String {
    let suffix = format!("-{index}-");
    let room = GENERATE_NAME_MAX - suffix.len();
    // Names of Jobs are ASCII; others are cut where they may be.
    let cut = (0..=room.min(job.len())).rev().find(|at| job.is_char_boundary(*at)).unwrap_or(0);
    format!("{}{suffix}", &job[..cut])
}

fn add_index_variable(container: &mut Value) {
    let Some(container) = container.as_object_mut() else { return };
    let variables = container.entry("env").or_insert_with(|| json!([]));
    if variables.is_null() {
        *variables = json!([]);
    }
    let Some(variables) = variables.as_array_mut() else { return };
    if variables.iter().any(|variable| variable["name"] == INDEX_VARIABLE) {
        return;
    }
    let path = format!("metadata.labels['{COMPLETION_INDEX}']");
    variables.push(json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_gives_way_to_the_index() {
        assert_eq!(generate_name("short", 7), "short-7-");
        assert_eq!(generate_name(&"x".repeat(63), 123), format!("{}-123-", "x".repeat(53)));
        assert_eq!(generate_name(&"x".repeat(55), 1), format!("{}-1-", "x".repeat(55)));
    }
}
