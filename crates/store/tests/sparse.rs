//! The index as a mirror of another store: revisions without a change, with several, and with values that cannot be
//! read; against the simplest model there is.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_store::{Change, Effect, Entry, Index, Observed, Scan, SharedIndex};
use bytes::Bytes;
use futures::FutureExt;
use proptest::prelude::*;

/// What happens to a key: a value, one that cannot be read, or its end.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u8),
    Hide,
    Delete,
}

/// Revisions: how many pass without a change, then what happens to which keys in one.
fn history() -> impl Strategy<Value = Vec<(u64, BTreeMap<u8, Step>)>> {
    let step = prop_oneof![
        4 => any::<u8>().prop_map(Step::Put),
        1 => Just(Step::Hide),
        2 => Just(Step::Delete),
    ];
    let changes = prop::collection::btree_map(0..6u8, step, 0..5);
    prop::collection::vec((0..3u64, changes), 0..25)
}

/// A state of a key: a readable value or not, with its revisions.
type State = BTreeMap<String, (Option<u8>, u64, u64)>;

struct Model {
    /// The state at each revision.
    states: Vec<State>,
    observed: Vec<Observed>,
    /// What watchers are told.
    told: Vec<Change>,
}

fn entry(key: &str, value: u8, create_revision: u64, mod_revision: u64) -> Entry {
    Entry { key: key.into(), value: vec![value].into(), create_revision, mod_revision }
}

fn model(history: &[(u64, BTreeMap<u8, Step>)]) -> Model {
    let mut model = Model { states: vec![State::new(); 2], observed: Vec::new(), told: Vec::new() };
    let mut shown: BTreeMap<String, Entry> = BTreeMap::new();
    for (gap, changes) in history {
        let mut state = model.states.last().unwrap().clone();
        (0..*gap).for_each(|_| model.states.push(state.clone()));
        let revision = model.states.len() as u64;
        for (number, step) in changes {
            let key = format!("/k/{number}");
            let created = state.get(&key).map_or(revision, |(_, created, _)| *created);
            let effect = match step {
                Step::Delete if !state.contains_key(&key) => continue,
                Step::Delete => {
                    state.remove(&key);
                    Effect::Deleted
                }
                Step::Put(value) => {
                    state.insert(key.clone(), (Some(*value), created, revision));
                    Effect::Put { value: Ok(Bytes::from(vec![*value])), create_revision: created }
                }
                Step::Hide => {
                    state.insert(key.clone(), (None, created, revision));
                    Effect::Put { value: Err("hidden".into()), create_revision: created }
                }
            };
            let previous = shown.get(&key).cloned();
            let current = match step {
                Step::Put(value) => Some(entry(&key, *value, created, revision)),
                _ => None,
            };
            match (&current, step) {
                (Some(current), _) => drop(shown.insert(key.clone(), current.clone())),
                (None, Step::Delete) => drop(shown.remove(&key)),
                (None, _) => {}
            }
            let silent = matches!(step, Step::Hide) || (current.is_none() && previous.is_none());
            if !silent {
                model.told.push(Change { revision, key: key.as_str().into(), current, previous });
            }
            model.observed.push(Observed { revision, key: key.into(), effect });
        }
        model.states.push(state);
    }
    model
}

fn check_states(index: &Index, model: &Model, oldest: u64) {
    for (at, state) in model.states.iter().enumerate().skip(oldest as usize) {
        let mut scan = Scan::new("", None, Some(at as u64), 0);
        while !index.scan(&mut scan, 2).unwrap() {}
        let range = scan.finish();
        let readable = state
            .iter()
            .filter_map(|(key, (value, created, modified))| value.map(|value| entry(key, value, *created, *modified)));
        assert!(range.entries.into_iter().eq(readable), "at {at}");
        let hidden = state.iter().filter(|(_, (value, ..))| value.is_none()).map(|(key, (.., at))| (&**key, *at));
        assert!(range.unreadable.iter().map(|one| (&*one.key, one.mod_revision)).eq(hidden), "at {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mirror_answers_like_what_it_mirrors(history in history(), place in 0..=100u64) {
        let model = model(&history);
        let newest = model.states.len() as u64 - 1;
        let shared = Arc::new(SharedIndex::new(Index::new(1)));
        let mut watch = shared.watch("", "\u{10FFFF}", 1).unwrap();
        shared.observe(model.observed.clone(), newest);
        prop_assert_eq!(shared.index().revision(), newest);
        check_states(&shared.index(), &model, 1);
        for after in 1..=newest {
            let found = shared.index().changes(after, usize::MAX).unwrap()
                .filter(|change| change.current.is_some() || change.previous.is_some()).cloned().collect::<Vec<_>>();
            let expected: Vec<Change> = model.told.iter().filter(|change| change.revision > after).cloned().collect();
            prop_assert_eq!(found, expected);
        }
        let told = watch.next().now_or_never().map_or(Vec::new(), Result::unwrap);
        prop_assert_eq!(&told, &model.told);
        prop_assert!(watch.next().now_or_never().is_none());
        prop_assert_eq!(watch.progress(), newest);
        let oldest = 1 + (newest - 1) * place / 100;
        shared.compact(oldest).unwrap();
        check_states(&shared.index(), &model, oldest);
        shared.compact(newest).unwrap();
        prop_assert_eq!(shared.index().history_bytes(), 0);
        check_states(&shared.index(), &model, newest);
    }
}

#[test]
fn a_revision_with_many_changes_is_delivered_whole() {
    let shared = Arc::new(SharedIndex::new(Index::new(1)));
    let mut watch = shared.watch("", "\u{10FFFF}", 1).unwrap();
    let put = |revision, n: usize| Observed {
        revision,
        key: format!("/k/{n:05}").into(),
        effect: Effect::Put { value: Ok(Bytes::new()), create_revision: revision },
    };
    // More than one answer holds, and more than one look, in revisions 5, 6 and 9.
    let observed = [(5, 5000), (6, 300), (9, 5000)].into_iter();
    let observed: Vec<Observed> = observed.flat_map(|(at, count)| (0..count).map(move |n| put(at, n))).collect();
    shared.observe(observed, 12);
    let mut lengths = Vec::new();
    while let Some(answer) = watch.next().now_or_never() {
        let changes = answer.unwrap();
        assert!(changes.iter().all(|change| change.revision <= watch.progress()));
        lengths.push(changes.len());
        if lengths.iter().sum::<usize>() == 10_300 {
            break;
        }
    }
    assert_eq!(lengths, [5000, 5300]);
    assert!(watch.next().now_or_never().is_none());
    assert_eq!(watch.progress(), 12);
}
