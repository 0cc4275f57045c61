//! One bound pod on a simulated node, from ContainerCreating to its removal.
//!
//! Pods run for ever unless annotated: `bayplan.dev/run-for: 5s` ends every container after that time with the exit
//! code of `bayplan.dev/exit-code` (0 when absent), and the restart policy decides what follows. The pods of Jobs are
//! there to end: without the annotation they do so after a few seconds, unless it says `forever`.
//! `bayplan.dev/start-delay` says how long the pod takes to start; probes that wait delay its readiness.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::pod::ContainerPort;
use bayplan_model::resources::Amounts;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::admission::{NodeDemands, Rejection};
use crate::annotations::{
    EXIT_CODE, RUN_FOR, RunFor, START_DELAY, UnreadableAnnotations, parse_duration, parse_exit_code, parse_run_for,
};
use crate::pod_events::Moment;
use crate::resize::{Resize, same_resources};

/// The kubelet's back-off between restarts of a crashing container.
const RESTART_DELAY_MIN: Duration = Duration::from_secs(10);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(300);
/// How long the containers of a Job's pod run when nothing else is said.
const JOB_RUN: Duration = Duration::from_secs(3);
/// What a container that is told to stop ends with, unless it is one that is always restarted: those know how to.
const STOPPED: i32 = 143;
/// How long a pod waits for an address when its node has none left.
const ADDRESS_RETRY: Duration = Duration::from_secs(1);

/// The fields of a Pod that a simulated kubelet reads.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodView {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What the pod asks for.
    #[serde(default)]
    pub spec: PodSpec,
    /// What an earlier run of the kubelet wrote.
    #[serde(default)]
    pub status: PodStatus,
}

/// The fields of a Pod's spec that a simulated kubelet reads.
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
    /// The sum of its resource requests.
    pub request: Amounts,
    /// Its host ports.
    pub host_ports: Vec<ContainerPort>,
    /// What it asks of its node besides, if anything.
    pub demands: Option<Box<NodeDemands>>,
    /// Which of the taints of silent nodes it bears, as every pod does unless it says otherwise.
    pub bears_silence: [bool; 2],
}

/// The fields of a container that a simulated kubelet reads.
#[derive(Clone, Debug, Default)]
pub struct ContainerView {
    /// Name.
    pub name: String,
    /// Image.
    pub image: String,
    /// True for init containers that run beside the others instead of before them.
    pub is_sidecar: bool,
    /// How long its probes wait before they say that it is ready.
    pub ready_delay: Duration,
    /// What it may use, as JSON; empty when it says nothing.
    pub resources: Box<str>,
}

/// The fields of a Pod's status that a simulated kubelet reads: what an earlier run of it wrote.
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

/// The fields of a condition that a simulated kubelet reads.
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

/// How long pods take to start and to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) start: Duration,
    pub(crate) stop: Duration,
}

/// The stages of a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The sandbox and images are being prepared.
    Creating,
    /// This init container runs; those before it are done, or run beside it.
    Initializing(usize),
    /// Every container runs, and not all are ready.
    Unready,
    /// Every container runs and is ready.
    Running,
    /// The containers crashed and wait for their restart.
    BackingOff,
    /// The containers have ended for good.
    Finished,
    /// The containers are stopped; only the object is left.
    Stopped,
}

/// A pod and its progress.
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
    /// When the containers end by themselves, if they do.
    ends_at: Option<Timestamp>,
    /// What happened and has not been told.
    pub(crate) moments: Vec<Moment>,
    /// The last deadline a timer was set for.
    pub(crate) armed: Option<Timestamp>,
    /// What of its resources is not as its spec says; none of nearly every pod.
    pub(crate) resize: Option<Box<Resize>>,
    /// True once its resources were changed: what was said of that may have to be taken back.
    pub(crate) was_resized: bool,
    /// Whether the node admits it.
    pub(crate) admission: Admission,
    /// True while the containers are being stopped.
    pub(crate) stopping: bool,
    /// Whether the API server has its latest status.
    pub(crate) report: Report,
    /// True once a status of ours has been accepted.
    pub(crate) reported: bool,
    /// True once the deletion of the object has been requested.
    pub(crate) removed: bool,
    /// The pod's annotations that could not be read.
    pub(crate) annotations: UnreadableAnnotations,
}

/// Whether a node admits a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Not decided.
    Open,
    /// Admitted.
    Admitted,
    /// Rejected.
    Rejected(Rejection),
}

/// The state of status writes. One at a time, so that none can overtake another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The API server has the latest status.
    Current,
    /// A newer status has to be written.
    Due,
    /// A write is in flight.
    Sending,
    /// A write is in flight and outdated already.
    SendingOld,
}

/// The result of letting a pod's time pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing changed.
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
            ends_at: None,
            moments: Vec::new(),
            armed: None,
            resize: None,
            was_resized: false,
            admission: Admission::Admitted,
            stopping: false,
            report: Report::Due,
            reported: false,
            removed: false,
            annotations: UnreadableAnnotations::default(),
            view,
        };
        match pod.view.status.phase.as_str() {
            "Succeeded" | "Failed" => {
                pod.stage = Stage::Finished;
                pod.report = Report::Current;
            }
            "Running" if pod.address.is_some() => {
                pod.started_at = pod.seen_at;
                pod.run(pod.started_at);
                pod.report = Report::Current;
                // It was told when it happened.
                pod.moments.clear();
            }
            _ => {
                pod.admission = Admission::Open;
                pod.deadline = Some(later(now, pod.start_delay(delays)));
            }
        }
        pod
    }

    /// Whether it uses resources of the node.
    pub(crate) fn counts(&self) -> bool {
        self.admission == Admission::Admitted && !matches!(self.stage, Stage::Finished | Stage::Stopped)
    }

    /// The node rejects it: it fails before it starts.
    pub(crate) fn reject(&mut self, rejection: Rejection) {
        self.moments.push(Moment::rejected(&rejection));
        self.admission = Admission::Rejected(rejection);
        self.stage = Stage::Finished;
        self.deadline = None;
        self.report = Report::Due;
    }

    /// The pod's object changed: its deletion matters, its resources, and a `Ready` condition of another writer.
    pub(crate) fn update(&mut self, view: Arc<PodView>, delays: Delays, now: Timestamp) {
        let before = std::mem::replace(&mut self.view, view);
        if self.resize.is_none() && self.counts() && !same_resources(&before.spec, &self.view.spec) {
            self.resize = Some(Box::new(Resize::of(before)));
            self.was_resized = true;
        }
        // While a node is unreachable its pods are marked as not ready, without the reason a kubelet would give.
        let doubted = |c: &Condition| c.r#type == "Ready" && c.status == "False" && c.reason.is_none();
        if matches!(self.stage, Stage::Running)
            && self.report == Report::Current
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
        if !nothing_runs && !self.stopping {
            let moments: Vec<Moment> = self.running().map(Moment::killing).collect();
            self.moments.extend(moments);
        }
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
        // The next stage starts now, not at the deadline: a fleet that slept does not catch up.
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
                Stage::Unready if self.ends_at.is_none_or(|at| at > now) => {
                    self.stage = Stage::Running;
                    self.deadline = self.ends_at;
                }
                Stage::Unready | Stage::Running => self.exit(now),
                Stage::BackingOff => self.run(now),
                Stage::Finished | Stage::Stopped => self.deadline = None,
            }
        }
        outcome
    }

    /// Starts the init containers from `index` on: sidecars are passed at once, others take the start delay each.
    fn initialize(&mut self, index: usize, at: Timestamp, delays: Delays) {
        let view = Arc::clone(&self.view);
        for (index, container) in view.spec.init_containers.iter().enumerate().skip(index) {
            self.moments.extend(Moment::starts(container));
            if !container.is_sidecar {
                self.stage = Stage::Initializing(index);
                self.deadline = Some(later(at, self.start_delay(delays)));
                return;
            }
        }
        self.run(at);
    }

    fn run(&mut self, at: Timestamp) {
        let view = Arc::clone(&self.view);
        self.moments.extend(view.spec.containers.iter().flat_map(Moment::starts));
        self.started_at = at;
        self.ends_at = self.run_time().map(|time| later(at, time));
        let spec = &view.spec;
        let sidecars = spec.init_containers.iter().filter(|container| container.is_sidecar);
        let delay = spec.containers.iter().chain(sidecars).map(|container| container.ready_delay).max();
        match delay.filter(|delay| !delay.is_zero()) {
            None => {
                self.stage = Stage::Running;
                self.deadline = self.ends_at;
            }
            Some(delay) => {
                self.stage = Stage::Unready;
                self.deadline = self.ends_at.into_iter().chain([later(at, delay)]).min();
            }
        }
    }

    /// How long the containers run; none when nothing but a deletion ends them.
    fn run_time(&self) -> Option<Duration> {
        match self.annotation(RUN_FOR).map(parse_run_for) {
            Some(Some(RunFor::Time(time))) => Some(time),
            // One that cannot be read is told of, and does nothing.
            Some(Some(RunFor::Ever) | None) => None,
            None => self.is_of_a_job().then_some(JOB_RUN),
        }
    }

    /// Whether a Job made it, so that it is there to end.
    fn is_of_a_job(&self) -> bool {
        let owner = self.view.metadata.controller();
        owner.is_some_and(|owner| owner.kind == "Job" && owner.api_version.starts_with("batch/"))
            && self.view.spec.restart_policy != "Always"
    }

    /// The containers that run now.
    fn running(&self) -> impl Iterator<Item = &ContainerView> {
        let spec = &self.view.spec;
        let (init, main) = match self.stage {
            Stage::Initializing(current) => (current + 1, false),
            Stage::Unready | Stage::Running => (spec.init_containers.len(), true),
            _ => (0, false),
        };
        let started = spec.init_containers.iter().take(init).enumerate();
        let init = started.filter(move |(at, container)| container.is_sidecar || (!main && at + 1 == init));
        init.map(|(_, container)| container).chain(spec.containers.iter().filter(move |_| main))
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
        if !delay.is_zero() {
            let view = Arc::clone(&self.view);
            self.moments.extend(view.spec.containers.iter().map(|container| Moment::backs_off(container, &view)));
        }
        self.restarts += 1;
        self.stage = Stage::BackingOff;
        self.deadline = Some(later(at, delay));
    }

    /// The containers are stopped; a pod in which none ran reports no exit codes.
    fn stop(&mut self, now: Timestamp) -> Outcome {
        let ran = matches!(self.stage, Stage::Running | Stage::Unready | Stage::Initializing(_));
        self.stage = Stage::Stopped;
        self.deadline = None;
        if ran {
            self.finished_at = now;
            self.exit_code = if self.view.spec.restart_policy == "Always" { 0 } else { STOPPED };
            return Outcome::Changed;
        }
        if self.report == Report::Due {
            self.report = Report::Current;
        }
        Outcome::Nothing
    }

    fn start_delay(&self, delays: Delays) -> Duration {
        self.annotation(START_DELAY).and_then(parse_duration).unwrap_or(delays.start)
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.view.metadata.annotations.get(name).map(String::as_str)
    }
}

/// The time after a delay, or the latest representable time.
pub(crate) fn later(at: Timestamp, delay: Duration) -> Timestamp {
    SignedDuration::try_from(delay).ok().and_then(|delay| at.checked_add(delay).ok()).unwrap_or(Timestamp::MAX)
}

mod wire {
    //! The JSON form of what is read of a spec: resources are summed up at once, their maps are large.

    use std::collections::BTreeMap;
    use std::time::Duration;

    use bayplan_model::affinity::{Affinity, RequiredNodeAffinity};
    use bayplan_model::meta::Map;
    use bayplan_model::pod::{self, Container, ContainerPort, Pod};
    use bayplan_model::resources::{Amounts, RequestRules, ResourceList, ResourceRequirements};
    use bayplan_model::taint::Toleration;
    use serde::Deserialize;
    use serde_json::value::RawValue;

    use crate::admission::{NodeDemands, sort_tolerations};

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct PodSpec {
        node_name: String,
        restart_policy: String,
        host_network: bool,
        containers: Vec<WithProbes>,
        init_containers: Vec<WithProbes>,
        overhead: ResourceList,
        resources: Option<ResourceRequirements>,
        node_selector: Option<Map>,
        affinity: Option<Affinity>,
        tolerations: Option<Vec<Toleration>>,
        os: Option<Os>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Os {
        name: String,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct WithProbes {
        name: String,
        image: Option<String>,
        resources: Option<Box<RawValue>>,
        ports: Option<Vec<ContainerPort>>,
        restart_policy: Option<String>,
        startup_probe: Option<Probe>,
        readiness_probe: Option<Probe>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Probe {
        initial_delay_seconds: i64,
    }

    impl WithProbes {
        /// The probe of readiness begins when that of the start has succeeded.
        fn ready_delay(&self) -> Duration {
            let probes = [&self.startup_probe, &self.readiness_probe].into_iter().flatten();
            let seconds = probes.map(|probe| u64::try_from(probe.initial_delay_seconds).unwrap_or(0));
            Duration::from_secs(seconds.fold(0, u64::saturating_add))
        }

        fn resources_text(&self) -> Option<&str> {
            self.resources.as_ref().map(|raw| raw.get()).filter(|text| *text != "{}")
        }

        /// What it may use; a server that knows the kind lets nothing else through.
        fn requirements(&self) -> Option<ResourceRequirements> {
            serde_json::from_str(self.resources.as_ref()?.get()).ok()
        }

        fn container(self) -> Container {
            let resources = self.requirements().unwrap_or_default();
            Container {
                name: self.name,
                image: self.image.unwrap_or_default(),
                resources,
                ports: self.ports.unwrap_or_default(),
                restart_policy: self.restart_policy,
                ..Container::default()
            }
        }
    }

    impl From<PodSpec> for super::PodSpec {
        fn from(spec: PodSpec) -> Self {
            let PodSpec { containers, init_containers, overhead, resources, .. } = spec;
            let (bears_silence, tolerations) = sort_tolerations(spec.tolerations.unwrap_or_default());
            let selector = spec.node_selector.unwrap_or_default();
            let asks =
                !selector.is_empty() || spec.affinity.as_ref().is_some_and(|asked| asked.node_affinity.is_some());
            let demands = NodeDemands {
                affinity: asks.then(|| RequiredNodeAffinity::new(selector, spec.affinity.as_ref())),
                tolerations,
                os: spec.os.map(|os| os.name),
            };
            let all = containers.iter().chain(&init_containers).filter(|each| !each.ready_delay().is_zero());
            let delays: BTreeMap<String, Duration> = all.map(|each| (each.name.clone(), each.ready_delay())).collect();
            let all = containers.iter().chain(&init_containers);
            let mut texts: BTreeMap<String, Box<str>> =
                all.filter_map(|each| Some((each.name.clone(), Box::from(each.resources_text()?)))).collect();
            let [containers, init_containers] = [containers, init_containers]
                .map(|list| list.into_iter().map(WithProbes::container).collect::<Vec<Container>>());
            let whole = pod::PodSpec { containers, init_containers, overhead, resources, ..pod::PodSpec::default() };
            let pod = Pod { spec: whole, ..Pod::default() };
            let mut view = |container: Container| super::ContainerView {
                resources: texts.remove(&container.name).unwrap_or_default(),
                is_sidecar: container.is_sidecar(),
                ready_delay: delays.get(&container.name).copied().unwrap_or_default(),
                name: container.name,
                image: container.image,
            };
            super::PodSpec {
                node_name: spec.node_name,
                restart_policy: spec.restart_policy,
                host_network: spec.host_network,
                request: Amounts::of(&RequestRules::default().requests(&pod)),
                host_ports: pod.host_ports().cloned().collect(),
                demands: (!demands.is_empty()).then(|| Box::new(demands)),
                bears_silence,
                containers: pod.spec.containers.into_iter().map(&mut view).collect(),
                init_containers: pod.spec.init_containers.into_iter().map(view).collect(),
            }
        }
    }
}
