//! The memory index: every key's versions and the changes since the oldest readable revision. Pure: no IO, no locks.
//!
//! ```text
//!   keys     "/registry/pods/a" → newest 9, older [4, 7]        read at 8 → version 7
//!   history  [ 5 | 6 | 7 | 8 | 9 ]   one change per revision, so the change of revision r is at r - 5
//!            oldest = 4 ↑         ↑ revision = 9
//! ```
//!
//! Invariant: a key's older versions are exactly those that a read at `oldest` or later can still see.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Change, Entry, Range, ReadError, Revision};

/// What one change costs in memory beside its key and value bytes: the change itself and the version it leaves behind.
const CHANGE_OVERHEAD_BYTES: usize = 256;

/// One state of a key.
#[derive(Debug)]
struct Version {
    /// `None`: the key was deleted.
    value: Option<Bytes>,
    create_revision: Revision,
    mod_revision: Revision,
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

    /// Drops the older versions up to and including a revision; true when the newest is as old, too.
    fn forget(&mut self, up_to: Revision) -> bool {
        while self.older.front().is_some_and(|version| version.mod_revision <= up_to) {
            self.older.pop_front();
        }
        self.newest.mod_revision <= up_to
    }
}

fn entry(key: &Arc<str>, version: &Version) -> Option<Entry> {
    version.value.as_ref().map(|value| Entry {
        key: key.clone(),
        value: value.clone(),
        create_revision: version.create_revision,
        mod_revision: version.mod_revision,
    })
}

/// What a change is charged against the history's limit.
fn weight(change: &Change) -> usize {
    change.key.len() + change.current.as_ref().map_or(0, |entry| entry.value.len()) + CHANGE_OVERHEAD_BYTES
}

/// Every key's versions, and the changes since the oldest readable revision.
#[derive(Debug)]
pub struct Index {
    keys: BTreeMap<Arc<str>, Versions>,
    /// Dense: ends at `revision`; its first changes may be older than `oldest` until they are pruned.
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
            value: Some(entry.value),
            create_revision: entry.create_revision,
            mod_revision: entry.mod_revision,
        };
        self.keys.insert(entry.key, Versions { older: VecDeque::new(), newest });
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

    /// The newest entry of a key.
    pub fn get(&self, key: &str) -> Option<Entry> {
        let (key, versions) = self.keys.get_key_value(key)?;
        entry(key, &versions.newest)
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
        let version = Version {
            value: change.current.as_ref().map(|entry| entry.value.clone()),
            create_revision: change.current.as_ref().map_or(0, |entry| entry.create_revision),
            mod_revision: change.revision,
        };
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
            let Some(version) = versions.at(at).filter(|version| version.value.is_some()) else { continue };
            if scan.limit > 0 && scan.entries.len() == scan.limit {
                scan.remaining += 1;
            } else {
                scan.entries.extend(entry(key, version));
            }
        }
        Ok(true)
    }

    /// The changes after a revision, at most `steps` of them, oldest first.
    pub fn changes(&self, after: Revision, steps: usize) -> Result<impl Iterator<Item = &Change>, ReadError> {
        self.check(after)?;
        let skip = self.history.len() - (self.revision - after) as usize;
        Ok(self.history.range(skip..).take(steps))
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
            // A write hides what came before it; a deletion hides itself as well, for nothing is there to be read.
            let deleted = change.current.is_none();
            let hidden = if deleted { change.revision } else { change.revision - 1 };
            if versions.forget(hidden) && deleted {
                self.keys.remove(&change.key);
            }
        }
        self.history.front().is_none_or(|change| change.revision > self.oldest)
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
    remaining: usize,
}

impl Scan {
    /// A scan of `start <= key < end` (`None`: to the last key) at a revision (`None`: the newest), at most `limit` (0:
    /// all).
    pub fn new(start: &str, end: Option<&str>, at: Option<Revision>, limit: usize) -> Self {
        let from = Bound::Included(start.into());
        Scan { from, end: end.map(Into::into), at, limit, entries: Vec::new(), remaining: 0 }
    }

    /// The entries found since the last call.
    pub fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }

    /// The answer of a complete scan.
    pub fn finish(self) -> Range {
        Range { revision: self.at.unwrap_or_default(), entries: self.entries, remaining: self.remaining }
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
