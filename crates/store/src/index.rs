//! The memory index: every key's versions and the changes since the oldest readable revision. Pure: no IO, no locks.
//!
//! ```text
//!   keys     "/registry/pods/a" → newest 9, older [4, 7]        read at 8 → version 7
//!   history  [ 5 | 6 | 7 | 8 | 9 ]   in revision order, so the changes after a revision are found by its number
//!            oldest = 4 ↑         ↑ revision = 9
//! ```
//!
//! The embedded store makes one change per revision (`apply`). A mirror of etcd sees revisions without a change of its
//! keys, and several changes in one (`observe`, `advance`).
//!
//! Invariant: a key's older versions are exactly those that a read at `oldest` or later can still see.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Change, Entry, Range, ReadError, Revision, Unreadable};

/// What one change costs in memory beside its key and value bytes: the change itself and the version it leaves behind.
const CHANGE_OVERHEAD_BYTES: usize = 256;

/// One state of a key.
#[derive(Debug)]
struct Version {
    value: Value,
    create_revision: Revision,
    mod_revision: Revision,
}

/// What a version holds.
#[derive(Debug)]
enum Value {
    Readable(Bytes),
    /// Boxed, because it is rare and every version has room for the largest variant.
    Unreadable(Box<Hidden>),
    /// The key was deleted.
    Absent,
}

/// A value that is there, but that nobody may be shown.
#[derive(Debug)]
struct Hidden {
    reason: Arc<str>,
    /// The last state of the key that watchers were told.
    shown: Option<Entry>,
}

/// A write as it was seen in another store's history.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The revision of the write.
    pub revision: Revision,
    /// The key.
    pub key: Arc<str>,
    /// What the write did.
    pub effect: Effect,
}

/// What an observed write did to its key.
#[derive(Clone, Debug)]
pub enum Effect {
    /// It set a value; the error says why it cannot be read.
    Put {
        /// The value.
        value: Result<Bytes, Arc<str>>,
        /// The revision of the key's creation.
        create_revision: Revision,
    },
    /// It deleted the key.
    Deleted,
}

/// The states of a key that can still be read, oldest first; most keys have one, so that one is kept inline.
#[derive(Debug)]
struct Versions {
    older: VecDeque<Version>,
    newest: Version,
}

impl Versions {
    fn at(&self, revision: Revision) -> Option<&Version> {
        if self.newest.mod_revision <= revision {
            return Some(&self.newest);
        }
        let later = self.older.partition_point(|version| version.mod_revision <= revision);
        later.checked_sub(1).map(|last| &self.older[last])
    }

    /// Drops the versions that the one of revision `oldest` hides, and that one if nothing is there to be read; true
    /// when no version is left.
    fn forget(&mut self, oldest: Revision) -> bool {
        while self.older.front().is_some_and(|version| {
            version.mod_revision < oldest || (version.mod_revision == oldest && matches!(version.value, Value::Absent))
        }) {
            self.older.pop_front();
        }
        self.newest.mod_revision <= oldest && matches!(self.newest.value, Value::Absent)
    }
}

/// What there is to be read of a version; `None`: the key was deleted.
fn read(key: &Arc<str>, version: &Version) -> Option<Result<Entry, Unreadable>> {
    let (create_revision, mod_revision) = (version.create_revision, version.mod_revision);
    match &version.value {
        Value::Readable(value) => {
            Some(Ok(Entry { key: key.clone(), value: value.clone(), create_revision, mod_revision }))
        }
        Value::Unreadable(hidden) => {
            Some(Err(Unreadable { key: key.clone(), mod_revision, reason: hidden.reason.clone() }))
        }
        Value::Absent => None,
    }
}

/// What a change is charged against the history's limit.
fn weight(change: &Change) -> usize {
    change.key.len() + change.current.as_ref().map_or(0, |entry| entry.value.len()) + CHANGE_OVERHEAD_BYTES
}

/// Every key's versions, and the changes since the oldest readable revision.
#[derive(Debug)]
pub struct Index {
    keys: BTreeMap<Arc<str>, Versions>,
    /// In revision order, none newer than `revision`; its first changes may be older than `oldest` until they are
    /// pruned.
    history: VecDeque<Change>,
    history_bytes: usize,
    revision: Revision,
    oldest: Revision,
}

impl Index {
    /// An index without keys whose first change will be `revision + 1`.
    pub fn new(revision: Revision) -> Self {
        Index { keys: BTreeMap::new(), history: VecDeque::new(), history_bytes: 0, revision, oldest: revision }
    }

    /// Puts an entry of a snapshot into an index that has seen no change yet.
    pub fn load(&mut self, entry: Entry) {
        assert!(
            self.history.is_empty() && entry.mod_revision <= self.revision,
            "a snapshot is older than every change"
        );
        let newest = Version {
            value: Value::Readable(entry.value),
            create_revision: entry.create_revision,
            mod_revision: entry.mod_revision,
        };
        self.keys.insert(entry.key, Versions { older: VecDeque::new(), newest });
    }

    /// Puts an entry that cannot be read into an index that has seen no change yet.
    pub fn load_unreadable(&mut self, unreadable: Unreadable, create_revision: Revision) {
        assert!(
            self.history.is_empty() && unreadable.mod_revision <= self.revision,
            "a snapshot is older than every change"
        );
        let value = Value::Unreadable(Box::new(Hidden { reason: unreadable.reason, shown: None }));
        let newest = Version { value, create_revision, mod_revision: unreadable.mod_revision };
        self.keys.insert(unreadable.key, Versions { older: VecDeque::new(), newest });
    }

    /// The revision of the newest change.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The oldest revision that can be read.
    pub fn oldest(&self) -> Revision {
        self.oldest
    }

    /// About how many bytes the history holds on to.
    pub fn history_bytes(&self) -> usize {
        self.history_bytes
    }

    /// The newest entry of a key, if it can be read.
    pub fn get(&self, key: &str) -> Option<Entry> {
        self.lookup(key).ok().flatten()
    }

    /// The newest entry of a key, or why it cannot be read.
    pub fn lookup(&self, key: &str) -> Result<Option<Entry>, Unreadable> {
        let Some((key, versions)) = self.keys.get_key_value(key) else { return Ok(None) };
        read(key, &versions.newest).transpose()
    }

    /// The change that setting a key (`None`: deleting it) to a value makes after `found`, at a revision.
    pub fn change(key: &Arc<str>, value: Option<Bytes>, found: Option<Entry>, revision: Revision) -> Change {
        // The key the index already holds, so that history and versions share one allocation.
        let key = found.as_ref().map_or(key, |entry| &entry.key).clone();
        let create_revision = found.as_ref().map_or(revision, |entry| entry.create_revision);
        let current = value.map(|value| Entry { key: key.clone(), value, create_revision, mod_revision: revision });
        Change { revision, key, current, previous: found }
    }

    /// Takes in the next change.
    pub fn apply(&mut self, change: Change) {
        assert_eq!(change.revision, self.revision + 1, "changes are applied in revision order");
        let version = match &change.current {
            Some(entry) => Version {
                value: Value::Readable(entry.value.clone()),
                create_revision: entry.create_revision,
                mod_revision: change.revision,
            },
            None => Version { value: Value::Absent, create_revision: 0, mod_revision: change.revision },
        };
        self.push(change, version);
    }

    /// Takes in a write that another store made, and answers what watchers are told of it. Revisions may be left out,
    /// and several writes may have the same: they are to be observed before anybody can read the index again.
    ///
    /// Watchers are told nothing of values that cannot be read: the last state they know stays as it is until the key
    /// can be read again or is deleted. Then both sides of the change are as they know them.
    pub fn observe(&mut self, observed: Observed) -> Change {
        assert!(observed.revision >= self.revision, "writes are observed in revision order");
        let Observed { revision, key, effect } = observed;
        let (key, previous) = match self.keys.get_key_value(&key) {
            Some((key, versions)) => (key.clone(), shown(key, &versions.newest)),
            None => (key, None),
        };
        let (version, change) = match effect {
            Effect::Put { value: Ok(value), create_revision } => {
                let current = Entry { key: key.clone(), value, create_revision, mod_revision: revision };
                let value = Value::Readable(current.value.clone());
                let version = Version { value, create_revision, mod_revision: revision };
                (version, Change { revision, key, current: Some(current), previous })
            }
            Effect::Put { value: Err(reason), create_revision } => {
                let value = Value::Unreadable(Box::new(Hidden { reason, shown: previous }));
                let version = Version { value, create_revision, mod_revision: revision };
                (version, Change { revision, key, current: None, previous: None })
            }
            Effect::Deleted => {
                let version = Version { value: Value::Absent, create_revision: 0, mod_revision: revision };
                (version, Change { revision, key, current: None, previous })
            }
        };
        self.push(change.clone(), version);
        change
    }

    fn push(&mut self, change: Change, version: Version) {
        match self.keys.get_mut(&change.key) {
            Some(versions) => {
                let before = std::mem::replace(&mut versions.newest, version);
                versions.older.push_back(before);
            }
            None => {
                self.keys.insert(change.key.clone(), Versions { older: VecDeque::new(), newest: version });
            }
        }
        self.revision = change.revision;
        self.history_bytes += weight(&change);
        self.history.push_back(change);
    }

    /// Moves on to a revision: nothing changed here up to it.
    pub fn advance(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Whether a revision can be read.
    pub fn check(&self, revision: Revision) -> Result<(), ReadError> {
        if revision < self.oldest {
            return Err(ReadError::Compacted { requested: revision, oldest: self.oldest });
        }
        if revision > self.revision {
            return Err(ReadError::Future { requested: revision, current: self.revision });
        }
        Ok(())
    }

    /// Moves a scan on by at most `steps` keys; true when it is complete.
    pub fn scan(&self, scan: &mut Scan, steps: usize) -> Result<bool, ReadError> {
        let at = *scan.at.get_or_insert(self.revision);
        self.check(at)?;
        let Some(bounds) = scan.bounds() else { return Ok(true) };
        let mut last = None;
        for (taken, (key, versions)) in self.keys.range::<str, _>(bounds).enumerate() {
            if taken == steps {
                scan.from = last.map_or(Bound::Included(key), Bound::Excluded).cloned();
                return Ok(false);
            }
            last = Some(key);
            let full = scan.limit > 0 && scan.entries.len() == scan.limit;
            match versions.at(at).map(|version| (&version.value, version)) {
                None | Some((Value::Absent, _)) => {}
                // What lies behind the limit is reported with the page that it belongs to.
                Some((Value::Unreadable(_), _)) if full => {}
                Some((Value::Readable(_), _)) if full => scan.remaining += 1,
                Some((_, version)) => match read(key, version) {
                    Some(Ok(entry)) => scan.entries.push(entry),
                    Some(Err(unreadable)) => scan.unreadable.push(unreadable),
                    None => {}
                },
            }
        }
        Ok(true)
    }

    /// The changes after a revision, oldest first; after `steps` of them it ends with the revision it is at.
    pub fn changes(&self, after: Revision, steps: usize) -> Result<impl Iterator<Item = &Change>, ReadError> {
        self.check(after)?;
        let first = self.position(after);
        let mut end = first.saturating_add(steps).min(self.history.len());
        while end > first && self.history.get(end).is_some_and(|next| next.revision == self.history[end - 1].revision) {
            end += 1;
        }
        Ok(self.history.range(first..end))
    }

    /// How many changes of the history are not after a revision.
    fn position(&self, after: Revision) -> usize {
        // With one change per revision, which is the rule, it is found by subtraction.
        let guess = self.history.len().saturating_sub((self.revision - after) as usize);
        let before = guess == 0 || self.history[guess - 1].revision <= after;
        if before && self.history.get(guess).is_none_or(|change| change.revision > after) {
            return guess;
        }
        self.history.partition_point(|change| change.revision <= after)
    }

    /// Makes `oldest` the oldest revision that can be read; `prune` then frees what can no longer be read.
    pub fn compact(&mut self, oldest: Revision) -> Result<(), ReadError> {
        self.check(oldest)?;
        self.oldest = oldest;
        Ok(())
    }

    /// Frees at most `steps` changes that compaction made unreadable; true when none is left.
    pub fn prune(&mut self, steps: usize) -> bool {
        for _ in 0..steps {
            if self.history.front().is_none_or(|change| change.revision > self.oldest) {
                return true;
            }
            let change = self.history.pop_front().expect("looked at above");
            self.history_bytes -= weight(&change);
            let Some(versions) = self.keys.get_mut(&change.key) else { continue };
            if versions.forget(change.revision) {
                self.keys.remove(&change.key);
            }
        }
        self.history.front().is_none_or(|change| change.revision > self.oldest)
    }
}

/// The state of a key that watchers were told last.
fn shown(key: &Arc<str>, version: &Version) -> Option<Entry> {
    match &version.value {
        Value::Unreadable(hidden) => hidden.shown.clone(),
        _ => read(key, version)?.ok(),
    }
}

/// A range read that can pause between keys: the versions keep it consistent while writes go on.
#[derive(Debug)]
pub struct Scan {
    from: Bound<Arc<str>>,
    end: Option<Arc<str>>,
    at: Option<Revision>,
    limit: usize,
    entries: Vec<Entry>,
    unreadable: Vec<Unreadable>,
    remaining: usize,
}

impl Scan {
    /// A scan of `start <= key < end` (`None`: to the last key) at a revision (`None`: the newest), at most `limit` (0:
    /// all).
    pub fn new(start: &str, end: Option<&str>, at: Option<Revision>, limit: usize) -> Self {
        let from = Bound::Included(start.into());
        let end = end.map(Into::into);
        Scan { from, end, at, limit, entries: Vec::new(), unreadable: Vec::new(), remaining: 0 }
    }

    /// The entries found since the last call.
    pub fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }

    /// The answer of a complete scan.
    pub fn finish(self) -> Range {
        Range {
            revision: self.at.unwrap_or_default(),
            entries: self.entries,
            remaining: self.remaining,
            unreadable: self.unreadable,
        }
    }

    /// The keys still to be seen; `None` when the bounds hold no key (a map panics on those).
    fn bounds(&self) -> Option<(Bound<&str>, Bound<&str>)> {
        let from = self.from.as_ref().map(|key| &**key);
        let Some(end) = self.end.as_deref() else { return Some((from, Bound::Unbounded)) };
        match from {
            Bound::Included(start) | Bound::Excluded(start) if start >= end => None,
            _ => Some((from, Bound::Excluded(end))),
        }
    }
}
