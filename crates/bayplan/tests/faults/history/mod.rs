//! What the test's own clients were told, and whether it can be true: compared with the changes that etcd itself made.
//!
//! Everything here is pure, so that planted violations can show that each rule is held (`tests.rs`).

mod registers;
#[cfg(test)]
mod tests;
mod watched;

use std::collections::BTreeMap;
use std::fmt;

pub(crate) use registers::{Action, Operation, Register, text_of};
pub(crate) use watched::{Seen, WatchEvent, Watched};

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// A change that etcd made.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: String,
    pub(crate) kind: ChangeKind,
    pub(crate) value: Vec<u8>,
}

impl Change {
    /// Whether the stored object has this text in it, in whatever form it is stored.
    fn has(&self, text: &str) -> bool {
        self.value.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// A rule that was broken, and how.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}

/// The rules that a history is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A write that was acknowledged is there, at the revision that was told, until the next one.
    NothingAcknowledgedIsLost,
    /// Versions of a key, of lists and of watches only grow.
    VersionsNeverGoBack,
    /// Once a pod has a node, it keeps it.
    NoPodIsBoundTwice,
    /// A watcher sees every change after the version that it began with,
    NoEventIsSkipped,
    /// and each once, in order.
    NoEventIsDoubled,
    /// A list is what was there at its version.
    ListsAreTrue,
    /// Reads and writes of one object are those of a single register.
    ObjectsAreLinearizable,
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

impl Rule {
    /// This rule was broken.
    fn broken(self, what: String) -> Violation {
        Violation { rule: self, what }
    }
}

/// Every change since some revision, as etcd tells them.
pub(crate) struct Truth {
    /// Keys and the revisions of their last changes,
    base: BTreeMap<String, u64>,
    /// at this revision.
    base_revision: u64,
    changes: Vec<Change>,
}

impl Truth {
    /// Begins with the keys that were there at a revision.
    pub(crate) fn new(base: BTreeMap<String, u64>, revision: u64) -> Truth {
        Truth { base, base_revision: revision, changes: Vec::new() }
    }

    /// The revision of the last change.
    pub(crate) fn revision(&self) -> u64 {
        self.changes.last().map_or(self.base_revision, |change| change.revision)
    }

    /// Adds changes in order.
    pub(crate) fn extend(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            assert!(change.revision >= self.revision(), "etcd itself goes back: {change:?}");
            self.changes.push(change);
        }
    }

    /// Keys with this prefix and the revisions of their last changes, at a revision.
    pub(crate) fn state_at(&self, revision: u64, prefix: &str) -> BTreeMap<String, u64> {
        let mut state: BTreeMap<String, u64> =
            self.base.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(key, r)| (key.clone(), *r)).collect();
        for change in self.changes.iter().take_while(|change| change.revision <= revision) {
            apply(&mut state, change, prefix);
        }
        state
    }

    /// The changes of keys with this prefix after a revision.
    pub(crate) fn after(&self, revision: u64, prefix: &str) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.revision > revision && change.key.starts_with(prefix))
    }

    /// How many changes it holds.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Forgets the changes up to a revision.
    pub(crate) fn forget(&mut self, revision: u64) {
        self.base = self.state_at(revision, "");
        self.base_revision = revision.max(self.base_revision);
        self.changes.retain(|change| change.revision > revision);
    }
}

fn apply(state: &mut BTreeMap<String, u64>, change: &Change, prefix: &str) {
    if !change.key.starts_with(prefix) {
        return;
    }
    match change.kind {
        ChangeKind::Deleted => state.remove(&change.key),
        ChangeKind::Added | ChangeKind::Modified => state.insert(change.key.clone(), change.revision),
    };
}

/// What one client, which alone writes a key, was told about its writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promise {
    pub(crate) key: String,
    /// Revisions and the text that each write put there.
    pub(crate) acknowledged: Vec<(u64, String)>,
    /// Whether the deletion was acknowledged.
    pub(crate) deleted: bool,
    /// The last write, if it was never answered: it happened or it did not. The client left the key alone after it.
    pub(crate) doubt: Option<Doubt>,
}

/// A write without an answer.
#[derive(Clone, Debug)]
pub(crate) enum Doubt {
    /// It may have put this text there.
    Write(String),
    Delete,
}

impl Promise {
    /// Compares with what etcd did up to a revision.
    pub(crate) fn check(&self, truth: &Truth, until: u64) -> Vec<Violation> {
        let lost = |what: String| Rule::NothingAcknowledgedIsLost.broken(format!("{}: {what}; {self:?}", self.key));
        let changes: Vec<&Change> = truth.after(0, &self.key).filter(|change| change.key == self.key).collect();
        let mut violations = Vec::new();
        for (revision, text) in &self.acknowledged {
            if !changes.iter().any(|change| change.revision == *revision && change.has(text)) {
                violations.push(lost(format!("etcd never wrote {text:?} at {revision}")));
            }
        }
        let last = changes.iter().rfind(|change| change.revision <= until);
        let is_gone = last.is_none_or(|last| last.kind == ChangeKind::Deleted);
        let promised = self.acknowledged.last().map(|(revision, _)| *revision);
        let is_as_promised = match promised {
            Some(promised) if !self.deleted => last.is_some_and(|last| last.revision == promised),
            _ => is_gone,
        };
        let is_as_doubted = match &self.doubt {
            Some(Doubt::Write(text)) => last.is_some_and(|last| last.kind != ChangeKind::Deleted && last.has(text)),
            Some(Doubt::Delete) => is_gone,
            None => false,
        };
        if !is_as_promised && !is_as_doubted {
            let last = last.map(|last| (last.revision, last.kind));
            violations.push(lost(format!("at {until} its last change is {last:?}")));
        }
        violations
    }
}

/// A list that a client was given.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// When it was asked for and when the answer was there, on the test's one clock.
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) revision: u64,
    pub(crate) objects: BTreeMap<String, u64>,
}

/// Compares lists of one prefix with what was there, and their versions with each other.
pub(crate) fn check_lists(lists: &[Listed], truth: &Truth, prefix: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for list in lists {
        let state = truth.state_at(list.revision, prefix);
        if state != list.objects {
            violations.push(Rule::ListsAreTrue.broken(difference(list.revision, &list.objects, &state)));
        }
    }
    let versions: Vec<_> = lists.iter().map(|list| (list.begun, list.ended, list.revision)).collect();
    violations.extend(check_versions(&format!("lists of {prefix}"), &versions));
    violations
}

fn difference(revision: u64, told: &BTreeMap<String, u64>, state: &BTreeMap<String, u64>) -> String {
    let told_only: Vec<_> = told.iter().filter(|(key, r)| state.get(*key) != Some(*r)).collect();
    let state_only: Vec<_> = state.iter().filter(|(key, r)| told.get(*key) != Some(*r)).collect();
    format!("at {revision} it has {told_only:?} where etcd has {state_only:?}")
}

/// What was seen later is not older: `(begun, ended, version)` of answers about one thing.
pub(crate) fn check_versions(what: &str, answers: &[(u64, u64, u64)]) -> Vec<Violation> {
    let mut by_begin = answers.to_vec();
    by_begin.sort_unstable();
    let mut by_end = answers.to_vec();
    by_end.sort_unstable_by_key(|(_, ended, _)| *ended);
    let mut ended = by_end.iter().peekable();
    let (mut newest, mut violations) = (0, Vec::new());
    for (begun, _, version) in by_begin {
        while let Some((_, _, earlier)) = ended.next_if(|(_, ended, _)| *ended < begun) {
            newest = newest.max(*earlier);
        }
        if version < newest {
            let what = format!("{what}: {version} was answered after {newest}");
            violations.push(Rule::VersionsNeverGoBack.broken(what));
        }
    }
    violations
}

/// The node of every pod that was ever seen with one, by its UID.
#[derive(Default)]
pub(crate) struct Bindings(BTreeMap<String, String>);

impl Bindings {
    /// A pod was seen with this node, or without one.
    pub(crate) fn observe(&mut self, pod: &str, uid: &str, node: &str) -> Option<Violation> {
        let bound = match self.0.get(uid) {
            None if node.is_empty() => return None,
            None => {
                self.0.insert(uid.to_owned(), node.to_owned());
                return None;
            }
            Some(bound) => bound,
        };
        (bound != node).then(|| Rule::NoPodIsBoundTwice.broken(format!("{pod} ({uid}) was on {bound}, then {node:?}")))
    }

    /// How many pods were seen with a node.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
