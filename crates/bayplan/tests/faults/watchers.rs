//! Watchers that begin where they stopped, at the same server or at another one, and record all they are told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::history::{Bindings, ChangeKind, Seen, Violation, WatchEvent, Watched};
use crate::load::objects_of;
use crate::requests::{ApiClient, version};

/// A watch without a word for so long is opened anew: something is written every few milliseconds.
const QUIET_MAX: Duration = Duration::from_secs(15);
/// The pause before a watch is opened anew.
const PAUSE: Duration = Duration::from_millis(300);

/// What is watched.
#[derive(Clone, Copy)]
pub(crate) struct Collection {
    pub(crate) path: &'static str,
    /// Where its objects are in etcd.
    pub(crate) keys: &'static str,
}

/// A watcher's record, which it adds to.
struct Notes {
    watched: Watched,
    bindings: Bindings,
    violations: Vec<Violation>,
    resumed: usize,
}

/// What a watcher did for one fault.
pub(crate) struct Report {
    pub(crate) watched: Watched,
    pub(crate) violations: Vec<Violation>,
    /// How often it began where it stopped,
    pub(crate) resumed: usize,
    /// and how many pods it has seen on a node since the test began.
    pub(crate) bound: usize,
}

/// A watcher at work.
pub(crate) struct Watcher {
    notes: Arc<Mutex<Notes>>,
    task: JoinHandle<()>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watcher {
    /// Watches a collection through these servers, each time the next one.
    pub(crate) async fn start(name: &str, collection: Collection, servers: Vec<ApiClient>) -> Watcher {
        let (from, _) = list(&servers[0], collection).await.expect("no fault is under way yet");
        let watched = Watched { name: name.into(), prefix: collection.keys.into(), from, events: Vec::new() };
        let (bindings, violations) = (Bindings::default(), Vec::new());
        let notes = Arc::new(Mutex::new(Notes { watched, bindings, violations, resumed: 0 }));
        let task = tokio::spawn(run(collection, servers, from, notes.clone()));
        Watcher { notes, task }
    }

    /// Up to where it has been told everything.
    pub(crate) fn revision(&self) -> u64 {
        let notes = self.notes.lock().unwrap();
        notes.watched.events.last().map_or(notes.watched.from, WatchEvent::revision)
    }

    /// Takes what it was told up to a revision.
    pub(crate) fn report(&self, until: u64) -> Report {
        let mut notes = self.notes.lock().unwrap();
        let (told, later) = std::mem::take(&mut notes.watched.events).into_iter().partition(|e| e.revision() <= until);
        let watched = Watched { events: told, ..notes.watched.clone() };
        notes.watched.events = later;
        notes.watched.from = notes.watched.from.max(until);
        let violations = std::mem::take(&mut notes.violations);
        Report { watched, violations, resumed: std::mem::take(&mut notes.resumed), bound: notes.bindings.len() }
    }
}

async fn list(client: &ApiClient, collection: Collection) -> Option<(u64, Value)> {
    let list = client.get(collection.path).await.done()?;
    Some((version(&list), list))
}

/// Why a watch ended.
enum End {
    /// The connection; what comes after the last version is asked for again.
    Connection,
    /// The server no longer knows what came after it.
    Expired,
}

async fn run(collection: Collection, servers: Vec<ApiClient>, mut revision: u64, notes: Arc<Mutex<Notes>>) {
    for turn in 0.. {
        let server: &ApiClient = &servers[turn % servers.len()];
        if let End::Expired = follow(server, collection, &mut revision, &notes).await
            && let Some((listed, list)) = list(server, collection).await
        {
            revision = listed;
            let event = WatchEvent::Listed(listed, objects_of(&list, collection.keys));
            notes.lock().unwrap().watched.events.push(event);
        }
        notes.lock().unwrap().resumed += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads one watch to its end.
async fn follow(server: &ApiClient, collection: Collection, revision: &mut u64, notes: &Mutex<Notes>) -> End {
    let path = format!("{}?watch=1&allowWatchBookmarks=true&resourceVersion={revision}", collection.path);
    let mut body = match server.watch(&path).await {
        Ok(answer) => answer.into_body(),
        Err(Some(410)) => return End::Expired,
        Err(_) => return End::Connection,
    };
    let mut buffer = Vec::new();
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(QUIET_MAX, body.frame()).await {
        buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let Ok(event) = serde_json::from_slice::<Value>(&line) else { return End::Connection };
            let mut notes = notes.lock().unwrap();
            match note(&mut notes, collection, &event) {
                Ok(told) => *revision = (*revision).max(told),
                Err(end) => return end,
            }
        }
    }
    End::Connection
}

/// Writes an event down, and answers its version.
fn note(notes: &mut Notes, collection: Collection, event: &Value) -> Result<u64, End> {
    let object = &event["object"];
    let revision = version(object);
    let kind = match event["type"].as_str() {
        Some("ADDED") => ChangeKind::Added,
        Some("MODIFIED") => ChangeKind::Modified,
        Some("DELETED") => ChangeKind::Deleted,
        Some("BOOKMARK") => {
            notes.watched.events.push(WatchEvent::Bookmark(revision));
            return Ok(revision);
        }
        _ if object["code"] == 410 => return Err(End::Expired),
        _ => return Err(End::Connection),
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let key = format!("{}{name}", collection.keys);
    notes.watched.events.push(WatchEvent::Seen(Seen { kind, key, revision }));
    if object["kind"] == "Pod" {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
        let violation = notes.bindings.observe(name, uid, node);
        notes.violations.extend(violation);
    }
    Ok(revision)
}
