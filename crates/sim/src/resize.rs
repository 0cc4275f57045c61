//! A pod's resources are changed while it runs: what its node has set aside for it, what its containers have, and what
//! is still to be decided.
//!
//! As a kubelet, in its words: a change that the node has room for is allocated, and the containers have it a moment
//! later; any other is deferred and looked at again whenever something on the node is set free.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission::Rejection;
use crate::pod::{ContainerView, Pod, PodSpec, PodView, Report, later};
use crate::pod_events::Moment;

/// How long a container runtime takes.
const ACTUATION: Duration = Duration::from_secs(1);

/// A pod whose containers do not have what its spec says.
#[derive(Debug)]
pub(crate) struct Resize {
    /// The pod as its node has room for it.
    pub(crate) allocated: Arc<PodView>,
    /// The pod as its containers run.
    pub(crate) actual: Arc<PodView>,
    /// Why the node does not take the change.
    pub(crate) deferred: Option<Deferred>,
    /// What is being carried out.
    pub(crate) progress: Option<Progress>,
}

/// A change that the node has no room for.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) message: String,
    pub(crate) generation: i64,
    pub(crate) since: Timestamp,
}

/// A change that is being carried out.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) generation: i64,
    pub(crate) since: Timestamp,
    pub(crate) ends_at: Timestamp,
}

impl Resize {
    /// The pod asks for something else than what it has.
    pub(crate) fn of(had: Arc<PodView>) -> Self {
        Resize { actual: Arc::clone(&had), allocated: had, deferred: None, progress: None }
    }

    /// The node has room for it.
    pub(crate) fn allocate(&mut self, view: &Arc<PodView>, now: Timestamp) -> Moment {
        self.allocated = Arc::clone(view);
        self.deferred = None;
        let generation = view.metadata.generation;
        self.progress = Some(Progress { generation, since: now, ends_at: later(now, ACTUATION) });
        Moment::resize("ResizeStarted", format!("Pod resize started: {}", summary(&view.spec, generation, "")))
    }

    /// The node has no room for it; it is told once for each change.
    pub(crate) fn defer(&mut self, view: &PodView, why: Rejection, now: Timestamp) -> Option<Moment> {
        let generation = view.metadata.generation;
        let known = self.deferred.as_ref();
        let is_new = known.is_none_or(|known| known.generation != generation);
        let since = known.map_or(now, |known| known.since);
        let summary = summary(&view.spec, generation, &why.message);
        let note = format!("Pod resize {}: {summary}", why.reason);
        self.deferred = Some(Deferred { message: why.message, generation, since });
        is_new.then(|| Moment::resize_deferred(note))
    }

    /// The containers have what was allocated, if it is time.
    pub(crate) fn complete(&mut self, now: Timestamp) -> Option<Moment> {
        let Progress { generation, .. } = self.progress.take_if(|progress| progress.ends_at <= now)?;
        self.actual = Arc::clone(&self.allocated);
        let summary = summary(&self.allocated.spec, generation, "");
        Some(Moment::resize("ResizeCompleted", format!("Pod resize completed: {summary}")))
    }

    /// Whether nothing is left to do for the pod that asks for this.
    pub(crate) fn is_over(&self, asked: &PodSpec) -> bool {
        self.deferred.is_none() && self.progress.is_none() && same_resources(asked, &self.allocated.spec)
    }
}

impl Pod {
    /// Its spec as the node has room for it.
    pub(crate) fn allocated(&self) -> &PodSpec {
        self.resize.as_ref().map_or(&self.view.spec, |resize| &resize.allocated.spec)
    }

    /// Its spec as its containers run.
    pub(crate) fn actual(&self) -> &PodSpec {
        self.resize.as_ref().map_or(&self.view.spec, |resize| &resize.actual.spec)
    }

    /// Its status has to be written.
    pub(crate) fn mark_changed(&mut self) {
        self.report = match self.report {
            Report::Current | Report::Due => Report::Due,
            Report::Sending | Report::SendingOld => Report::SendingOld,
        };
    }
}

/// Whether two versions of a pod ask for the same.
pub(crate) fn same_resources(one: &PodSpec, other: &PodSpec) -> bool {
    let all = |spec: &PodSpec| -> Vec<Box<str>> {
        spec.init_containers.iter().chain(&spec.containers).map(|each| each.resources.clone()).collect()
    };
    one.request == other.request && all(one) == all(other)
}

fn resources(container: &ContainerView) -> Value {
    serde_json::from_str(&container.resources).unwrap_or_else(|_| json!({}))
}

/// What is asked for, as events tell it.
fn summary(spec: &PodSpec, generation: i64, error: &str) -> String {
    let list = |containers: &[ContainerView]| -> Value {
        containers.iter().map(|each| json!({"name": each.name, "resources": resources(each)})).collect()
    };
    let mut parts = Vec::new();
    if !spec.init_containers.is_empty() {
        parts.push(format!("\"initContainers\":{}", list(&spec.init_containers)));
    }
    parts.push(format!("\"containers\":{}", list(&spec.containers)));
    parts.push(format!("\"generation\":{generation}"));
    if !error.is_empty() {
        parts.push(format!("\"error\":{}", json!(error)));
    }
    format!("{{{}}}", parts.join(","))
}

/// What a status says of a container's resources: what is allocated to it, and what it has.
pub(crate) fn report(status: &mut Value, allocated: Option<&ContainerView>, actual: Option<&ContainerView>) {
    let given = |container: Option<&ContainerView>| container.filter(|one| !one.resources.is_empty()).map(resources);
    if let Some(actual) = given(actual) {
        status["resources"] = actual;
    }
    if let Some(mut allocated) = given(allocated) {
        let requests = allocated["requests"].take();
        if !requests.is_null() {
            status["allocatedResources"] = requests;
        }
    }
}

/// The container of this name.
pub(crate) fn container<'a>(spec: &'a PodSpec, name: &str) -> Option<&'a ContainerView> {
    spec.containers.iter().chain(&spec.init_containers).find(|container| container.name == name)
}
