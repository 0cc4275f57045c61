//! One bound pod on a simulated node, from ContainerCreating to its removal.
//!
//! Pods run for ever unless annotated: `bayplan.dev/run-for: 5s` ends every container after that time with the exit
//! code of `bayplan.dev/exit-code` (0 when absent), and the restart policy decides what follows.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::pod::ContainerPort;
use bayplan_model::resources::Amounts;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::admission::Rejection;
use crate::annotations::{EXIT_CODE, RUN_FOR, UnreadableAnnotations, parse_duration, parse_exit_code};

/// The kubelet's back-off between restarts of a crashing container.
const RESTART_DELAY_MIN: Duration = Duration::from_secs(10);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(300);
/// How long a pod waits for an address when its node has none left.
const ADDRESS_RETRY: Duration = Duration::from_secs(1);

/// What a simulated kubelet reads of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodView {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The deciding part of the spec.
    #[serde(default)]
    pub spec: PodSpec,
    /// The deciding part of the status.
    #[serde(default)]
    pub status: PodStatus,
}

/// What a simulated kubelet reads of a Pod's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "wire::PodSpec")]
pub struct PodSpec {
    /// The node the pod is bound to.
    pub node_name: String,
    /// `Always`, `OnFailure` or `Never`.
    pub restart_policy: String,
    /// True when the pod has the node's address.
    pub host_network: bool,
    /// The containers.
    pub containers: Vec<ContainerView>,
    /// The init containers, sidecars among them.
    pub init_containers: Vec<ContainerView>,
    /// What it asks of the node.
    pub request: Amounts,
    /// The ports of the node that it opens.
    pub host_ports: Vec<ContainerPort>,
}

/// What a simulated kubelet reads of a container.
#[derive(Clone, Debug, Default)]
pub struct ContainerView {
    /// Name.
    pub name: String,
    /// Image.
    pub image: String,
    /// True for init containers that run beside the others instead of before them.
    pub is_sidecar: bool,
}

/// What a simulated kubelet reads of a Pod's status: what an earlier run of it has written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Phase.
    pub phase: String,
    /// The pod's address.
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// When the kubelet first saw the pod.
    pub start_time: Option<Timestamp>,
    /// Conditions, by type and status.
    pub conditions: Vec<Condition>,
}

/// The deciding part of a condition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, for a program.
    pub reason: Option<String>,
    /// When it last changed.
    pub last_transition_time: Option<Timestamp>,
}

impl HasMeta for PodView {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// How long pods take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) start: Duration,
    pub(crate) stop: Duration,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Sandbox and images are being made ready.
    Creating,
    /// This init container runs; those before it are done, or run beside it.
    Initializing(usize),
    /// Every container runs.
    Running,
    /// The containers crashed and wait to be started again.
    BackingOff,
    /// The containers have ended for good.
    Finished,
    /// Nothing of it is left but the object.
    Stopped,
}

/// A pod and what has happened to it.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) view: Arc<PodView>,
    pub(crate) stage: Stage,
    pub(crate) address: Option<Ipv4Addr>,
    /// When the kubelet first saw the pod.
    pub(crate) seen_at: Timestamp,
    pub(crate) started_at: Timestamp,
    pub(crate) finished_at: Timestamp,
    pub(crate) exit_code: i32,
    pub(crate) restarts: u32,
    /// When the stage ends, if time ends it.
    pub(crate) deadline: Option<Timestamp>,
    /// The last deadline a timer was set for.
    pub(crate) armed: Option<Timestamp>,
    /// Whether its node takes it.
    pub(crate) admission: Admission,
    /// True while the containers are being stopped.
    pub(crate) stopping: bool,
    /// What the API server has been told of, and what it has yet to be told.
    pub(crate) report: Report,
    /// True once a status of ours has been accepted.
    pub(crate) told: bool,
    /// True once the removal of the object has been asked for.
    pub(crate) removed: bool,
    /// The pod's annotations that could not be read.
    pub(crate) annotations: UnreadableAnnotations,
}

/// Whether a node takes a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Not decided.
    Open,
    /// It does.
    Admitted,
    /// It does not.
    Rejected(Rejection),
}

/// How far the API server has been told. One write at a time, so that none can overtake another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// Everything has been told.
    Told,
    /// Something has to be told.
    Due,
    /// A write is under way.
    Sending,
    /// A write is under way and is old already.
    SendingOld,
}

/// What a pod's time brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing to tell.
    Nothing,
    /// The status has changed.
    Changed,
}

impl Pod {
    /// A pod the kubelet sees for the first time; one that ran before the kubelet was restarted goes on running.
    pub(crate) fn new(view: Arc<PodView>, delays: Delays, now: Timestamp) -> Self {
        let mut pod = Pod {
            stage: Stage::Creating,
            address: view.status.pod_ip.parse().ok(),
            seen_at: view.status.start_time.unwrap_or(now),
            started_at: now,
            finished_at: now,
            exit_code: 0,
            restarts: 0,
            deadline: None,
            armed: None,
            admission: Admission::Admitted,
            stopping: false,
            report: Report::Due,
            told: false,
            removed: false,
            annotations: UnreadableAnnotations::default(),
            view,
        };
        match pod.view.status.phase.as_str() {
            "Succeeded" | "Failed" => {
                pod.stage = Stage::Finished;
                pod.report = Report::Told;
            }
            "Running" if pod.address.is_some() => {
                pod.started_at = pod.seen_at;
                pod.run(pod.started_at);
                pod.report = Report::Told;
            }
            _ => {
                pod.admission = Admission::Open;
                pod.deadline = Some(later(now, delays.start));
            }
        }
        pod
    }

    /// Whether it takes part of the node.
    pub(crate) fn counts(&self) -> bool {
        self.admission == Admission::Admitted && !matches!(self.stage, Stage::Finished | Stage::Stopped)
    }

    /// The node does not take it: it has failed before it began.
    pub(crate) fn reject(&mut self, rejection: Rejection) {
        self.admission = Admission::Rejected(rejection);
        self.stage = Stage::Finished;
        self.deadline = None;
        self.report = Report::Due;
    }

    /// A pod's object has changed: only its deletion matters here, and a readiness that somebody else took away.
    pub(crate) fn update(&mut self, view: Arc<PodView>, delays: Delays, now: Timestamp) {
        self.view = view;
        // While a node is silent its pods are marked as not ready, without the reason a kubelet would give.
        let doubted = |c: &Condition| c.r#type == "Ready" && c.status == "False" && c.reason.is_none();
        if self.stage == Stage::Running
            && self.report == Report::Told
            && self.view.status.conditions.iter().any(doubted)
        {
            self.report = Report::Due;
        }
        if self.view.metadata.deletion_timestamp.is_none() || self.stage == Stage::Stopped {
            return;
        }
        let grace = self.view.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        let nothing_runs = matches!(self.stage, Stage::Creating | Stage::Finished | Stage::BackingOff);
        let stop = if nothing_runs { now } else { later(now, grace.min(delays.stop)) };
        // A second deletion may shorten the grace, never lengthen it.
        self.deadline = Some(if self.stopping { self.deadline.map_or(stop, |at| at.min(stop)) } else { stop });
        self.stopping = true;
    }

    /// Lets the time up to `now` pass; `take_address` gives the pod its address.
    pub(crate) fn advance(
        &mut self,
        delays: Delays,
        now: Timestamp,
        mut take_address: impl FnMut(&PodView) -> Option<Ipv4Addr>,
    ) -> Outcome {
        let mut outcome = Outcome::Nothing;
        // What follows counts from now, not from the deadline: a fleet that slept does not live through the past.
        while self.deadline.is_some_and(|at| at <= now) {
            if self.stopping {
                return self.stop(now);
            }
            outcome = Outcome::Changed;
            match self.stage {
                Stage::Creating => {
                    self.address = self.address.or_else(|| take_address(&self.view));
                    if self.address.is_none() {
                        self.deadline = Some(later(now, ADDRESS_RETRY));
                        return Outcome::Nothing;
                    }
                    self.initialize(0, now, delays);
                }
                Stage::Initializing(index) => self.initialize(index + 1, now, delays),
                Stage::Running => self.exit(now),
                Stage::BackingOff => self.run(now),
                Stage::Finished | Stage::Stopped => self.deadline = None,
            }
        }
        outcome
    }

    /// Starts the init containers from `index` on: sidecars are passed at once, others take the start delay each.
    fn initialize(&mut self, index: usize, at: Timestamp, delays: Delays) {
        let rest = self.view.spec.init_containers.iter().enumerate().skip(index);
        match rest.into_iter().find(|(_, container)| !container.is_sidecar) {
            Some((index, _)) => {
                self.stage = Stage::Initializing(index);
                self.deadline = Some(later(at, delays.start));
            }
            None => self.run(at),
        }
    }

    fn run(&mut self, at: Timestamp) {
        self.stage = Stage::Running;
        self.started_at = at;
        self.deadline = self.annotation(RUN_FOR).and_then(parse_duration).map(|time| later(at, time));
    }

    /// The containers end by themselves.
    fn exit(&mut self, at: Timestamp) {
        self.finished_at = at;
        self.exit_code = self.annotation(EXIT_CODE).and_then(parse_exit_code).unwrap_or(0);
        let again = match self.view.spec.restart_policy.as_str() {
            "Never" => false,
            "OnFailure" => self.exit_code != 0,
            _ => true,
        };
        if !again {
            self.stage = Stage::Finished;
            self.deadline = None;
            return;
        }
        // The first restart is immediate, the next ones wait longer and longer.
        let factor = self.restarts.checked_sub(1).map_or(0, |n| 1u32.checked_shl(n).unwrap_or(u32::MAX));
        let delay = RESTART_DELAY_MIN.saturating_mul(factor).min(RESTART_DELAY_MAX);
        self.restarts += 1;
        self.stage = Stage::BackingOff;
        self.deadline = Some(later(at, delay));
    }

    /// The containers have been stopped; a pod in which none ran has no last words.
    fn stop(&mut self, now: Timestamp) -> Outcome {
        let ran = matches!(self.stage, Stage::Running | Stage::Initializing(_));
        self.stage = Stage::Stopped;
        self.deadline = None;
        if ran {
            self.finished_at = now;
            self.exit_code = 0;
            return Outcome::Changed;
        }
        if self.report == Report::Due {
            self.report = Report::Told;
        }
        Outcome::Nothing
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.view.metadata.annotations.get(name).map(String::as_str)
    }
}

/// Later by a delay, or as late as time goes.
pub(crate) fn later(at: Timestamp, delay: Duration) -> Timestamp {
    SignedDuration::try_from(delay).ok().and_then(|delay| at.checked_add(delay).ok()).unwrap_or(Timestamp::MAX)
}

mod wire {
    //! The JSON form of what is read of a spec: resources are summed up at once, their maps are large.

    use bayplan_model::pod::{self, Container, Pod};
    use bayplan_model::resources::{Amounts, RequestRules, ResourceList, ResourceRequirements};
    use serde::Deserialize;

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct PodSpec {
        node_name: String,
        restart_policy: String,
        host_network: bool,
        containers: Vec<Container>,
        init_containers: Vec<Container>,
        overhead: ResourceList,
        resources: Option<ResourceRequirements>,
    }

    impl From<PodSpec> for super::PodSpec {
        fn from(spec: PodSpec) -> Self {
            let PodSpec { containers, init_containers, overhead, resources, .. } = spec;
            let whole = pod::PodSpec { containers, init_containers, overhead, resources, ..pod::PodSpec::default() };
            let pod = Pod { spec: whole, ..Pod::default() };
            let view = |container: Container| super::ContainerView {
                is_sidecar: container.is_sidecar(),
                name: container.name,
                image: container.image,
            };
            super::PodSpec {
                node_name: spec.node_name,
                restart_policy: spec.restart_policy,
                host_network: spec.host_network,
                request: Amounts::of(&RequestRules::default().requests(&pod)),
                host_ports: pod.host_ports().cloned().collect(),
                containers: pod.spec.containers.into_iter().map(view).collect(),
                init_containers: pod.spec.init_containers.into_iter().map(view).collect(),
            }
        }
    }
}
