//! The event recorder: events of control loops and the scheduler, correlated and written by one task.
//!
//! ```text
//!   record ─▶ bounded queue ─▶ correlator (core_events | series, no IO) ─▶ POST or PATCH ─▶ API server
//! ```
//!
//! Events are news, not state: they are dropped under pressure and never block anything.

mod core_events;
mod lru;
mod series;

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{Api, Event, PatchKind, Recorder, Request, Resource, Verb};
use bayplan_model::status::{Status, reason};
use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::client::Client;
use crate::clock;
pub use core_events::CoreEvents;
use series::SeriesEvents;

/// Events waiting to be written; more are dropped.
const QUEUE_EVENTS_MAX: usize = 1000;
/// A write that does not reach the server is tried this often,
const WRITE_ATTEMPTS: u32 = 12;
/// with this much time between two tries.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// Hands events to the task that writes them; clones share the task, which ends with the last of them.
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<(Event, Timestamp)>,
}

impl EventRecorder {
    /// A recorder of core/v1 events whose source is this component. Must be called inside a tokio runtime.
    pub fn core(client: &Client, component: &str) -> Self {
        Self::spawn(client, Correlator::Core(CoreEvents::new(component)))
    }

    /// A recorder of events.k8s.io/v1 events reported by this controller and instance of it. Must be called inside a
    /// tokio runtime.
    pub fn events(client: &Client, controller: &str, instance: &str) -> Self {
        Self::spawn(client, Correlator::Series(SeriesEvents::new(controller, instance)))
    }

    fn spawn(client: &Client, correlator: Correlator) -> Self {
        let (queue, events) = mpsc::channel(QUEUE_EVENTS_MAX);
        tokio::spawn(write_all(Arc::new(client.clone()), correlator, events));
        EventRecorder { queue }
    }
}

impl Recorder for EventRecorder {
    fn record(&self, event: Event) {
        if let Err(mpsc::error::TrySendError::Full((event, _))) = self.queue.try_send((event, clock::now())) {
            tracing::debug!(reason = %event.reason, note = event.note, "event dropped, too many are waiting");
        }
    }
}

/// The two ways to correlate and write events.
enum Correlator {
    Core(CoreEvents),
    Series(SeriesEvents),
}

impl Correlator {
    fn observe(&mut self, event: Event, now: Timestamp) -> Option<Write> {
        match self {
            Correlator::Core(core) => core.observe(event, now),
            Correlator::Series(series) => series.observe(event, now),
        }
    }

    fn tick(&mut self, now: Timestamp) -> Vec<Write> {
        match self {
            Correlator::Core(_) => Vec::new(),
            Correlator::Series(series) => series.tick(now),
        }
    }
}

/// One write the API server should see.
#[derive(Debug, PartialEq)]
pub struct Write {
    /// `v1/events` or `events.k8s.io/v1/events`.
    pub resource: Resource,
    /// The event's namespace.
    pub namespace: String,
    /// The event's name.
    pub name: String,
    /// How to change the event that is there already, if it is.
    pub patch: Option<Bytes>,
    /// The whole event, for when it is not.
    pub create: Bytes,
}

async fn write_all(api: Arc<dyn Api>, mut correlator: Correlator, mut events: mpsc::Receiver<(Event, Timestamp)>) {
    let mut ticks = tokio::time::interval(series::TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        // In this order, so that runs repeat themselves; a tick is rare and never waits for a flood of events.
        let writes = tokio::select! {
            biased;
            _ = ticks.tick() => correlator.tick(clock::now()),
            event = events.recv() => match event {
                Some((event, at)) => correlator.observe(event, at).into_iter().collect(),
                None => return,
            },
        };
        for write in writes {
            attempt(&*api, write).await;
        }
    }
}

/// Writes one event; only a server that cannot be reached is tried again.
async fn attempt(api: &dyn Api, write: Write) {
    for number in 1..=WRITE_ATTEMPTS {
        let status = match send(api, &write).await {
            Ok(()) => return,
            Err(status) => status,
        };
        if status.code != 0 {
            if !status.has_cause("NamespaceTerminating") {
                tracing::warn!(event = write.name, code = status.code, "event refused: {status}");
            }
            return;
        }
        if number == WRITE_ATTEMPTS {
            tracing::warn!(event = write.name, "event given up: {status}");
            return;
        }
        let share = if number == 1 { clock::fraction() } else { 1.0 };
        tokio::time::sleep(WRITE_INTERVAL.mul_f64(share)).await;
    }
}

async fn send(api: &dyn Api, write: &Write) -> Result<(), Status> {
    if let Some(patch) = &write.patch {
        let verb = Verb::Patch(PatchKind::Strategic, patch.clone());
        match api.call(Request::object(&write.resource, &write.namespace, &write.name, verb)).await {
            Err(status) if status.is(reason::NOT_FOUND) => {}
            answer => return answer.map(drop),
        }
    }
    let verb = Verb::Create(write.create.clone());
    api.call(Request::collection(&write.resource, &write.namespace, verb)).await.map(drop)
}

/// Gives events their names: the object's name and the time in nanoseconds, never the same twice.
#[derive(Default)]
pub(crate) struct Names {
    last_nanos: i128,
}

impl Names {
    fn next(&mut self, object: &str, now: Timestamp) -> String {
        self.last_nanos = now.as_nanosecond().max(self.last_nanos + 1);
        let suffix = format!(".{:x}", self.last_nanos);
        let valid = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' { c } else { '-' };
        let stem: String = object.chars().take(NAME_CHARS_MAX - suffix.len()).map(valid).collect();
        format!("{}{suffix}", stem.trim_end_matches(['.', '-']))
    }
}

/// Names are DNS subdomains.
const NAME_CHARS_MAX: usize = 253;

/// The namespace an event about this object lives in: its own, or `default` for cluster-scoped ones.
pub(crate) fn namespace_of(event: &Event) -> &str {
    match event.regarding.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use bayplan_model::api::{EventType, ObjectReference};
    use bayplan_testkit::{FakeApi, refused};
    use serde_json::Value;

    use super::*;

    pub(crate) fn event(object: &str, reason: &'static str, note: &str) -> Event {
        Event {
            regarding: ObjectReference {
                api_version: "v1".into(),
                kind: "Pod".into(),
                namespace: "shop".into(),
                name: object.into(),
                uid: format!("uid-{object}"),
                resource_version: "7".into(),
            },
            event_type: EventType::Warning,
            reason: reason.into(),
            action: "Scheduling".into(),
            note: note.into(),
        }
    }

    pub(crate) fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + seconds).unwrap()
    }

    /// A server that answers with these codes, one after the other.
    fn server(codes: Vec<u16>) -> FakeApi {
        let codes = Mutex::new(VecDeque::from(codes));
        FakeApi::new(move |_| match codes.lock().unwrap().pop_front().unwrap_or(200) {
            200 => Ok(Value::Null),
            code => refused(code),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_unreachable_server_is_tried_again_and_not_for_ever() {
        let resource = Resource::new("", "v1", "events");
        let write = |patch: bool| Write {
            resource: resource.clone(),
            namespace: "shop".into(),
            name: "e".into(),
            patch: patch.then(Bytes::new),
            create: Bytes::new(),
        };
        for (patch, codes, calls) in [
            (false, vec![200], vec!["POST"]),
            (false, vec![500], vec!["POST"]),
            (false, vec![0, 0, 200], vec!["POST"; 3]),
            (false, vec![0; 20], vec!["POST"; 12]),
            (true, vec![200], vec!["PATCH"]),
            (true, vec![404, 200], vec!["PATCH", "POST"]),
            (true, vec![0, 404, 0, 200], vec!["PATCH", "PATCH", "POST", "PATCH"]),
            (true, vec![409], vec!["PATCH"]),
        ] {
            let api = server(codes);
            attempt(&api, write(patch)).await;
            let made = |request: &Request| if matches!(request.verb, Verb::Create(_)) { "POST" } else { "PATCH" };
            assert_eq!(api.calls().iter().map(made).collect::<Vec<_>>(), calls);
        }
    }

    #[test]
    fn names_are_valid_and_never_the_same() {
        let mut names = Names::default();
        let first = names.next("web-1", at(0));
        assert_eq!(first, "web-1.18867251edfa0000");
        assert_eq!(names.next("web-1", at(0)), "web-1.18867251edfa0001");
        assert!(names.next("system:node:x", at(1)).starts_with("system-node-x."));
        assert!(names.next(&"n".repeat(300), at(1)).len() <= NAME_CHARS_MAX);
    }
}
