//! What was promised to whom: acknowledged writes, delivered events, and the history that they are held against.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bayplan_store::{Change, Entry, Revision};
use bytes::Bytes;
use serde::Deserialize;

use crate::plan::Part;

/// The CPU of a node, in thousandths.
pub(crate) const NODE_MILLIS: u64 = 8000;

/// Where the lease of the control loops is stored.
const LEASE_KEY: &str = "/leases/kube-system/kube-controller-manager";

/// Who led may write so long: until it notices.
const LED_RECENTLY: Duration = Duration::from_secs(16);

/// What was promised in a run.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Promises that were broken.
    pub(crate) violations: Vec<String>,
    /// Whether a scheduler was not told what became of a binding: it may then give the room away a second time, as
    /// kube-scheduler does.
    pub(crate) bindings_unsure: bool,
    acknowledged: Vec<Acknowledged>,
    streams: Vec<Stream>,
    history: Vec<Past>,
    /// Every key as it is now.
    pub(crate) state: BTreeMap<Arc<str>, Entry>,
    pods: BTreeMap<Arc<str>, PodFacts>,
    /// Nodes onto which pods were put without the scheduler.
    crowded: BTreeSet<String>,
    pub(crate) last: Revision,
    /// Who holds the lease of the control loops.
    holder: String,
    /// Who held it, and until when.
    holders: BTreeMap<String, Duration>,
    /// How many pods were bound.
    pub(crate) bound: u64,
}

struct Acknowledged {
    what: String,
    revision: Revision,
    /// The revision that the writer had seen.
    seen: Option<Revision>,
}

/// A change that was made.
struct Past {
    revision: Revision,
    key: Arc<str>,
    previous: Option<Revision>,
    gone: bool,
}

/// A watch, and what it was sent.
struct Stream {
    part: Part,
    path: String,
    /// Where the objects are stored.
    prefix: String,
    selected: bool,
    /// Whether the first complete state has been sent.
    begun: bool,
    after: Revision,
    events: Vec<(Revision, Kind)>,
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(default)]
    object: Meta,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Lease {
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: String,
}

/// What the checks read of a pod.
#[derive(Clone, Default)]
struct PodFacts {
    uid: String,
    node: String,
    millis: u64,
    over: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    metadata: PodMeta,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodMeta {
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: String,
    containers: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    resources: Resources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: String,
}

impl PodFacts {
    fn read(value: &[u8]) -> PodFacts {
        let pod: Pod = serde_json::from_slice(value).unwrap_or_default();
        let cpu = |container: &Container| match container.resources.requests.get("cpu").map(String::as_str) {
            Some(text) => match text.strip_suffix('m') {
                Some(millis) => millis.parse().unwrap_or(0),
                None => text.parse::<u64>().unwrap_or(0) * 1000,
            },
            None => 0,
        };
        PodFacts {
            uid: pod.metadata.uid,
            node: pod.spec.node_name,
            millis: pod.spec.containers.iter().map(cpu).sum(),
            over: matches!(pod.status.phase.as_str(), "Succeeded" | "Failed"),
        }
    }
}

fn version(text: &str) -> Revision {
    text.parse().unwrap_or(0)
}

impl Ledger {
    /// A write was answered with success.
    pub(crate) fn acknowledged(&mut self, part: Part, what: &str, asked: &Bytes, answer: &Bytes) {
        let read = |bytes| serde_json::from_slice::<Meta>(bytes).map(|meta| version(&meta.metadata.resource_version));
        let (Ok(revision), puts) = (read(answer), what.starts_with("PUT")) else { return };
        if revision == 0 || what.starts_with("DELETE") {
            return;
        }
        let seen = puts.then(|| read(asked).unwrap_or(0)).filter(|seen| *seen > 0 && *seen != revision);
        self.acknowledged.push(Acknowledged { what: format!("{} {what}", part.name()), revision, seen });
    }

    /// A watch was opened.
    pub(crate) fn opened(&mut self, part: Part, path: &str, selected: bool, after: Option<Revision>) -> usize {
        let plural = path.rsplit('/').next().unwrap_or_default();
        let prefix = match plural {
            "nodes" => "minions",
            "services" => "services/specs",
            "endpoints" => "services/endpoints",
            "replicationcontrollers" => "controllers",
            plural => plural,
        };
        self.streams.push(Stream {
            part,
            path: path.to_owned(),
            prefix: format!("/registry/{prefix}/"),
            selected: selected || path.contains("/namespaces/"),
            begun: after.is_some(),
            after: after.unwrap_or(0),
            events: Vec::new(),
            open: true,
        });
        self.streams.len() - 1
    }

    pub(crate) fn closed(&mut self, number: usize) {
        self.streams[number].open = false;
    }

    /// How many watches are open.
    pub(crate) fn open_streams(&self) -> usize {
        self.streams.iter().filter(|stream| stream.open).count()
    }

    /// A server sent a line of a watch; true for a bookmark.
    pub(crate) fn delivered(&mut self, number: usize, line: &[u8]) -> bool {
        let Ok(event) = serde_json::from_slice::<Event>(line) else { return false };
        let revision = version(&event.object.metadata.resource_version);
        let stream = &mut self.streams[number];
        match event.kind {
            Kind::Bookmark if !stream.begun => (stream.begun, stream.after) = (true, revision),
            Kind::Bookmark | Kind::Error => {}
            kind if stream.begun => stream.events.push((revision, kind)),
            _ => {}
        }
        event.kind == Kind::Bookmark
    }

    /// The store shows a change.
    pub(crate) fn witness(&mut self, change: &Change, now: Duration) {
        if change.revision != self.last + 1 {
            let text = format!("the store's revision went from {} to {}", self.last, change.revision);
            self.violations.push(text);
        }
        self.last = change.revision;
        let (key, previous) = (change.key.clone(), change.previous.as_ref().map(|entry| entry.mod_revision));
        if previous != self.state.get(&key).map(|entry| entry.mod_revision) {
            self.violations.push(format!("{key} at {} follows a version that nobody was shown", change.revision));
        }
        let gone = change.current.is_none();
        self.history.push(Past { revision: change.revision, key: key.clone(), previous, gone });
        match &change.current {
            Some(entry) => self.state.insert(key.clone(), entry.clone()),
            None => self.state.remove(&key),
        };
        if let Some(entry) = change.current.as_ref().filter(|_| key.ends_with(LEASE_KEY)) {
            let lease: Lease = serde_json::from_slice(&entry.value).unwrap_or_default();
            let before = std::mem::replace(&mut self.holder, lease.spec.holder_identity);
            self.holders.insert(before, now);
        }
        if key.starts_with("/registry/pods/") {
            self.witness_pod(&key, change.current.as_ref());
        }
    }

    fn witness_pod(&mut self, key: &Arc<str>, current: Option<&Entry>) {
        let Some(entry) = current else {
            self.pods.remove(key);
            return;
        };
        let pod = PodFacts::read(&entry.value);
        let before = self.pods.insert(key.clone(), pod.clone());
        match before.filter(|before| before.uid == pod.uid) {
            Some(before) if before.node == pod.node => {}
            Some(before) if before.node.is_empty() => {
                self.bound += 1;
                self.check_room(key, &pod);
            }
            Some(before) => {
                self.violations.push(format!("{key} was bound to {} and then to {}", before.node, pod.node));
            }
            None if pod.node.is_empty() => {}
            None => drop(self.crowded.insert(pod.node)),
        }
    }

    fn check_room(&mut self, key: &str, pod: &PodFacts) {
        let on_it = self.pods.values().filter(|other| other.node == pod.node && !other.over);
        let used: u64 = on_it.map(|other| other.millis).sum();
        let excused = self.bindings_unsure || self.crowded.contains(&pod.node);
        if used > NODE_MILLIS && !excused {
            self.violations.push(format!("{key} was bound to {}, which then holds {used}m of CPU", pod.node));
        }
    }

    /// Control loops wrote something: they lead, or did so not long ago.
    pub(crate) fn wrote(&mut self, who: &str, what: &str, now: Duration) -> Option<String> {
        let led = || self.holders.get(who).is_some_and(|until| now.saturating_sub(*until) <= LED_RECENTLY);
        (self.holder != who && !led()).then(|| format!("{who} writes without leading: {what}"))
    }

    /// Holds what clients were told against the history.
    pub(crate) fn audit(&mut self) {
        let first = self.history.first().map_or(0, |past| past.revision);
        let at = |revision: Revision| self.history.get(usize::try_from(revision.checked_sub(first)?).ok()?);
        let mut broken = Vec::new();
        for Acknowledged { what, revision, seen } in &self.acknowledged {
            match at(*revision) {
                None => broken.push(format!("the acknowledged write of revision {revision} is lost: {what}")),
                Some(past) if seen.is_some() && past.previous != *seen => {
                    let (seen, previous) = (seen.unwrap_or(0), past.previous.unwrap_or(0));
                    broken.push(format!("{what} replaced revision {previous}, but its writer had seen {seen}"));
                }
                Some(_) => {}
            }
        }
        for stream in &self.streams {
            broken.extend(self.audit_stream(stream));
        }
        self.violations.extend(broken.into_iter().take(5));
    }

    /// Every watcher sees every change once.
    fn audit_stream(&self, stream: &Stream) -> Option<String> {
        let who = || format!("the watch of {} on {}", stream.part.name(), stream.path);
        let disorder = stream.events.windows(2).find(|pair| pair[0].0 >= pair[1].0);
        if let Some([(one, _), (other, _)]) = disorder {
            return Some(format!("{} was sent revision {one} and then {other}", who()));
        }
        let last = stream.events.last()?.0;
        if stream.selected || stream.after == 0 {
            return None;
        }
        let within = |past: &&Past| {
            past.revision > stream.after && past.revision <= last && past.key.starts_with(&stream.prefix)
        };
        let kind = |past: &Past| match (past.gone, past.previous) {
            (true, _) => Kind::Deleted,
            (false, None) => Kind::Added,
            (false, Some(_)) => Kind::Modified,
        };
        let made: Vec<_> = self.history.iter().filter(within).map(|past| (past.revision, kind(past))).collect();
        let missing = made.iter().find(|change| !stream.events.contains(change));
        let invented = stream.events.iter().find(|event| !made.contains(event));
        match (missing, invented) {
            (Some(change), _) => Some(format!("{} was not sent {change:?}", who())),
            (_, Some(event)) => Some(format!("{} was sent {event:?}, which did not happen", who())),
            _ => None,
        }
    }

    /// How much was held against the history: acknowledged writes, events.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.acknowledged.len(), self.streams.iter().map(|stream| stream.events.len()).sum())
    }
}
