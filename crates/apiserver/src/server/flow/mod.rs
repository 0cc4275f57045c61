//! Priority and fairness at work: requests enter when their level has a seat for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bayplan_flowcontrol::borrowing::{bounds, divide};
use bayplan_flowcontrol::fair_queue::WaitingId;
use bayplan_flowcontrol::{
    Answer, BORROWING_PERIOD, Class, Classifier, Level, Limiting, PriorityLevel, Request, Ticket, bootstrap,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::metrics::{Occupied, ServerMetrics};
use crate::request::RequestInfo;
use crate::user::User;

/// The seats of the server: upstream's 400 for readers and 200 for writers.
pub(super) const CONCURRENCY: usize = 600;

type Queues = Level<oneshot::Sender<Admitted>>;

/// The levels, each with a lock of its own.
pub(crate) struct FlowControl {
    classifier: Classifier,
    levels: Vec<Mutex<Queues>>,
    level_names: Vec<&'static str>,
    /// Upstream's word for why a level without a free seat refuses.
    refusals: Vec<&'static str>,
    epoch: Instant,
    metrics: Arc<ServerMetrics>,
}

/// A request that is served. Others may follow when it is dropped.
pub(crate) struct Admitted {
    control: Arc<FlowControl>,
    level: usize,
    ticket: Ticket,
    /// What the metrics show of it, once it has its seats.
    occupied: Option<Occupied>,
}

/// The client should try again after so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) u64);

impl FlowControl {
    pub(super) fn with_seats(seats: usize, metrics: Arc<ServerMetrics>) -> Arc<FlowControl> {
        let levels = bootstrap::priority_levels();
        let classifier = Classifier::new(&bootstrap::flow_schemas(), &levels);
        let bounds = bounds(&levels, seats);
        let level_names = levels.iter().map(|level| level.name).collect();
        let refusal = |level: &PriorityLevel| match level.limiting {
            Limiting::Queue(_) => "queue-full",
            _ => "concurrency-limit",
        };
        let refusals = levels.iter().map(refusal).collect();
        for (level, bounds) in levels.iter().zip(&bounds) {
            metrics.set_nominal(level.name, bounds.nominal);
        }
        let levels = levels.iter().zip(bounds).map(|(level, bounds)| Mutex::new(Level::new(level, bounds))).collect();
        let control = FlowControl { classifier, levels, level_names, refusals, epoch: Instant::now(), metrics };
        let control = Arc::new(control);
        control.divide_seats();
        control
    }

    fn lock(&self, level: usize) -> (MutexGuard<'_, Queues>, Duration) {
        let level = self.levels[level].lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that a level's time never runs backwards.
        let now = self.epoch.elapsed();
        (level, now)
    }

    /// Waits for a seat, or several for a request that is so many seats wide, but no longer than the limit.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        user: &User,
        info: &RequestInfo,
        width: usize,
        limit: Duration,
    ) -> Result<Admitted, Refused> {
        let class = self.classifier.classify(&request(user, info)).ok_or(Refused(1))?;
        let asked = Instant::now();
        let level = self.level_names[class.level];
        match self.wait_for_seat(class, width, limit).await {
            Ok(mut seat) => {
                seat.occupied = Some(self.metrics.seated(class.schema, level, asked.elapsed(), width));
                Ok(seat)
            }
            Err((refused, reason)) => {
                self.metrics.refused(class.schema, level, asked.elapsed(), reason);
                Err(refused)
            }
        }
    }

    /// Waits for a seat; upstream's word for why there is none.
    async fn wait_for_seat(
        self: &Arc<Self>,
        class: Class<'_>,
        width: usize,
        limit: Duration,
    ) -> Result<Admitted, (Refused, &'static str)> {
        let (answer, served) = self.arrive(class, width);
        let waiting = match answer {
            Answer::Serve(ticket) => return Ok(self.admitted(class.level, ticket)),
            Answer::Refuse(seconds) => return Err((Refused(seconds), self.refusals[class.level])),
            Answer::Wait(waiting) => Waiting { control: self, level: class.level, id: Some(waiting) },
        };
        let _queued = self.metrics.queued(class.schema, self.level_names[class.level]);
        // A limit may have been raised since requests were last dispatched.
        self.dispatch(class.level);
        let served = served.expect("a request that waits has made what wakes it");
        match tokio::time::timeout(limit, served).await {
            Ok(Ok(seat)) => {
                waiting.served();
                Ok(seat)
            }
            _ => Err((waiting.cancel(), "time-out")),
        }
    }

    fn admitted(self: &Arc<Self>, level: usize, ticket: Ticket) -> Admitted {
        Admitted { control: self.clone(), level, ticket, occupied: None }
    }

    /// What becomes of a request, and what wakes it if it waits.
    fn arrive(&self, class: Class<'_>, width: usize) -> (Answer, Option<oneshot::Receiver<Admitted>>) {
        let mut served = None;
        let (mut level, now) = self.lock(class.level);
        let answer = level.arrive(class.flow, width, now, || {
            let (wake, woken) = oneshot::channel();
            served = Some(woken);
            wake
        });
        (answer, served)
    }

    /// Serves as many of those who wait as there are seats for.
    fn dispatch(self: &Arc<Self>, at: usize) {
        let mut served = Vec::new();
        let (mut level, now) = self.lock(at);
        while let Some((wake, ticket)) = level.dispatch(now) {
            served.push((wake, self.admitted(at, ticket)));
        }
        drop(level);
        for (wake, seat) in served {
            // Whoever waits no longer gives the seat back.
            let _ = wake.send(seat);
        }
    }

    fn finish(self: &Arc<Self>, at: usize, ticket: &Ticket) {
        let (mut level, now) = self.lock(at);
        level.finish(ticket, now);
        let waiting = level.load().1 > 0;
        drop(level);
        if waiting {
            self.dispatch(at);
        }
    }

    /// Divides the seats among the levels by what they wanted.
    fn divide_seats(self: &Arc<Self>) {
        let wishes: Vec<_> = (0..self.levels.len())
            .map(|at| {
                let (mut level, now) = self.lock(at);
                level.wish(now)
            })
            .collect();
        for (at, seats) in divide(&wishes).into_iter().enumerate() {
            let (mut level, now) = self.lock(at);
            level.set_seats(seats, now);
            drop(level);
            self.dispatch(at);
        }
    }

    /// Divides the seats again and again.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(BORROWING_PERIOD).await;
            self.divide_seats();
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.control.finish(self.level, &self.ticket);
    }
}

/// A request that waits; dropped, it waits no longer.
struct Waiting<'a> {
    control: &'a Arc<FlowControl>,
    level: usize,
    id: Option<WaitingId>,
}

impl Waiting<'_> {
    fn served(mut self) {
        self.id = None;
    }

    fn cancel(mut self) -> Refused {
        let (mut level, now) = self.control.lock(self.level);
        // Without an answer it was served at the last moment; that seat is given back.
        let seconds = self.id.take().and_then(|id| level.cancel(id, now)).unwrap_or(1);
        Refused(seconds)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let (mut level, now) = self.control.lock(self.level);
            level.cancel(id, now);
        }
    }
}

fn request<'a>(user: &'a User, info: &'a RequestInfo) -> Request<'a> {
    Request {
        user: &user.name,
        groups: &user.groups,
        verb: info.verb.as_str(),
        is_resource: info.is_resource,
        group: &info.group,
        resource: &info.plural,
        subresource: &info.subresource,
        namespace: &info.namespace,
        path: &info.path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Query;

    fn control(seats: usize) -> Arc<FlowControl> {
        FlowControl::with_seats(seats, Arc::new(ServerMetrics::new(&bayplan_metrics::Registry::default())))
    }

    fn info(path: &str) -> RequestInfo {
        RequestInfo::parse(&http::Method::GET, path, &Query::parse(""))
    }

    fn user(name: &str, group: &str) -> User {
        User::new(name, [group])
    }

    const LIMIT: Duration = Duration::from_secs(15);

    /// Takes all seats of a user's level.
    async fn fill(control: &Arc<FlowControl>, user: &User, info: &RequestInfo) -> Vec<Admitted> {
        let mut seats = Vec::new();
        while let Ok(seat) = control.enter(user, info, 1, Duration::ZERO).await {
            seats.push(seat);
        }
        seats
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_a_seat_until_the_limit() {
        let control = control(60);
        let (alice, pods) = (user("alice", "users"), info("/api/v1/pods"));
        let mut seats = fill(&control, &alice, &pods).await;
        assert!(!seats.is_empty());
        let started = Instant::now();
        assert_eq!(control.enter(&alice, &pods, 1, LIMIT).await.err(), Some(Refused(1)));
        assert_eq!(started.elapsed().as_secs(), LIMIT.as_secs());
        let (waited, ()) = tokio::join!(control.enter(&alice, &pods, 1, LIMIT), async { drop(seats.pop()) });
        seats.push(waited.unwrap());
        // Whoever goes away while waiting leaves nothing behind.
        let gone = tokio::time::timeout(Duration::from_secs(1), control.enter(&alice, &pods, 1, LIMIT)).await;
        assert!(gone.is_err());
        drop(seats);
        let load: Vec<_> = (0..control.levels.len()).map(|at| control.lock(at).0.load()).collect();
        assert!(load.iter().all(|load| *load == (0, 0)), "{load:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_user_keeps_neither_administrators_nor_the_system_waiting() {
        let control = control(CONCURRENCY);
        let (mallory, pods) = (user("mallory", "users"), info("/api/v1/namespaces/a/pods"));
        let _seats = fill(&control, &mallory, &pods).await;
        let flood: Vec<_> = (0..5_700)
            .map(|_| {
                let (control, mallory, pods) = (control.clone(), mallory.clone(), pods.clone());
                tokio::spawn(async move { control.enter(&mallory, &pods, 1, LIMIT).await.err() })
            })
            .collect();
        // Time only passes once everybody waits, or was refused.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let lease = info("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n");
        for (user, info) in [
            (user("admin", "system:masters"), &pods),
            (user("system:kube-scheduler", "x"), &pods),
            (user("system:kube-controller-manager", "x"), &lease),
            (user("system:node:n", "system:nodes"), &lease),
            (user("system:serviceaccount:kube-system:c", "system:serviceaccounts"), &pods),
            (crate::authn::anonymous(), &info("/readyz")),
        ] {
            let entered = control.enter(&user, info, 1, Duration::ZERO).await;
            assert!(entered.is_ok(), "{} {}", user.name, info.path);
        }
        let mut refused = 0;
        for request in flood {
            refused += usize::from(request.await.unwrap().is_some());
        }
        assert_eq!(refused, 5_700);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_level_borrows_seats_after_a_while() {
        let control = control(CONCURRENCY);
        tokio::spawn(control.clone().run());
        let (alice, pods) = (user("alice", "users"), info("/api/v1/pods"));
        let seats = fill(&control, &alice, &pods).await;
        let before = seats.len();
        for number in 0..600 {
            let (control, pods) = (control.clone(), pods.clone());
            let user = user(&format!("user-{}", number % 100), "users");
            tokio::spawn(async move {
                let _seat = control.enter(&user, &pods, 1, 3 * LIMIT).await;
                std::future::pending::<()>().await;
            });
        }
        tokio::time::sleep(3 * BORROWING_PERIOD / 2).await;
        let level = (0..control.levels.len()).map(|at| control.lock(at).0.load().0).max().unwrap();
        assert!(level > 2 * before, "{level} seats, {before} before");
    }
}
