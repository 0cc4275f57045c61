//! Leader election on a Lease: at most one process leads, judged by each one's own clock and never by timestamps.
//!
//! [`Election`] is one candidate's memory and a single attempt, at the time its caller passes; [`Elector`] drives it.
//! A lease is an optimisation, never a proof: a leader must stay safe when two processes believe to lead.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bayplan_model::api::{Api, Event, EventType, ObjectReference, Recorder, Request, Resource, Verb, decode, encode};
use bayplan_model::status::{Status, reason};
use bayplan_model::timestamp;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::client::Client;
use crate::metrics::ElectionMetrics;

const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");

/// Waiting candidates try again after the retry period, stretched by up to this much of it.
const ACQUIRE_JITTER: f64 = 1.2;

/// A candidate, and the rules of the election.
#[derive(Clone, Debug)]
pub struct Config {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// This candidate's identity; unique among the candidates.
    pub identity: String,
    /// How long others wait before they take over from a leader that does not renew.
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it stops leading.
    pub renew_deadline: Duration,
    /// The time between two tries.
    pub retry_period: Duration,
}

impl Config {
    /// Upstream's defaults for a Lease in `kube-system`, under a fresh identity.
    pub fn new(name: &str) -> Self {
        Config {
            namespace: "kube-system".into(),
            name: name.into(),
            identity: fresh_identity(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// The name of the machine, or of the pod when in one.
pub fn hostname() -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    host.as_deref().map_or("localhost", str::trim).to_owned()
}

/// `<hostname>_<random uuid>`, as upstream's candidates call themselves.
fn fresh_identity() -> String {
    let host = hostname();
    // Version 4, variant 1, as RFC 9562 wants it.
    let bits = crate::clock::number() & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!("{host}_{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The time on two clocks: one that never jumps, and the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// Since any fixed origin.
    pub steady: Duration,
    /// For the timestamps inside the Lease.
    pub wall: Timestamp,
}

/// Why an attempt did not make us leader.
#[derive(Debug, thiserror::Error)]
pub enum NotLeading {
    /// Another candidate leads.
    #[error("the lease is held by {0}")]
    Held(String),
    /// The API server refused or could not be reached.
    #[error("{step} the lease: {status}")]
    Failed {
        /// Reading, creating or updating.
        step: &'static str,
        /// The server's answer.
        status: Status,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Lease {
    #[serde(default)]
    metadata: Map<String, Value>,
    #[serde(default)]
    spec: Spec,
    /// `apiVersion` and `kind`.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_duration_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acquire_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_transitions: Option<u64>,
    /// Fields of others are written back as they were.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Spec {
    fn holder(&self) -> &str {
        self.holder_identity.as_deref().unwrap_or_default()
    }
}

/// The Lease at its last observed change.
struct Observed {
    lease: Lease,
    at: Duration,
}

/// One candidate.
pub struct Election {
    config: Config,
    observed: Option<Observed>,
}

impl Election {
    /// A candidate that has not read the Lease yet.
    pub fn new(config: Config) -> Self {
        Election { config, observed: None }
    }

    /// True when the last Lease read names this candidate; only the API server knows whether it still does.
    pub fn is_leader(&self) -> bool {
        self.observed.as_ref().is_some_and(|o| o.lease.spec.holder() == self.config.identity)
    }

    /// Tries once to acquire or renew the Lease.
    pub async fn attempt(
        &mut self,
        api: &dyn Api,
        clock: &(dyn Fn() -> ClockReading + Sync),
    ) -> Result<(), NotLeading> {
        if let Some(lease) = self.lease_to_renew(clock())
            && self.update(api, lease, clock).await.is_ok()
        {
            return Ok(());
        }
        let Some(lease) = self.read(api).await? else { return self.create(api, clock).await };
        let now = clock();
        if self.observed.as_ref().is_none_or(|o| o.lease.spec != lease.spec) {
            self.observed = Some(Observed { lease: lease.clone(), at: now.steady });
        }
        self.check_vacant(&lease.spec, now)?;
        let lease = self.claimed(lease, now);
        self.update(api, lease, clock).await
    }

    /// Releases the Lease, so that others need not wait for it to expire.
    pub async fn release(&mut self, api: &dyn Api, now: ClockReading) -> Result<(), Status> {
        let Some(observed) = self.observed.take_if(|o| o.lease.spec.holder() == self.config.identity) else {
            return Ok(());
        };
        let mut lease = observed.lease;
        let wall = timestamp::micros(now.wall);
        lease.spec.holder_identity = None;
        lease.spec.lease_duration_seconds = Some(1);
        lease.spec.acquire_time = Some(wall.clone());
        lease.spec.renew_time = Some(wall);
        api.call(self.request(Verb::Update(encode(&lease)))).await.map(drop)
    }

    /// The Lease with a new renew time, while this candidate believes to hold it: it is written without a read first.
    fn lease_to_renew(&self, now: ClockReading) -> Option<Lease> {
        let observed = self.observed.as_ref().filter(|_| self.is_leader())?;
        let valid = observed.at + self.config.lease_duration > now.steady;
        valid.then(|| self.claimed(observed.lease.clone(), now))
    }

    /// An error while the Lease has not expired by our own clock.
    fn check_vacant(&self, spec: &Spec, now: ClockReading) -> Result<(), NotLeading> {
        let duration = Duration::from_secs(spec.lease_duration_seconds.unwrap_or(0));
        let seen_at = self.observed.as_ref().map_or(now.steady, |o| o.at);
        let held = !spec.holder().is_empty() && spec.holder() != self.config.identity;
        if held && seen_at.saturating_add(duration) > now.steady {
            return Err(NotLeading::Held(spec.holder().to_owned()));
        }
        Ok(())
    }

    /// The Lease with this candidate as its holder.
    fn claimed(&self, mut lease: Lease, now: ClockReading) -> Lease {
        let wall = timestamp::micros(now.wall);
        let spec = &mut lease.spec;
        if spec.holder() != self.config.identity {
            spec.acquire_time = Some(wall.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
        }
        spec.holder_identity = Some(self.config.identity.clone());
        spec.lease_duration_seconds = Some(self.config.lease_duration.as_secs());
        spec.renew_time = Some(wall);
        lease
    }

    async fn read(&self, api: &dyn Api) -> Result<Option<Lease>, NotLeading> {
        match api.call(self.request(Verb::Get)).await.and_then(|answer| decode(&answer)) {
            Ok(lease) => Ok(Some(lease)),
            Err(status) if status.is(reason::NOT_FOUND) => Ok(None),
            Err(status) => Err(NotLeading::Failed { step: "reading", status }),
        }
    }

    async fn create(&mut self, api: &dyn Api, clock: &(dyn Fn() -> ClockReading + Sync)) -> Result<(), NotLeading> {
        let wall = timestamp::micros(clock().wall);
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": self.config.name, "namespace": self.config.namespace },
            "spec": {
                "holderIdentity": self.config.identity,
                "leaseDurationSeconds": self.config.lease_duration.as_secs(),
                "acquireTime": wall,
                "renewTime": wall,
                "leaseTransitions": 0,
            },
        });
        let request = Request::collection(&LEASES, &self.config.namespace, Verb::Create(encode(&lease)));
        self.write(api, request, "creating", clock).await
    }

    async fn update(
        &mut self,
        api: &dyn Api,
        lease: Lease,
        clock: &(dyn Fn() -> ClockReading + Sync),
    ) -> Result<(), NotLeading> {
        self.write(api, self.request(Verb::Update(encode(&lease))), "updating", clock).await
    }

    /// Sends a write, and remembers the Lease it leaves behind.
    async fn write(
        &mut self,
        api: &dyn Api,
        request: Request,
        step: &'static str,
        clock: &(dyn Fn() -> ClockReading + Sync),
    ) -> Result<(), NotLeading> {
        let answer = api.call(request).await.and_then(|answer| decode(&answer));
        let lease = answer.map_err(|status| NotLeading::Failed { step, status })?;
        self.observed = Some(Observed { lease, at: clock().steady });
        Ok(())
    }

    fn request(&self, verb: Verb) -> Request {
        Request::object(&LEASES, &self.config.namespace, &self.config.name, verb)
    }

    /// The event of a change of leadership.
    fn event(&self, what: &str) -> Event {
        let metadata = |field: &str| {
            let value = self.observed.as_ref().and_then(|o| o.lease.metadata.get(field)?.as_str());
            value.unwrap_or_default().to_owned()
        };
        Event {
            regarding: ObjectReference {
                api_version: "coordination.k8s.io/v1".into(),
                kind: "Lease".into(),
                namespace: self.config.namespace.clone(),
                name: self.config.name.clone(),
                uid: metadata("uid"),
                resource_version: metadata("resourceVersion"),
            },
            event_type: EventType::Normal,
            reason: "LeaderElection".into(),
            action: "".into(),
            note: format!("{} {what}", self.config.identity),
        }
    }
}

/// Whether an elector leads, shared with health checks.
#[derive(Default)]
pub struct Leadership {
    /// When the lease was last renewed, while we lead.
    renewed: Mutex<Option<Instant>>,
}

impl Leadership {
    /// Whether the elector believes to lead.
    pub fn is_leading(&self) -> bool {
        self.renewed().is_some()
    }

    /// How long ago the lease was renewed, while the elector believes to lead.
    pub fn unrenewed_for(&self) -> Option<Duration> {
        self.renewed().map(|at| at.elapsed())
    }

    fn renewed(&self) -> Option<Instant> {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the lease was acquired or renewed just now, or that it was lost.
    pub fn set_leading(&self, leading: bool) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = leading.then(Instant::now);
    }
}

/// Drives an [`Election`]: first [`acquire`](Elector::acquire), then work until [`hold`](Elector::hold) returns.
///
/// ```text
///   elector.acquire().await;
///   select! { () = work => elector.release().await, () = elector.hold() => exit(1) }
/// ```
pub struct Elector {
    election: Election,
    client: Client,
    recorder: Option<Arc<dyn Recorder>>,
    origin: Instant,
    leadership: Arc<Leadership>,
    metrics: Option<ElectionMetrics>,
}

impl Elector {
    /// A candidate; each of its requests may take half of the renew deadline.
    pub fn new(client: &Client, config: Config, recorder: Option<Arc<dyn Recorder>>) -> Self {
        let client = client.clone().with_timeout(config.renew_deadline / 2);
        Elector {
            election: Election::new(config),
            client,
            recorder,
            origin: Instant::now(),
            leadership: Arc::default(),
            metrics: None,
        }
    }

    /// Reports whether it leads through this shared value.
    #[must_use]
    pub fn with_leadership(mut self, leadership: Arc<Leadership>) -> Self {
        self.leadership = leadership;
        self
    }

    /// Reports metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: ElectionMetrics) -> Self {
        metrics.set_leading(&self.election.config.name, false);
        self.metrics = Some(metrics);
        self
    }

    fn report_leading(&self, leading: bool) {
        self.leadership.set_leading(leading);
        if let Some(metrics) = &self.metrics {
            metrics.set_leading(&self.election.config.name, leading);
        }
    }

    /// Waits until we lead.
    pub async fn acquire(&mut self) {
        while let Err(why) = self.attempt().await {
            tracing::debug!(lease = self.election.config.name, "not leading: {why}");
            let stretch = 1.0 + ACQUIRE_JITTER * crate::clock::fraction();
            tokio::time::sleep(self.election.config.retry_period.mul_f64(stretch)).await;
        }
        tracing::info!(lease = self.election.config.name, identity = self.election.config.identity, "leading");
        self.report_leading(true);
        self.record_event("became leader");
    }

    /// Renews for as long as that works; returns when this process must no longer act as leader.
    pub async fn hold(&mut self) {
        loop {
            tokio::time::sleep(self.election.config.retry_period).await;
            if tokio::time::timeout(self.election.config.renew_deadline, self.renew()).await.is_err() {
                tracing::error!(lease = self.election.config.name, "the lease could not be renewed in time");
                self.report_leading(false);
                self.record_event("stopped leading");
                return;
            }
            self.report_leading(true);
        }
    }

    /// Releases the Lease, if this candidate holds it.
    pub async fn release(&mut self) {
        if !self.election.is_leader() {
            return;
        }
        let now = now(self.origin);
        if let Err(status) = self.election.release(&self.client, now).await {
            tracing::warn!(lease = self.election.config.name, "the lease could not be released: {status}");
        }
        self.report_leading(false);
        self.record_event("stopped leading");
    }

    async fn renew(&mut self) {
        while let Err(why) = self.attempt().await {
            tracing::warn!(lease = self.election.config.name, "not renewed: {why}");
            tokio::time::sleep(self.election.config.retry_period).await;
        }
    }

    async fn attempt(&mut self) -> Result<(), NotLeading> {
        let origin = self.origin;
        self.election.attempt(&self.client, &move || now(origin)).await
    }

    fn record_event(&self, what: &str) {
        if let Some(recorder) = &self.recorder {
            recorder.record(self.election.event(what));
        }
    }
}

fn now(origin: Instant) -> ClockReading {
    ClockReading { steady: origin.elapsed(), wall: crate::clock::now() }
}

#[cfg(test)]
#[path = "leader_election_tests.rs"]
mod tests;
