//! One simulated node: registers, renews its lease, reports its status, and runs the pods bound to it.
//!
//! - `kubectl delete node`: a kubelet does not register again until it is restarted. The simulated node deletes its
//!   pods itself, since nothing else would, and sends nothing until the Node is created again.
//! - A node that was there before and is selected is not registered but taken over, unless a kubelet renews its Lease.
//! - The annotation or label `bayplan.dev/fail: "true"` on the Node makes it stop sending (no lease, no status, no
//!   change of any pod) until it is removed.

mod room;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{self, DeleteOptions, PatchKind, Preconditions, Request, Resource, Verb, encode};
use bayplan_model::delta::Delta;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::status::{Status, reason};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::annotations::{UnreadableAnnotations, not_simulated};
use crate::identity::NodeIdentity;
use crate::lease::{self, LEASE_SECONDS, Lease};
use crate::node_view::NodeView;
use crate::pod::{Delays, Outcome, Pod, PodView, Report, Stage, later};
use crate::pod_addresses::PodAddresses;
use crate::pod_status;
use crate::template::{self, Lacks, NodeTemplate};

const NODES: Resource = Resource::new("", "v1", "nodes");
const PODS: Resource = Resource::new("", "v1", "pods");

/// A status in which nothing changed is reported this often.
pub(crate) const STATUS_INTERVAL: Duration = Duration::from_secs(300);
/// Heartbeats of all nodes are sent at multiples of this time, so that many share a wake-up, a commit and a frame of
/// each watch.
const BEAT_MS: i64 = 250;
/// A registration that was refused is tried again after this.
const REGISTER_RETRY: Duration = Duration::from_secs(5);

/// A change in the API server that may concern a simulated node.
#[derive(Clone, Debug)]
pub enum Event {
    /// A pod changed.
    Pod(Delta<Arc<PodView>>),
    /// A node changed.
    Node(Delta<Arc<NodeView>>),
}

/// A request to send; its final answer comes back with the ticket.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// Identifies the node and the purpose of the request.
    pub ticket: Ticket,
    /// The request.
    pub request: Request,
}

impl Ticket {
    /// Whether the request registers a node.
    pub fn is_registration(&self) -> bool {
        self.purpose == Purpose::Register
    }
}

/// The node that sent a request, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) node: usize,
    pub(crate) purpose: Purpose,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Register,
    Labels,
    NodeStatus,
    ReadLease,
    CreateLease,
    RenewLease,
    PodStatus(Arc<str>),
    PodRemoval(Arc<str>),
}

/// What a kubelet sets timers for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Register,
    ReadLease,
    Lease,
    Status,
    Pod(Arc<str>),
}

/// The requests and timers of one step of a kubelet.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) effects: Vec<Effect>,
    pub(crate) timers: Vec<(Timestamp, usize, Timer)>,
    /// What users should know.
    pub(crate) events: Vec<api::Event>,
    /// What happened to pods, as far as there is time to tell it.
    pub(crate) lives: Vec<api::Event>,
}

/// Whether the node is registered and sends heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registration {
    /// Not yet registered.
    New,
    /// Registered, and sending heartbeats.
    Up,
    /// Made to fail by `bayplan.dev/fail`.
    Failed,
    /// Its Node was deleted.
    Gone,
}

/// Where the Node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The fleet makes it.
    Fleet,
    /// Others made it, and it is selected.
    Others(Lacks),
}

/// A Node that an earlier run left.
#[derive(Clone, Copy, Debug)]
struct Left {
    is_ready: bool,
    has_labels: bool,
}

/// The node.
pub(crate) struct Kubelet {
    template: Arc<NodeTemplate>,
    identity: NodeIdentity,
    origin: Origin,
    delays: Delays,
    registration: Registration,
    node_uid: String,
    asked_to_fail: bool,
    ready_since: Timestamp,
    /// The Node by which pods are admitted; none until it says what they may use.
    admits_by: Option<Arc<NodeView>>,
    lease: Lease,
    reporting: bool,
    addresses: PodAddresses,
    pods: KeyedMap<Arc<str>, Pod>,
    /// The pods whose resources it has no room to change.
    deferred: BTreeSet<Arc<str>>,
    /// The Node's annotations that could not be read.
    annotations: UnreadableAnnotations,
    /// The Node as it was before the start, if it was.
    left: Option<Left>,
    /// True once it was said that another kubelet runs the node.
    left_alone: bool,
    /// The time between two renewals of its Lease.
    lease_renewal: Duration,
    /// The offset of its heartbeats in their period, which spreads those of a fleet.
    offset: f64,
}

impl Kubelet {
    /// A node that has not been started, with the period and the offset of its renewals.
    pub(crate) fn new(
        template: Arc<NodeTemplate>,
        identity: NodeIdentity,
        delays: Delays,
        (lease_renewal, offset): (Duration, f64),
    ) -> Self {
        Kubelet {
            addresses: PodAddresses::new(identity.pod_network),
            template,
            identity,
            origin: Origin::Fleet,
            delays,
            registration: Registration::New,
            node_uid: String::new(),
            asked_to_fail: false,
            ready_since: Timestamp::UNIX_EPOCH,
            admits_by: None,
            lease: Lease::Unknown,
            reporting: false,
            pods: KeyedMap::default(),
            deferred: BTreeSet::new(),
            annotations: UnreadableAnnotations::default(),
            left: None,
            lease_renewal,
            left_alone: false,
            offset,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.identity.name
    }

    pub(crate) fn pods(&self) -> usize {
        self.pods.len()
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registration != Registration::New
    }

    /// What decides about its addresses.
    pub(crate) fn index(&self) -> usize {
        self.identity.index
    }

    /// The uid of its Node, empty while that is unknown.
    pub(crate) fn node_uid(&self) -> &str {
        &self.node_uid
    }

    /// Whether others made its Node.
    pub(crate) fn is_selected(&self) -> bool {
        self.origin != Origin::Fleet
    }

    /// Whether its Node is in the cluster, as far as it knows.
    pub(crate) fn is_there(&self) -> bool {
        match self.registration {
            Registration::Up | Registration::Failed => true,
            Registration::New => !self.node_uid.is_empty(),
            Registration::Gone => false,
        }
    }

    /// The pods on it.
    pub(crate) fn pod_views(&self) -> impl Iterator<Item = &PodView> {
        self.pods.values().map(|pod| &*pod.view)
    }

    /// Takes over a node that others made, once it is known that no other kubelet runs it.
    pub(crate) fn take_over(&mut self, node: &Arc<NodeView>, now: Timestamp, out: &mut Outbox) {
        self.origin = Origin::Others(node.lacks());
        self.ready_since = now;
        self.node_changed(node, now, out);
        self.send(out, Purpose::ReadLease, lease::read(&self.identity.name));
    }

    /// Registers the node, or goes on with the Node that an earlier run left.
    pub(crate) fn start(&mut self, now: Timestamp, out: &mut Outbox) {
        let Some(left) = self.left.take() else { return self.register(now, out) };
        // Its Lease is there too, in all likelihood.
        self.lease = Lease::Found;
        self.registered(now, out);
        if !left.has_labels {
            self.write_labels(now, out);
        }
        if !left.is_ready {
            self.ready_since = now;
            self.report_node(now, out);
        }
    }

    /// Registers the node.
    pub(crate) fn register(&mut self, now: Timestamp, out: &mut Outbox) {
        self.ready_since = now;
        let node = template::node(&self.template, &self.identity, now);
        self.send(out, Purpose::Register, Request::collection(&NODES, "", Verb::Create(encode(&node))));
    }

    /// The Node was added or updated.
    pub(crate) fn node_changed(&mut self, node: &Arc<NodeView>, now: Timestamp, out: &mut Outbox) {
        let first = self.node_uid != node.metadata.uid;
        self.node_uid.clone_from(&node.metadata.uid);
        self.asked_to_fail = node.is_made_to_fail();
        self.annotations.check_node(node, &mut out.events);
        if self.addresses.use_network(&node.spec.pod_cidr) {
            self.pods.values().filter_map(|pod| pod.address).for_each(|address| self.addresses.keep(address));
        }
        if let Origin::Others(lacks) = &mut self.origin {
            *lacks = node.lacks();
        }
        let known = self.admits_by.is_some();
        // A node of others that says nothing of its resources takes pods once it has ours.
        if self.origin == Origin::Fleet || !node.lacks().resources {
            self.admits_by = Some(Arc::clone(node));
        }
        if self.registration == Registration::New {
            self.left = (self.origin == Origin::Fleet).then(|| self.left_behind(node, now));
            return; // The rest waits for the answer to the registration.
        }
        if self.asked_to_fail {
            self.registration = Registration::Failed;
            return;
        }
        let back = std::mem::replace(&mut self.registration, Registration::Up) != Registration::Up;
        let ready = node.ready().is_some_and(|c| c.status == "True");
        if let Some(since) = node.ready().and_then(|c| c.last_transition_time).filter(|_| ready) {
            self.ready_since = since;
        }
        if first {
            self.lease = Lease::Unknown;
        }
        if first || back {
            self.renew_lease(now, out);
        }
        if !ready || back {
            if !ready {
                self.ready_since = now;
            }
            self.report_node(now, out);
        }
        if back || !known {
            self.catch_up(now, out);
        }
    }

    /// The Node was deleted: deletes its pods.
    pub(crate) fn node_gone(&mut self, out: &mut Outbox) {
        self.node_uid.clear();
        self.left = None;
        if self.registration == Registration::New {
            return;
        }
        self.registration = Registration::Gone;
        let mut uids: Vec<Arc<str>> = self.pods.keys().cloned().collect();
        uids.sort();
        for uid in uids {
            self.remove_pod(&uid, out);
        }
    }

    /// A pod of this node was added or updated.
    pub(crate) fn pod_changed(&mut self, view: &Arc<PodView>, now: Timestamp, out: &mut Outbox) {
        let uid: Arc<str> = view.metadata.uid.as_str().into();
        if !self.pods.contains_key(&uid) {
            let pod = Pod::new(Arc::clone(view), self.delays, now);
            if let Some(address) = pod.address {
                self.addresses.keep(address);
            }
            self.pods.insert(Arc::clone(&uid), pod);
        }
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.update(Arc::clone(view), self.delays, now);
            pod.annotations.check_pod(view, &mut out.events);
        }
        if self.resize_pod(&uid, now, out) {
            self.resize_deferred(now, out);
        }
        self.advance_pod(&uid, now, out);
    }

    /// A pod of this node was deleted.
    pub(crate) fn pod_gone(&mut self, uid: &str, now: Timestamp, out: &mut Outbox) {
        if let Some(address) = self.pods.remove(uid).and_then(|pod| pod.address) {
            self.addresses.free(address);
        }
        self.deferred.remove(uid);
        self.resize_deferred(now, out);
    }

    /// A timer fired.
    pub(crate) fn fire(&mut self, timer: Timer, now: Timestamp, out: &mut Outbox) {
        match timer {
            Timer::Register => self.register(now, out),
            Timer::ReadLease => self.send(out, Purpose::ReadLease, lease::read(&self.identity.name)),
            Timer::Lease => {
                self.renew_lease(now, out);
                out.timers.push((beat(later(now, self.lease_renewal)), self.identity.id, Timer::Lease));
            }
            Timer::Status => {
                self.report_node(now, out);
                out.timers.push((beat(later(now, STATUS_INTERVAL)), self.identity.id, Timer::Status));
            }
            Timer::Pod(uid) => self.advance_pod(&uid, now, out),
        }
    }

    /// A request has its final answer.
    pub(crate) fn answered(
        &mut self,
        purpose: &Purpose,
        answer: Result<&[u8], &Status>,
        now: Timestamp,
        out: &mut Outbox,
    ) {
        let refused_as = |why: &str| answer.is_err_and(|status| status.is(why));
        match purpose {
            Purpose::Register if answer.is_ok() => self.registered(now, out),
            Purpose::Register if refused_as(reason::ALREADY_EXISTS) => {
                self.registered(now, out);
                self.write_labels(now, out);
                self.report_node(now, out);
            }
            Purpose::Register => {
                out.timers.push((later(now, REGISTER_RETRY), self.identity.id, Timer::Register));
            }
            Purpose::Labels => {}
            Purpose::NodeStatus => self.reporting = false,
            Purpose::ReadLease => self.lease_read(answer, now, out),
            Purpose::CreateLease if answer.is_ok() => self.lease = Lease::Held,
            Purpose::CreateLease if refused_as(reason::ALREADY_EXISTS) => {
                self.lease = Lease::Found;
                self.renew_lease(now, out);
            }
            Purpose::RenewLease if refused_as(reason::NOT_FOUND) => {
                self.lease = Lease::Unknown;
                self.renew_lease(now, out);
            }
            Purpose::RenewLease if answer.is_ok() => self.lease = Lease::Held,
            Purpose::CreateLease | Purpose::RenewLease => self.lease = Lease::Unknown,
            Purpose::PodStatus(uid) => {
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.reported |= answer.is_ok();
                    // A refused status is not retried: the pod no longer exists, or the next status replaces it.
                    pod.report = if pod.report == Report::SendingOld { Report::Due } else { Report::Current };
                }
                self.advance_pod(uid, now, out);
            }
            Purpose::PodRemoval(_) => {}
        }
    }

    /// What is known of the Lease of a node that others made.
    fn lease_read(&mut self, answer: Result<&[u8], &Status>, now: Timestamp, out: &mut Outbox) {
        let again = match answer {
            Ok(found) => match lease::renewed_elsewhere(found, now) {
                Some(age) => {
                    if !std::mem::replace(&mut self.left_alone, true) {
                        let seconds = age.as_secs();
                        let note =
                            format!("somebody else renewed its Lease {seconds} s ago: the node is left to its kubelet");
                        out.events.push(not_simulated(&self.identity.name, &self.node_uid, note));
                    }
                    Some(Duration::from_secs(LEASE_SECONDS.into()))
                }
                None => {
                    self.lease = Lease::Found;
                    None
                }
            },
            Err(status) if status.is(reason::NOT_FOUND) => None,
            Err(_) => Some(REGISTER_RETRY),
        };
        if let Some(delay) = again {
            out.timers.push((later(now, delay), self.identity.id, Timer::ReadLease));
            return;
        }
        self.registered(now, out);
        self.report_node(now, out);
    }

    fn left_behind(&mut self, node: &NodeView, now: Timestamp) -> Left {
        let ready = node.ready().filter(|ready| ready.status == "True");
        if let Some(since) = ready.and_then(|ready| ready.last_transition_time) {
            self.ready_since = since;
        }
        let own = template::node(&self.template, &self.identity, now)["metadata"]["labels"].take();
        let mut own = own.as_object().into_iter().flatten();
        let has_labels = own.all(|(key, value)| node.metadata.labels.get(key).is_some_and(|there| value == there));
        Left { is_ready: ready.is_some(), has_labels }
    }

    fn write_labels(&self, now: Timestamp, out: &mut Outbox) {
        let labels = template::node(&self.template, &self.identity, now)["metadata"]["labels"].take();
        let patch = encode(&json!({ "metadata": { "labels": labels } }));
        self.send(out, Purpose::Labels, self.node_request(Verb::Patch(PatchKind::Merge, patch)));
    }

    fn registered(&mut self, now: Timestamp, out: &mut Outbox) {
        self.registration = if self.asked_to_fail { Registration::Failed } else { Registration::Up };
        let id = self.identity.id;
        let spread = |period: Duration| beat(later(now, period.mul_f64(self.offset)));
        out.timers.push((spread(self.lease_renewal), id, Timer::Lease));
        out.timers.push((spread(STATUS_INTERVAL), id, Timer::Status));
        self.renew_lease(now, out);
        self.catch_up(now, out);
    }

    /// Lets the time of every pod pass, oldest first: it went on while the node could not send.
    fn catch_up(&mut self, now: Timestamp, out: &mut Outbox) {
        let age = |(uid, pod): (&Arc<str>, &Pod)| (pod.view.metadata.creation_timestamp, Arc::clone(uid));
        let mut uids: Vec<_> = self.pods.iter().map(age).collect();
        uids.sort();
        for (_, uid) in uids {
            self.advance_pod(&uid, now, out);
        }
    }

    fn renew_lease(&mut self, now: Timestamp, out: &mut Outbox) {
        // Without the Node's uid the lease would not be garbage collected with the Node.
        if self.registration != Registration::Up || self.lease == Lease::Sending || self.node_uid.is_empty() {
            return;
        }
        let name = &self.identity.name;
        let (purpose, request) = match self.lease {
            Lease::Held => (Purpose::RenewLease, lease::renew(name, now)),
            Lease::Found => (Purpose::RenewLease, lease::take(name, now)),
            Lease::Unknown | Lease::Sending => (Purpose::CreateLease, lease::create(name, &self.node_uid, now)),
        };
        self.lease = Lease::Sending;
        self.send(out, purpose, request);
    }

    fn report_node(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.registration != Registration::Up || std::mem::replace(&mut self.reporting, true) {
            return;
        }
        let status = self.status(now);
        let patch = encode(&json!({ "status": status }));
        let request = self.node_request(Verb::Patch(PatchKind::Strategic, patch)).subresource("status");
        self.send(out, Purpose::NodeStatus, request);
    }

    fn status(&self, now: Timestamp) -> Value {
        let (template, identity, since) = (&self.template, &self.identity, self.ready_since);
        match self.origin {
            Origin::Fleet => template::status(template, identity, since, now),
            Origin::Others(lacks) => template::status_of_selected(template, identity, lacks, since, now),
        }
    }

    /// Lets a pod's time pass, reports what changed, and sets a timer for the next stage.
    fn advance_pod(&mut self, uid: &Arc<str>, now: Timestamp, out: &mut Outbox) {
        if self.registration != Registration::Up || !self.admit(uid) {
            return;
        }
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let (addresses, host) = (&mut self.addresses, self.identity.address);
        if let Some(moment) = pod.resize.as_mut().and_then(|resize| resize.complete(now)) {
            pod.moments.push(moment);
            pod.mark_changed();
        }
        pod.resize.take_if(|resize| resize.is_over(&pod.view.spec));
        let outcome =
            pod.advance(self.delays, now, |view| if view.spec.host_network { Some(host) } else { addresses.take() });
        if outcome == Outcome::Changed {
            pod.mark_changed();
        }
        let frees = outcome == Outcome::Changed && matches!(pod.stage, Stage::Finished | Stage::Stopped);
        let (moments, view) = (std::mem::take(&mut pod.moments), Arc::clone(&pod.view));
        out.lives.extend(moments.into_iter().map(|moment| moment.event(&view)));
        if let Some(at) = pod.deadline
            && pod.armed.replace(at) != Some(at)
        {
            out.timers.push((at, self.identity.id, Timer::Pod(Arc::clone(uid))));
        }
        match pod.report {
            Report::Due => self.report_pod(uid, now, out),
            Report::Current if pod.stage == Stage::Stopped => self.remove_pod(uid, out),
            _ => {}
        }
        if frees {
            self.resize_deferred(now, out);
        }
    }

    fn report_pod(&mut self, uid: &Arc<str>, now: Timestamp, out: &mut Outbox) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.report = Report::Sending;
        let patch = encode(&pod_status::patch(pod, self.identity.address, now));
        let verb = Verb::Patch(PatchKind::Strategic, patch);
        let meta = &pod.view.metadata;
        let request = Request::object(&PODS, &meta.namespace, &meta.name, verb).subresource("status");
        self.send(out, Purpose::PodStatus(Arc::clone(uid)), request);
    }

    /// Deletes the object of a pod that has stopped; the kubelet forgets the pod when it sees the deletion.
    fn remove_pod(&mut self, uid: &Arc<str>, out: &mut Outbox) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if std::mem::replace(&mut pod.removed, true) {
            return;
        }
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(uid.to_string()), resource_version: None }),
            propagation_policy: None,
        };
        let meta = &pod.view.metadata;
        let request = Request::object(&PODS, &meta.namespace, &meta.name, Verb::Delete(options));
        self.send(out, Purpose::PodRemoval(Arc::clone(uid)), request);
    }

    fn node_request(&self, verb: Verb) -> Request {
        Request::object(&NODES, "", &self.identity.name, verb)
    }

    fn send(&self, out: &mut Outbox, purpose: Purpose, request: Request) {
        out.effects.push(Effect { ticket: Ticket { node: self.identity.id, purpose }, request });
    }
}

/// The beat at or before a time: a timer that fires a little late does not lengthen the period.
fn beat(at: Timestamp) -> Timestamp {
    let millis = at.as_millisecond();
    Timestamp::from_millisecond(millis - millis.rem_euclid(BEAT_MS)).unwrap_or(at)
}
