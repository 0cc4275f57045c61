//! The index against the simplest model there is: a list of changes.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_store::{Change, Entry, Index, Range, ReadError, Scan};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Vec<u8>),
    Delete(u8),
    /// Compacts to a place between oldest and newest, in percent, freeing at most so many changes.
    Compact(u64, usize),
}

#[derive(Clone, Debug)]
struct Query {
    start: u8,
    end: Option<u8>,
    /// A place between 0 and newest + 1, in percent.
    at: Option<u64>,
    limit: usize,
    pace: usize,
}

fn key(number: u8) -> Arc<str> {
    format!("/k/{number}").into()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..8u8, prop::collection::vec(any::<u8>(), 0..3)).prop_map(|(key, value)| Step::Put(key, value)),
        3 => (0..8u8).prop_map(Step::Delete),
        1 => (0..=100u64, 0..20usize).prop_map(|(place, freed)| Step::Compact(place, freed)),
    ];
    prop::collection::vec(step, 0..60)
}

fn queries() -> impl Strategy<Value = Vec<Query>> {
    let bound = prop::option::of(0..9u8);
    let query = (0..9u8, bound, prop::option::of(0..=101u64), 0..5usize, 1..5usize);
    prop::collection::vec(query.prop_map(|(start, end, at, limit, pace)| Query { start, end, at, limit, pace }), 8)
}

/// The list of changes, and how much of it may be forgotten.
struct Model {
    changes: Vec<Change>,
    oldest: u64,
}

impl Model {
    fn revision(&self) -> u64 {
        self.changes.len() as u64 + 1
    }

    fn state(&self, at: u64) -> BTreeMap<Arc<str>, Entry> {
        let mut state = BTreeMap::new();
        for change in self.changes.iter().take_while(|change| change.revision <= at) {
            match &change.current {
                Some(entry) => drop(state.insert(change.key.clone(), entry.clone())),
                None => drop(state.remove(&change.key)),
            }
        }
        state
    }

    fn check(&self, at: u64) -> Result<(), ReadError> {
        let (oldest, current) = (self.oldest, self.revision());
        match at {
            _ if at < oldest => Err(ReadError::Compacted { requested: at, oldest }),
            _ if at > current => Err(ReadError::Future { requested: at, current }),
            _ => Ok(()),
        }
    }

    fn range(&self, query: &Query, at: Option<u64>) -> Result<Range, ReadError> {
        let revision = at.unwrap_or(self.revision());
        self.check(revision)?;
        let (start, end) = (key(query.start), query.end.map(key));
        let within = |key: &Arc<str>| *key >= start && end.as_ref().is_none_or(|end| key < end);
        let all: Vec<Entry> = self.state(revision).into_values().filter(|entry| within(&entry.key)).collect();
        let taken = if query.limit == 0 { all.len() } else { query.limit.min(all.len()) };
        let remaining = all.len() - taken;
        Ok(Range { revision, entries: all[..taken].to_vec(), remaining, unreadable: Vec::new() })
    }
}

fn scan(index: &Index, query: &Query, at: Option<u64>) -> Result<Range, ReadError> {
    let mut scan = Scan::new(&key(query.start), query.end.map(key).as_deref(), at, query.limit);
    while !index.scan(&mut scan, query.pace)? {}
    Ok(scan.finish())
}

fn take(index: &mut Index, model: &mut Model, step: Step) {
    let (key, value) = match step {
        Step::Put(number, value) => (key(number), Some(value)),
        Step::Delete(number) => (key(number), None),
        Step::Compact(place, freed) => {
            model.oldest += (model.revision() - model.oldest) * place / 100;
            index.compact(model.oldest).unwrap();
            index.prune(freed);
            return;
        }
    };
    let revision = model.revision() + 1;
    let previous = model.state(revision).remove(&key);
    assert_eq!(index.get(&key), previous);
    if value.is_none() && previous.is_none() {
        return;
    }
    let current = value.clone().map(|value| Entry {
        key: key.clone(),
        value: value.into(),
        create_revision: previous.as_ref().map_or(revision, |entry| entry.create_revision),
        mod_revision: revision,
    });
    let change = Change { revision, key: key.clone(), current, previous: previous.clone() };
    assert_eq!(Index::change(&key, value.map(Into::into), previous, revision), change);
    index.apply(change.clone());
    model.changes.push(change);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_answers_like_a_list_of_changes(steps in steps(), queries in queries()) {
        let (mut index, mut model) = (Index::new(1), Model { changes: Vec::new(), oldest: 1 });
        for step in steps {
            take(&mut index, &mut model, step);
        }
        prop_assert_eq!((index.revision(), index.oldest()), (model.revision(), model.oldest));
        for query in &queries {
            let at = query.at.map(|place| (model.revision() + 1) * place / 100);
            prop_assert_eq!(scan(&index, query, at), model.range(query, at), "{:?} at {:?}", query, at);
        }
        for after in 0..=model.revision() + 1 {
            let seen = index.changes(after, usize::MAX).map(|changes| changes.cloned().collect::<Vec<_>>());
            let expected = model.check(after).map(|()| model.changes[after as usize - 1..].to_vec());
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn a_full_compaction_leaves_one_version_of_each_live_key_and_no_history(steps in steps()) {
        let (mut index, mut model) = (Index::new(1), Model { changes: Vec::new(), oldest: 1 });
        for step in steps {
            take(&mut index, &mut model, step);
        }
        index.compact(model.revision()).unwrap();
        while !index.prune(3) {}
        prop_assert_eq!(index.history_bytes(), 0);
        let mut rebuilt = Index::new(model.revision());
        model.state(model.revision()).into_values().for_each(|entry| rebuilt.load(entry));
        prop_assert_eq!(format!("{index:?}"), format!("{rebuilt:?}"));
    }
}
