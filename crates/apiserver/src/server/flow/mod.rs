//! Priority and fairness at work: requests enter when their level has a seat for them.
//!
//! ```text
//!   FlowSchemas and levels in the store ─▶ Follower ─▶ FlowControl: classifier, levels ◀─ requests
//!                                             └─▶ StatusWriter: conditions of the FlowSchemas
//!   once a minute: ensurer restores the objects that every cluster has
//! ```

mod dump;
pub(super) mod ensurer;
mod follower;
mod metrics;
mod statuses;
mod watches;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use bayplan_flowcontrol::borrowing::divide;
use bayplan_flowcontrol::fair_queue::WaitingId;
use bayplan_flowcontrol::{
    Answer, BORROWING_PERIOD, Classifier, Estimate, FlowSchema, Former, Level, Linger, Objects, Plan, PlannedLevel,
    PriorityLevel, Refusal, Request, Ticket,
};
use bayplan_kinds::flow_control as bootstrap;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use serde_json::json;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

pub(crate) use dump::answer as dump;
pub(super) use follower::Follower;
pub(super) use metrics::FlowMetrics;
pub(super) use statuses::StatusWriter;
pub(crate) use watches::WatchCount;

use super::metrics::Occupied;
use crate::request::RequestInfo;
use crate::user::User;
use metrics::Execution;
use watches::WatchCounts;

/// The seats of the server: upstream's 400 for readers and 200 for writers.
pub(super) const CONCURRENCY: usize = 600;

/// The shortest time between two divisions of the seats.
const DIVISION_PAUSE: Duration = Duration::from_secs(1);

static SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
static LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

type Queues = Level<Waiter>;

/// What wakes a request that waits, and what is shown of it.
struct Waiter {
    wake: oneshot::Sender<Admitted>,
    shown: Shown,
}

/// What is shown of a request that waits.
struct Shown {
    schema: Arc<FlowSchema>,
    distinguisher: String,
    user: String,
    info: RequestInfo,
    since: Instant,
}

/// What all requests share: the levels, each with a lock of its own, and the way to them.
pub(crate) struct FlowControl {
    seats: usize,
    /// What is there even if no object says so.
    mandatory: Objects,
    current: RwLock<Current>,
    epoch: Instant,
    metrics: FlowMetrics,
    /// Rung when a level that nobody wants any more is idle.
    reconsider: Notify,
    /// Rung when a level has lent all its seats and wants some.
    starved: Notify,
    watches: Arc<WatchCounts>,
    /// Responses name the objects that steered them.
    named: bool,
}

/// The configuration of a moment.
struct Current {
    /// Counts the configurations.
    generation: u64,
    classifier: Classifier,
    levels: Vec<Served>,
}

/// A level and what it is configured to be.
#[derive(Clone)]
struct Served {
    config: Arc<PriorityLevel>,
    live: Arc<LiveLevel>,
}

/// A level at work. It outlives its configuration as long as requests are in it.
struct LiveLevel {
    name: String,
    queues: Mutex<Queues>,
}

/// The flow schema and the level of a request.
#[derive(Clone)]
pub(crate) struct Matched {
    generation: u64,
    schema: Arc<FlowSchema>,
    level: Served,
    distinguisher: String,
    flow: u64,
}

/// A request that is served. Others may follow when it is dropped.
pub(crate) struct Admitted {
    control: Arc<FlowControl>,
    level: Arc<LiveLevel>,
    ticket: Ticket,
    /// What the metrics show of it, once it has its seats.
    shown: Option<(Occupied, Execution)>,
}

/// The client should try again after so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) u64);

impl Matched {
    /// Names the objects that steered a request: their uids, because names would tell clients what others decided
    /// about them.
    pub(crate) fn name_in(&self, headers: &mut HeaderMap) {
        for (header, uid) in [(&SCHEMA_UID, &self.schema.uid), (&LEVEL_UID, &self.level.config.uid)] {
            if let Ok(uid) = HeaderValue::from_str(uid) {
                headers.insert(header.clone(), uid);
            }
        }
    }
}

impl FlowControl {
    /// So many seats, and only what is mandatory: `exempt` and `catch-all`. `named` if responses name the objects that
    /// steered them.
    pub(super) fn new(seats: usize, metrics: FlowMetrics, named: bool) -> Arc<FlowControl> {
        let control = Arc::new(FlowControl {
            seats,
            mandatory: mandatory(),
            current: RwLock::new(Current { generation: 0, classifier: Classifier::default(), levels: Vec::new() }),
            epoch: Instant::now(),
            metrics,
            reconsider: Notify::new(),
            starved: Notify::new(),
            watches: Arc::default(),
            named,
        });
        control.configure(&Objects::default());
        control
    }

    fn current(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock<'l>(&self, level: &'l LiveLevel) -> (MutexGuard<'l, Queues>, Duration) {
        let queues = level.queues.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that a level's time never runs backwards.
        let now = self.epoch.elapsed();
        (queues, now)
    }

    /// Makes these objects the configuration; answers the names of the flow schemas whose level does not exist.
    fn configure(self: &Arc<Self>, objects: &Objects) -> Vec<String> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let former =
            |Served { config, live }: &Served| Former { level: config.clone(), idle: self.lock(live).0.is_idle() };
        let former: Vec<Former> = current.levels.iter().map(former).collect();
        let Plan { classifier, levels, dangling } = Plan::new(objects, &self.mandatory, &former, self.seats);
        let mut live: HashMap<String, Arc<LiveLevel>> =
            current.levels.drain(..).map(|served| (served.config.name.clone(), served.live)).collect();
        let levels = levels.into_iter().map(|planned| self.served(planned, &mut live)).collect();
        *current = Current { generation: current.generation + 1, classifier, levels };
        self.divide_seats(&current);
        dangling
    }

    fn served(&self, planned: PlannedLevel, live: &mut HashMap<String, Arc<LiveLevel>>) -> Served {
        let PlannedLevel { level: config, bounds, quiescing } = planned;
        self.metrics.set_bounds(&config.name, bounds);
        let live = live.remove(&config.name).unwrap_or_else(|| {
            let queues = Mutex::new(Level::new(&config, bounds, self.epoch.elapsed()));
            Arc::new(LiveLevel { name: config.name.clone(), queues })
        });
        self.lock(&live).0.reconfigure(&config, bounds, quiescing);
        Served { config, live }
    }

    /// The flow schema and the level of a request.
    pub(crate) fn classify(&self, user: &User, info: &RequestInfo) -> Option<Matched> {
        self.current().classify(user, info)
    }

    /// True if responses name the objects that steered them.
    pub(crate) fn is_named(&self) -> bool {
        self.named
    }

    /// Counts a watch for as long as what is answered lives.
    pub(crate) fn count_watch(&self, info: &RequestInfo, field_selector: &str) -> Option<WatchCount> {
        watches::register(&self.watches, info, field_selector)
    }

    /// What a write costs: the watches that it wakes.
    pub(crate) fn write(&self, info: &RequestInfo) -> Estimate {
        Estimate::Write { watches: self.watches.interested(info) }
    }

    /// Waits for the seats of a request, but no longer than the limit.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        matched: &mut Matched,
        (user, info): (&User, &RequestInfo),
        estimate: Estimate,
        limit: Duration,
    ) -> Result<Admitted, Refused> {
        let asked = Instant::now();
        let (answer, served) = self.arrive(matched, (user, info), estimate);
        let entered = self.wait_for_seat(matched, answer, served, limit).await;
        let (schema, level) = (matched.schema.name.as_str(), matched.level.config.name.as_str());
        match entered {
            Ok(mut seat) => {
                let occupied = self.metrics.seated(schema, level, asked.elapsed(), seat.ticket.seats());
                seat.shown = Some((occupied, self.metrics.execution(schema, level, info)));
                Ok(seat)
            }
            Err(Refusal { retry_after, reason }) => {
                self.metrics.refused(schema, level, asked.elapsed(), reason);
                Err(Refused(retry_after))
            }
        }
    }

    /// Waits for a seat; upstream's word for why there is none.
    async fn wait_for_seat(
        self: &Arc<Self>,
        matched: &Matched,
        answer: Answer,
        served: Option<oneshot::Receiver<Admitted>>,
        limit: Duration,
    ) -> Result<Admitted, Refusal> {
        let level = &matched.level.live;
        let waiting = match answer {
            Answer::Serve(ticket) => return Ok(self.admitted(level, ticket)),
            Answer::Refuse(refusal) => return Err(refusal),
            Answer::Wait(waiting) => Waiting { control: self, level, id: Some(waiting) },
        };
        let _queued = self.metrics.queued(&matched.schema.name, &level.name);
        // A limit may have been raised since requests were last dispatched.
        self.dispatch(level);
        if self.lock(level).0.is_starved() {
            self.starved.notify_one();
        }
        let served = served.expect("a request that waits has made what wakes it");
        match tokio::time::timeout(limit, served).await {
            Ok(Ok(seat)) => {
                waiting.served();
                Ok(seat)
            }
            _ => Err(waiting.cancel()),
        }
    }

    fn admitted(self: &Arc<Self>, level: &Arc<LiveLevel>, ticket: Ticket) -> Admitted {
        Admitted { control: self.clone(), level: level.clone(), ticket, shown: None }
    }

    /// What becomes of a request, and what wakes it if it waits. It comes to the level that is its own by now.
    fn arrive(
        &self,
        matched: &mut Matched,
        (user, info): (&User, &RequestInfo),
        estimate: Estimate,
    ) -> (Answer, Option<oneshot::Receiver<Admitted>>) {
        // Held until the request has come in, so that no level is removed before.
        let current = self.current();
        if matched.generation != current.generation
            && let Some(now) = current.classify(user, info)
        {
            *matched = now;
        }
        let mut served = None;
        let (mut queues, now) = self.lock(&matched.level.live);
        let work = queues.work(estimate);
        let answer = queues.arrive(matched.flow, work, now, || {
            let (wake, woken) = oneshot::channel();
            served = Some(woken);
            let (schema, distinguisher) = (matched.schema.clone(), matched.distinguisher.clone());
            let shown =
                Shown { schema, distinguisher, user: user.name.clone(), info: info.clone(), since: Instant::now() };
            Waiter { wake, shown }
        });
        drop(queues);
        self.metrics.estimated(&matched.schema.name, &matched.level.config.name, estimate, work.seats_max());
        (answer, served)
    }

    /// Serves as many of those who wait as there are seats for.
    fn dispatch(self: &Arc<Self>, level: &Arc<LiveLevel>) {
        let mut served = Vec::new();
        let (mut queues, now) = self.lock(level);
        while let Some((waiter, ticket)) = queues.dispatch(now) {
            served.push((waiter.wake, self.admitted(level, ticket)));
        }
        drop(queues);
        for (wake, seat) in served {
            // Whoever waits no longer gives the seat back.
            let _ = wake.send(seat);
        }
    }

    fn finish(self: &Arc<Self>, level: &Arc<LiveLevel>, ticket: &Ticket) {
        let (mut queues, now) = self.lock(level);
        let linger = queues.finish(ticket, now);
        let is_awaited = queues.requests().0 > 0;
        let is_over = queues.is_quiescing() && queues.is_idle();
        drop(queues);
        if let Some(linger) = linger {
            self.linger(level, linger);
        }
        if is_awaited {
            self.dispatch(level);
        }
        if is_over {
            self.reconsider.notify_one();
        }
    }

    /// Gives back the seats of a request after the time for which it keeps them.
    fn linger(self: &Arc<Self>, level: &Arc<LiveLevel>, linger: Linger) {
        let (control, level, time) = (self.clone(), level.clone(), linger.time);
        let release = move || {
            let (mut queues, now) = control.lock(&level);
            queues.release(&linger, now);
            drop(queues);
            control.dispatch(&level);
        };
        // Without a runtime there is nobody left to wait for.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return release() };
        runtime.spawn(async move {
            tokio::time::sleep(time).await;
            release();
        });
    }

    /// Divides the seats among the levels by what they wanted.
    fn divide_seats(self: &Arc<Self>, current: &Current) {
        let wish = |served: &Served| {
            let (mut queues, now) = self.lock(&served.live);
            queues.wish(now)
        };
        let wishes: Vec<_> = current.levels.iter().map(wish).collect();
        let division = divide(&wishes);
        self.metrics.divided(division.fair_part);
        for ((served, wish), seats) in current.levels.iter().zip(&wishes).zip(division.seats) {
            self.metrics.wished(&served.config.name, wish, seats);
            let (mut queues, now) = self.lock(&served.live);
            queues.set_seats(seats, now);
            drop(queues);
            self.dispatch(&served.live);
        }
    }

    /// Divides the seats again and again, and at once for a level that has none left, but not too often.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            tokio::select! {
                biased;
                () = self.starved.notified() => {}
                () = tokio::time::sleep(BORROWING_PERIOD - DIVISION_PAUSE) => {}
            }
            self.divide_seats(&self.current());
            tokio::time::sleep(DIVISION_PAUSE).await;
        }
    }
}

impl Current {
    fn classify(&self, user: &User, info: &RequestInfo) -> Option<Matched> {
        let request = Request {
            user: &user.name,
            groups: &user.groups,
            verb: info.verb.as_str(),
            is_resource: info.is_resource,
            group: &info.group,
            resource: &info.plural,
            subresource: &info.subresource,
            namespace: &info.namespace,
            path: &info.path,
        };
        let class = self.classifier.classify(&request)?;
        Some(Matched {
            generation: self.generation,
            schema: class.schema.clone(),
            level: self.levels.get(class.level)?.clone(),
            distinguisher: class.distinguisher.to_owned(),
            flow: class.flow,
        })
    }
}

/// The levels and flow schemas that are there even if no object says so.
fn mandatory() -> Objects {
    let object =
        |wanted: bootstrap::BootstrapConfiguration| json!({"metadata": {"name": wanted.name}, "spec": wanted.spec});
    let levels = bootstrap::priority_levels().filter(|level| level.mandatory).map(object);
    let schemas = bootstrap::flow_schemas().filter(|schema| schema.mandatory).map(object);
    let why = "what every cluster has is not broken";
    Objects {
        levels: levels.map(|level| Arc::new(PriorityLevel::read(&level).expect(why))).collect(),
        schemas: schemas.map(|schema| Arc::new(FlowSchema::read(&schema).expect(why))).collect(),
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.control.finish(&self.level, &self.ticket);
    }
}

/// A request that waits; dropped, it waits no longer.
struct Waiting<'a> {
    control: &'a Arc<FlowControl>,
    level: &'a Arc<LiveLevel>,
    id: Option<WaitingId>,
}

impl Waiting<'_> {
    fn served(mut self) {
        self.id = None;
    }

    fn cancel(mut self) -> Refusal {
        // Without an answer it was served at the last moment; that seat is given back.
        self.leave().unwrap_or(Refusal { retry_after: 1, reason: "time-out" })
    }

    fn leave(&mut self) -> Option<Refusal> {
        let id = self.id.take()?;
        let (mut queues, now) = self.control.lock(self.level);
        let refusal = queues.cancel(id, now);
        let is_over = queues.is_quiescing() && queues.is_idle();
        drop(queues);
        if is_over {
            self.control.reconsider.notify_one();
        }
        refusal
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
