//! Runs the effects of the scheduler: requests in lanes, and the writes about one pod one after the other.
//!
//! ```text
//!   Effect ──▶ line of its pod ──▶ task ──request by request──▶ lane (a limit on requests in flight) ──▶ API server
//! ```
//!
//! A lane is entered for each request and left with its answer. An effect that waits for something else, PreBind for a
//! volume for example, is in no lane, so that any number of them can wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bayplan_client::{Client, EventRecorder, clock};
use bayplan_model::api::{Api, Event, Recorder, Request};
use bayplan_model::status::Status;
use bayplan_scheduler::config::ClientConnection;
use bayplan_scheduler::{Effect, Input, Shell, StatusUpdate, Timer};
use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc};

use crate::scheduler::SchedulerConfig;

/// Requests of binding cycles in flight at once. Each is small; more only moves the queue into the API server.
pub(crate) const BINDING_REQUESTS_MAX: usize = 128;
/// Status patches and evictions in flight at once; few, so that bindings never wait behind them.
const STATUS_REQUESTS_MAX: usize = 32;

/// Tokio's clock and timers.
struct TokioTimer;

impl Timer for TokioTimer {
    fn now(&self) -> Timestamp {
        clock::now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A lane of requests with a limit on requests in flight and the rate limit of its client.
struct Lane {
    client: Client,
    permits: Semaphore,
}

impl Lane {
    fn new(client: &Client, connection: &ClientConnection, requests_max: usize) -> Self {
        Lane { client: limited(client, connection), permits: Semaphore::new(requests_max) }
    }
}

impl Api for Lane {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        Box::pin(async move {
            let _permit = self.permits.acquire().await.expect("lanes are never closed");
            self.client.call(request).await
        })
    }
}

/// The same connection with the configured rate limit, if there is one.
fn limited(client: &Client, connection: &ClientConnection) -> Client {
    match connection.limit() {
        Some((requests_per_second, burst)) => client.clone().with_limit(requests_per_second, burst),
        None => client.clone(),
    }
}

/// Events of one profile.
struct ProfileRecorder<'a>(Option<&'a EventRecorder>);

impl Recorder for ProfileRecorder<'_> {
    fn record(&self, event: Event) {
        if let Some(recorder) = self.0 {
            recorder.record(event);
        }
    }
}

/// Runs effects: the recorders, lanes and the way back to the owner, shared by all of them.
pub(crate) struct EffectRunner {
    /// By the scheduler name that events are reported under.
    recorders: BTreeMap<String, EventRecorder>,
    results: mpsc::UnboundedSender<Input>,
    bindings: Lane,
    status_updates: Lane,
    lines: PodLines,
}

impl EffectRunner {
    pub(crate) fn new(client: &Client, config: &SchedulerConfig, results: mpsc::UnboundedSender<Input>) -> Self {
        let connection = &config.configuration.client_connection;
        let events = limited(client, connection);
        let names = config.configuration.profiles.iter().filter_map(|profile| profile.scheduler_name.clone());
        let recorder = |name: &str| EventRecorder::events(&events, name, &format!("{name}-{}", config.instance));
        EffectRunner {
            recorders: names.map(|name| (name.clone(), recorder(&name))).collect(),
            results,
            bindings: Lane::new(client, connection, BINDING_REQUESTS_MAX),
            status_updates: Lane::new(client, connection, STATUS_REQUESTS_MAX),
            lines: PodLines::default(),
        }
    }

    /// Starts an effect, or puts it in the line of its pod.
    pub(crate) fn start(self: &Arc<Self>, effect: Effect) {
        if let Effect::Record { scheduler, event } = effect {
            return ProfileRecorder(self.recorders.get(&scheduler)).record(*event);
        }
        let Some(effect) = self.lines.enter(effect) else { return };
        let runner = Arc::clone(self);
        tokio::spawn(async move {
            let mut next = Some(effect);
            while let Some(effect) = next {
                let line = match &effect {
                    Effect::UpdateStatus(update) => Some(update.uid.clone()),
                    _ => None,
                };
                runner.run(effect).await;
                next = line.and_then(|uid| runner.lines.next(&uid));
            }
        });
    }

    async fn run(&self, effect: Effect) {
        let lane = if effect.is_binding() { &self.bindings } else { &self.status_updates };
        let recorder = ProfileRecorder(self.recorders.get(effect.scheduler_name()));
        let shell = Shell { api: lane, recorder: &recorder, timer: &TokioTimer };
        if let Some(input) = effect.run(shell).await {
            // The owner ends only when the process is about to stop.
            let _ = self.results.send(input);
        }
    }
}

/// By the UID of a pod whose status is being written: what comes next.
///
/// A line holds one effect at most: status updates become one, and a binding replaces them, because it writes more
/// than they do. Bindings open no line, because nothing is written about their pods until they end.
#[derive(Default)]
struct PodLines(Mutex<HashMap<String, Option<Next>>>);

enum Next {
    Update(Box<StatusUpdate>),
    Other(Effect),
}

impl PodLines {
    /// The effect, if it may start now.
    fn enter(&self, effect: Effect) -> Option<Effect> {
        let Some(uid) = effect.pod_uid() else { return Some(effect) };
        let mut lines = self.lock();
        let Some(next) = lines.get_mut(uid) else {
            if let Effect::UpdateStatus(update) = &effect {
                lines.insert(update.uid.clone(), None);
            }
            return Some(effect);
        };
        *next = Some(match (next.take(), effect) {
            (Some(Next::Update(mut first)), Effect::UpdateStatus(then)) => {
                first.append(*then);
                Next::Update(first)
            }
            // The status of a pod that is about to be bound is history.
            (Some(Next::Other(binding)), Effect::UpdateStatus(_)) => Next::Other(binding),
            (None, Effect::UpdateStatus(update)) => Next::Update(update),
            (_, other) => Next::Other(other),
        });
        None
    }

    /// What comes next in the line of a pod whose status was written. The line ends with a binding, or when there is
    /// nothing.
    fn next(&self, uid: &str) -> Option<Effect> {
        let mut lines = self.lock();
        match lines.get_mut(uid).and_then(Option::take) {
            Some(Next::Update(update)) => Some(Effect::UpdateStatus(update)),
            Some(Next::Other(effect)) => {
                lines.remove(uid);
                Some(effect)
            }
            None => {
                lines.remove(uid);
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Option<Next>>> {
        // Nothing panics while holding the lock; a poisoned one is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bayplan_client::Body;
    use bayplan_scheduler::config::Configuration;
    use bayplan_scheduler::{Object, Registry, Scheduler, TieBreak};
    use http::Response;
    use http_body_util::{BodyExt, Full};
    use serde_json::{Value, json};
    use tokio::sync::mpsc::UnboundedReceiver;

    use super::*;

    /// What reached the API server: the path and the body.
    type Arrived = UnboundedReceiver<(String, Value)>;

    /// An API server that answers one request for each permit.
    fn server() -> (Client, Arrived, Arc<Semaphore>) {
        let (sender, arrived) = mpsc::unbounded_channel();
        let answers = Arc::new(Semaphore::new(0));
        let permits = Arc::clone(&answers);
        let client = Client::from_service(tower::service_fn(move |request: http::Request<Body>| {
            let (sender, permits) = (sender.clone(), Arc::clone(&permits));
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                sender.send((path, serde_json::from_slice(&body).unwrap())).unwrap();
                permits.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("{}"))))
            }
        }));
        (client, arrived, answers)
    }

    /// A scheduler that sees the objects and tries its pods; what it wants to be done.
    fn decide(scheduler: &mut Scheduler, now: i64, objects: &[Value]) -> Vec<Effect> {
        let now = Timestamp::from_second(now).unwrap();
        for object in objects {
            scheduler.handle(Input::upsert(Object::decode(object).unwrap().unwrap()), now);
        }
        scheduler.tick(now);
        while scheduler.schedule_one(now) {}
        let effects = scheduler.take_effects().into_iter();
        effects.filter(|effect| !matches!(effect, Effect::Record { .. })).collect()
    }

    fn node(cpu: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": cpu, "pods": "9"}},
        })
    }

    #[tokio::test(start_paused = true)]
    async fn the_writes_about_one_pod_reach_the_server_in_their_order() {
        let (client, mut arrived, answers) = server();
        let (results, mut back) = mpsc::unbounded_channel();
        let config = SchedulerConfig::default();
        let runner = Arc::new(EffectRunner::new(&client, &config, results));
        let mut scheduler =
            Scheduler::new(&Configuration::default(), &Registry::default(), TieBreak::SmallestName).unwrap();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d", "uid": "u"},
            "spec": {"schedulerName": "default-scheduler", "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "2"}}},
            ]},
        });
        let other = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "o"}, "spec": {"unschedulable": true},
        });
        // Two failures and a binding, while the server is still busy with the first failure.
        for (second, object) in [(10, pod), (20, other), (30, node("1")), (40, node("3"))] {
            for effect in decide(&mut scheduler, second, &[object]) {
                runner.start(effect);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (path, first) = arrived.recv().await.unwrap();
        assert_eq!(path, "/api/v1/namespaces/d/pods/p/status");
        assert_eq!(first["status"]["conditions"][0]["message"], "no nodes available to schedule pods");
        assert!(arrived.try_recv().is_err(), "nothing overtakes it");
        answers.add_permits(1);
        let (path, _) = arrived.recv().await.unwrap();
        assert_eq!(path, "/api/v1/namespaces/d/pods/p/binding", "the binding replaces the later status");
        answers.add_permits(1);
        assert!(matches!(back.recv().await, Some(Input::Bound(_))));
        assert!(runner.lines.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn status_updates_that_wait_become_one() {
        let (client, mut arrived, answers) = server();
        let runner = Arc::new(EffectRunner::new(&client, &SchedulerConfig::default(), mpsc::unbounded_channel().0));
        let mut scheduler =
            Scheduler::new(&Configuration::default(), &Registry::default(), TieBreak::SmallestName).unwrap();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d", "uid": "u"},
            "spec": {"schedulerName": "default-scheduler", "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "2"}}},
            ]},
        });
        let mut tainted = node("1");
        tainted["spec"]["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
        for (second, object) in [(10, pod), (20, node("1")), (30, tainted)] {
            for effect in decide(&mut scheduler, second, &[object]) {
                runner.start(effect);
            }
        }
        answers.add_permits(9);
        let mut messages = Vec::new();
        while let Ok(Some((_, body))) = tokio::time::timeout(Duration::from_secs(1), arrived.recv()).await {
            let message = body["status"]["conditions"][0]["message"].as_str().unwrap().to_owned();
            messages.push(message.split_once(':').map_or(message.clone(), |(_, why)| why.to_owned()));
        }
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert_eq!(messages[0], "no nodes available to schedule pods");
        assert!(messages[1].starts_with(" 1 node(s) had untolerated taint"), "{messages:?}");
        assert!(runner.lines.lock().is_empty());
    }
}
