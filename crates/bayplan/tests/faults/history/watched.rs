//! What a watcher was told, over all the connections it needed.

use std::collections::BTreeMap;

use super::{ChangeKind, Rule, Truth, Violation};

/// A change, as a watch tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) kind: ChangeKind,
    pub(crate) key: String,
    pub(crate) revision: u64,
}

/// Something that a watcher was told.
#[derive(Clone, Debug)]
pub(crate) enum WatchEvent {
    Seen(Seen),
    /// Everything up to here was told.
    Bookmark(u64),
    /// The server knew no longer what came after the watcher's version, and said so: it listed again.
    Listed(u64, BTreeMap<String, u64>),
}

impl WatchEvent {
    /// Up to where it tells.
    pub(crate) fn revision(&self) -> u64 {
        match self {
            WatchEvent::Seen(seen) => seen.revision,
            WatchEvent::Bookmark(revision) | WatchEvent::Listed(revision, _) => *revision,
        }
    }
}

/// All that a watcher was told after the version it began with.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) name: String,
    pub(crate) prefix: String,
    pub(crate) from: u64,
    pub(crate) events: Vec<WatchEvent>,
}

impl Watched {
    /// Compares with what etcd did up to a revision, which the watcher has passed.
    pub(crate) fn check(&self, truth: &Truth, until: u64) -> Vec<Violation> {
        let mut expected = truth.after(self.from, &self.prefix).filter(|change| change.revision <= until).peekable();
        let mut violations = Vec::new();
        let mut cursor = self.from;
        let of = |rule: Rule, what: String| rule.broken(format!("{}: {what}", self.name));
        for event in &self.events {
            let revision = event.revision();
            // A bookmark may tell the version of the last event once more.
            let repeats = matches!(event, WatchEvent::Seen(_)) && revision == cursor;
            if revision < cursor || repeats {
                let rule = if repeats { Rule::NoEventIsDoubled } else { Rule::VersionsNeverGoBack };
                violations.push(of(rule, format!("{event:?} after {cursor}")));
                continue;
            }
            cursor = revision;
            if let WatchEvent::Listed(revision, objects) = event {
                while expected.next_if(|change| change.revision <= *revision).is_some() {}
                let state = truth.state_at(*revision, &self.prefix);
                if state != *objects {
                    violations.push(of(Rule::ListsAreTrue, super::difference(*revision, objects, &state)));
                }
                continue;
            }
            while let Some(change) = expected.next_if(|change| change.revision <= revision) {
                let change = Seen { kind: change.kind, key: change.key.clone(), revision: change.revision };
                if !matches!(event, WatchEvent::Seen(seen) if *seen == change) {
                    violations.push(of(Rule::NoEventIsSkipped, format!("{change:?} before {event:?}")));
                }
            }
        }
        let missed = expected.map(|change| format!("{:?} {} at {}", change.kind, change.key, change.revision));
        violations.extend(missed.map(|change| of(Rule::NoEventIsSkipped, format!("{change}, and nothing after it"))));
        violations
    }
}
