//! Workloads as their controllers expand them: the pods of a template, with names, labels, owners and claims.

use std::sync::Arc;

use bayplan_controllers::{pod_template_hash, revisions};
use bayplan_model::meta::OwnerReference;
use bayplan_model::node::LABEL_HOSTNAME;
use bayplan_model::pod::Pod;
use bayplan_scheduler::{Object, TieBreak};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Error, Options};
use crate::completion::{Completion, display_name, text};

/// The label with which a Deployment tells its ReplicaSets apart.
pub(super) const TEMPLATE_HASH: &str = "pod-template-hash";

/// How the pods of a workload differ from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// `<owner>-0`, `<owner>-1`, … without anything else.
    Number,
    /// The number is an ordinal, with a StatefulSet's labels and volume claims.
    Ordinal,
    /// The number is the index of an indexed Job.
    CompletionIndex,
}

/// What the pods of a workload are made from.
#[derive(Clone, Debug)]
pub(super) struct Template {
    /// One of the pods, completed, without a name.
    pod: Arc<Pod>,
    /// As written, for claims that are made for each pod.
    written: Value,
    /// What the names begin with.
    base: String,
    naming: Naming,
    /// The volume claims that each pod gets, by their templates.
    claims: Vec<Value>,
}

/// Of which kind a workload is, and how many pods it wants.
pub(super) struct Workload {
    /// `Deployment`, `Job`, …
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// How many pods it wants; none for a DaemonSet.
    pub(super) replicas: Option<usize>,
    /// The first ordinal.
    pub(super) start: usize,
    /// The whole object, completed.
    pub(super) object: Value,
}

/// Whether a kind makes pods.
pub(crate) fn is_workload(object: &Value) -> bool {
    let kinds = ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController"];
    kinds.contains(&text(object, "/kind"))
}

impl Workload {
    /// Reads a workload; a CronJob is the next Job it makes.
    pub(super) fn of(object: Value, replicas: Option<usize>) -> Workload {
        let object = if text(&object, "/kind") == "CronJob" { next_job(&object) } else { object };
        let kind = text(&object, "/kind").to_owned();
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_u64).map(|number| number as usize);
        let wanted = match kind.as_str() {
            "DaemonSet" => None,
            "Job" => {
                let parallelism = number("/spec/parallelism").unwrap_or(1);
                let parallelism = parallelism.min(number("/spec/completions").unwrap_or(usize::MAX));
                let suspended = object.pointer("/spec/suspend") == Some(&Value::Bool(true));
                Some(if suspended { 0 } else { parallelism })
            }
            _ => Some(number("/spec/replicas").unwrap_or(1)),
        };
        Workload {
            namespace: text(&object, "/metadata/namespace").to_owned(),
            name: text(&object, "/metadata/name").to_owned(),
            replicas: wanted.map(|wanted| replicas.unwrap_or(wanted)),
            start: number("/spec/ordinals/start").unwrap_or(0),
            kind,
            object,
        }
    }

    /// The pods' template as the API has it.
    pub(super) fn template(&self) -> &Value {
        self.object.pointer("/spec/template").unwrap_or(&Value::Null)
    }

    /// The ReplicaSet that a Deployment makes for its template.
    pub(super) fn replica_set(&self) -> Value {
        let hash = pod_template_hash::hash(self.template(), None);
        let mut template = self.template().clone();
        template["metadata"]["labels"][TEMPLATE_HASH] = hash.clone().into();
        let mut selector = self.object.pointer("/spec/selector").cloned().unwrap_or_else(|| json!({}));
        selector["matchLabels"][TEMPLATE_HASH] = hash.clone().into();
        json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": format!("{}-{hash}", self.name),
                "namespace": self.namespace,
                "uid": format!("{}/{}-{hash}", self.namespace, self.name),
                "labels": template["metadata"]["labels"],
                "ownerReferences": [owner(&self.object)],
            },
            "spec": {"replicas": self.replicas.unwrap_or(1), "selector": selector, "template": template},
        })
    }
}

/// The Job that a CronJob makes when it is due.
fn next_job(cron_job: &Value) -> Value {
    let name = text(cron_job, "/metadata/name");
    let mut job = cron_job.pointer("/spec/jobTemplate").cloned().unwrap_or_else(|| json!({}));
    job["apiVersion"] = "batch/v1".into();
    job["kind"] = "Job".into();
    if !job["metadata"].is_object() {
        job["metadata"] = json!({});
    }
    job["metadata"]["name"] = format!("{name}-0").into();
    job["metadata"]["namespace"] = text(cron_job, "/metadata/namespace").into();
    job["metadata"]["ownerReferences"] = json!([owner(cron_job)]);
    job
}

/// A reference to the controller of what it makes.
pub(super) fn owner(object: &Value) -> OwnerReference {
    let uid = text(object, "/metadata/uid");
    OwnerReference {
        api_version: text(object, "/apiVersion").to_owned(),
        kind: text(object, "/kind").to_owned(),
        name: text(object, "/metadata/name").to_owned(),
        uid: if uid.is_empty() { display_name(object) } else { uid.to_owned() },
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

impl Template {
    /// The template of what `owner` makes: a ReplicaSet, a StatefulSet, a Job, …
    pub(super) fn new(owner_object: &Value, completion: &Completion, options: &Options) -> Result<Self, Error> {
        let kind = text(owner_object, "/kind");
        let naming = match kind {
            "StatefulSet" => Naming::Ordinal,
            "Job" if text(owner_object, "/spec/completionMode") == "Indexed" => Naming::CompletionIndex,
            _ => Naming::Number,
        };
        let base = text(owner_object, "/metadata/name").to_owned();
        let mut pod = owner_object.pointer("/spec/template").cloned().unwrap_or_else(|| json!({}));
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        if !pod["metadata"].is_object() {
            pod["metadata"] = json!({});
        }
        pod["metadata"]["namespace"] = text(owner_object, "/metadata/namespace").into();
        pod["metadata"]["name"] = base.clone().into();
        pod["metadata"]["ownerReferences"] = json!([owner(owner_object)]);
        if kind == "Job" {
            for label in ["batch.kubernetes.io/job-name", "job-name"] {
                pod["metadata"]["labels"][label] = base.clone().into();
            }
        }
        if naming == Naming::Ordinal {
            let template = owner_object.pointer("/spec/template").unwrap_or(&Value::Null);
            let revision = revisions::name(&base, &revisions::hash(&revisions::data(template), 0));
            pod["metadata"]["labels"][revisions::REVISION_LABEL] = revision.into();
        }
        let mut claims: Vec<Value> = Vec::new();
        for claim in owner_object.pointer("/spec/volumeClaimTemplates").and_then(Value::as_array).into_iter().flatten()
        {
            let name = text(claim, "/metadata/name").to_owned();
            let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
            if !pod["spec"]["volumes"].is_array() {
                pod["spec"]["volumes"] = json!([]);
            }
            if let Some(volumes) = pod["spec"]["volumes"].as_array_mut() {
                volumes.retain(|known| known["name"] != volume["name"]);
                volumes.push(volume);
            }
            claims.push(claim.clone());
        }
        Template::from_pod(pod, base, naming, claims, completion, options)
    }

    /// A template whose pods are copies of one that was given.
    pub(super) fn of_pod(pod: &Value, completion: &Completion, options: &Options) -> Result<Self, Error> {
        let name = text(pod, "/metadata/name").to_owned();
        let mut copy = pod.clone();
        if let Some(metadata) = copy["metadata"].as_object_mut() {
            metadata.remove("uid");
        }
        Template::from_pod(copy, format!("{name}-copy"), Naming::Number, Vec::new(), completion, options)
    }

    fn from_pod(
        pod: Value,
        base: String,
        naming: Naming,
        claims: Vec<Value>,
        completion: &Completion,
        options: &Options,
    ) -> Result<Self, Error> {
        let written = if options.as_written { pod } else { completion.complete(pod, options.now)? };
        let decoded = Pod::deserialize(&written).map_err(|error| Error::Unreadable(base.clone(), error))?;
        Ok(Template { pod: Arc::new(decoded), written, base, naming, claims })
    }

    /// The same template, whose pods have another priority.
    pub(super) fn with_priority(mut self, priority: i32) -> Self {
        Arc::make_mut(&mut self.pod).spec.priority = Some(priority);
        self.written["spec"]["priority"] = priority.into();
        self
    }

    /// The name of the pod with this number.
    pub(super) fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.base)
    }

    /// The namespace of the pods.
    pub(super) fn namespace(&self) -> &str {
        &self.pod.metadata.namespace
    }

    /// The pod with this number.
    pub(super) fn pod(&self, number: usize) -> Pod {
        let mut pod = (*self.pod).clone();
        let name = self.name(number);
        pod.metadata.uid = format!("{}/{name}", pod.metadata.namespace);
        let labels = &mut pod.metadata.labels;
        match self.naming {
            Naming::Number => {}
            Naming::Ordinal => {
                labels.insert("statefulset.kubernetes.io/pod-name".into(), name.clone());
                labels.insert("apps.kubernetes.io/pod-index".into(), number.to_string());
                for volume in &mut pod.spec.volumes {
                    let own = self.claims.iter().any(|claim| text(claim, "/metadata/name") == volume.name);
                    if let Some(claim) = volume.persistent_volume_claim.as_mut().filter(|_| own) {
                        claim.claim_name = format!("{}-{name}", volume.name);
                    }
                }
            }
            Naming::CompletionIndex => {
                let index = "batch.kubernetes.io/job-completion-index";
                labels.insert(index.into(), number.to_string());
                pod.metadata.annotations.insert(index.into(), number.to_string());
            }
        }
        pod.metadata.name = name;
        pod
    }

    /// The volume claims that a StatefulSet makes for the pod with this number.
    pub(super) fn volume_claims(&self, number: usize) -> impl Iterator<Item = Value> {
        let name = self.name(number);
        self.claims.iter().map(move |claim| {
            let mut claim = claim.clone();
            claim["apiVersion"] = "v1".into();
            claim["kind"] = "PersistentVolumeClaim".into();
            claim["metadata"]["namespace"] = self.namespace().into();
            claim["metadata"]["name"] = format!("{}-{name}", text(&claim, "/metadata/name")).into();
            claim
        })
    }

    /// The pod as it is written, for what other controllers make for it.
    pub(super) fn written(&self) -> &Value {
        &self.written
    }

    /// The pod that a DaemonSet makes for a node.
    pub(super) fn pod_on(&self, node: &str) -> Result<Pod, serde_json::Error> {
        let mut written = self.written.clone();
        let name = format!("{}-{node}", self.base);
        written["metadata"]["uid"] = format!("{}/{name}", self.namespace()).into();
        written["metadata"]["name"] = name.into();
        if !written["spec"]["affinity"].is_object() {
            written["spec"]["affinity"] = json!({});
        }
        if !written["spec"]["affinity"]["nodeAffinity"].is_object() {
            written["spec"]["affinity"]["nodeAffinity"] = json!({});
        }
        let this_node = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
        let required =
            &mut written["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        match required["nodeSelectorTerms"].as_array_mut() {
            // The controller replaces the fields and keeps the expressions of every term.
            Some(terms) => terms.iter_mut().for_each(|term| term["matchFields"] = this_node.clone()),
            None => *required = json!({"nodeSelectorTerms": [{"matchFields": this_node}]}),
        }
        let host_network = written["spec"]["hostNetwork"] == true;
        if !written["spec"]["tolerations"].is_array() {
            written["spec"]["tolerations"] = json!([]);
        }
        if let Some(tolerations) = written["spec"]["tolerations"].as_array_mut() {
            tolerations.extend(daemon_tolerations(host_network));
        }
        Pod::deserialize(&written)
    }
}

/// What the pods of DaemonSets tolerate: trouble of a node is no reason to keep its agents away.
fn daemon_tolerations(host_network: bool) -> impl Iterator<Item = Value> {
    let taints = [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    let network = host_network.then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    let toleration = |(key, effect)| json!({"key": key, "operator": "Exists", "effect": effect});
    taints.into_iter().chain(network).map(toleration)
}

/// Gives a copy of a node its own name.
pub(super) fn rename_node(node: &mut Value, name: &str) {
    let former = text(node, "/metadata/name").to_owned();
    node["metadata"]["name"] = name.into();
    if let Some(metadata) = node["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "annotations"] {
            metadata.remove(field);
        }
    }
    if let Some(labels) = node["metadata"]["labels"].as_object_mut() {
        for (key, value) in labels.iter_mut() {
            if key == LABEL_HOSTNAME || *value == *former {
                *value = name.into();
            }
        }
    }
}

/// The pods of a workload in a history, by number.
pub(crate) struct WorkloadPods {
    template: Template,
    written: Value,
    count: usize,
    start: usize,
    owners: Vec<Object>,
}

impl WorkloadPods {
    /// Expands a workload. DaemonSets have no number of pods, and none here.
    pub(crate) fn new(
        object: &Value,
        completion: &Completion,
        as_written: bool,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let options = Options {
            ties: TieBreak::SmallestName,
            preempt: false,
            as_written,
            percentage: None,
            namespace: String::new(),
            more_copies_max: 0,
            now,
        };
        let workload = Workload::of(object.clone(), None);
        let owner = if workload.kind == "Deployment" { workload.replica_set() } else { workload.object.clone() };
        let owners = Object::decode(&owner).and_then(Result::ok).into_iter().collect();
        Ok(WorkloadPods {
            template: Template::new(&owner, completion, &options)?,
            written: workload.template().clone(),
            count: workload.replicas.unwrap_or(0).min(super::PODS_PER_ACTION_MAX),
            start: workload.start,
            owners,
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The pod with this number, from 0.
    pub(crate) fn pod(&self, number: usize) -> Pod {
        self.template.pod(self.start + number)
    }

    /// Whether both make the same pods.
    pub(crate) fn same_template(&self, other: &WorkloadPods) -> bool {
        self.written == other.written
    }

    /// The controllers that the scheduler reads for spreading.
    pub(crate) fn take_owners(&mut self) -> Vec<Object> {
        std::mem::take(&mut self.owners)
    }
}
