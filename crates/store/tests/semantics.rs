//! What a caller sees: preconditions, revisions, ranges, watches, compaction; the same in memory and on a disk.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;

use bayplan_store::disk::SimulatedDisk;
use bayplan_store::{Change, Entry, LogStore, Options, ReadError, Store, Watch, WriteError};
use futures::FutureExt;
use futures::executor::block_on;

fn stores() -> Vec<LogStore> {
    let on_disk = LogStore::open(Arc::new(SimulatedDisk::new()), Options::default()).unwrap();
    vec![LogStore::in_memory().unwrap(), on_disk]
}

fn entry(key: &str, value: &str, create_revision: u64, mod_revision: u64) -> Entry {
    Entry { key: key.into(), value: value.to_owned().into(), create_revision, mod_revision }
}

fn found(result: Result<u64, WriteError>) -> Option<Entry> {
    match result {
        Err(WriteError::Conflict { found }) => found,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

fn ready(watch: &mut dyn Watch) -> Option<Result<Vec<Change>, ReadError>> {
    watch.next().now_or_never()
}

fn revisions(watch: &mut dyn Watch) -> Vec<u64> {
    ready(watch).unwrap().unwrap().iter().map(|change| change.revision).collect()
}

#[test]
fn every_write_has_the_next_revision_and_its_precondition() {
    for store in stores() {
        block_on(async {
            assert_eq!(store.revision().await, Ok(1));
            assert_eq!(found(store.update("/a", "x".into(), 1).await), None);
            assert_eq!(found(store.update("/a", "x".into(), 0).await), None);
            assert_eq!(found(store.delete("/a", 0).await), None);
            assert_eq!(store.create("/a", "1".into()).await, Ok(2));
            assert_eq!(found(store.create("/a", "2".into()).await), Some(entry("/a", "1", 2, 2)));
            assert_eq!(store.update("/a", "2".into(), 2).await, Ok(3));
            assert_eq!(found(store.update("/a", "3".into(), 2).await), Some(entry("/a", "2", 2, 3)));
            assert_eq!(found(store.delete("/a", 2).await), Some(entry("/a", "2", 2, 3)));
            assert_eq!(store.get("/a").await, Ok(Some(entry("/a", "2", 2, 3))));
            assert_eq!(store.delete("/a", 3).await, Ok(4));
            assert_eq!(store.get("/a").await, Ok(None));
            assert_eq!(store.create("/a", "4".into()).await, Ok(5));
            assert_eq!(store.get("/a").await, Ok(Some(entry("/a", "4", 5, 5))));
            assert_eq!(store.revision().await, Ok(5));
        });
    }
}

#[test]
fn of_writes_that_expect_the_same_exactly_one_wins() {
    for store in stores() {
        block_on(async {
            store.create("/a", "0".into()).await.unwrap();
            let results = futures::future::join_all((0..50).map(|n| store.update("/a", n.to_string().into(), 2))).await;
            assert_eq!(results.iter().filter(|result| **result == Ok(3)).count(), 1);
            let winner = store.get("/a").await.unwrap();
            for result in results.into_iter().filter(Result::is_err) {
                assert_eq!(found(result), winner);
            }
        });
    }
}

#[test]
fn a_range_has_its_bounds_its_limit_and_its_revision() {
    for store in stores() {
        block_on(async {
            for key in ["/p/a", "/p/b", "/p/c", "/q/a"] {
                store.create(key, key.to_owned().into()).await.unwrap();
            }
            store.delete("/p/b", 3).await.unwrap();
            type Row<'a> = (&'a str, &'a str, Option<u64>, usize, u64, &'a [&'a str], usize);
            // start, end, at, limit → revision, keys, remaining
            let table: &[Row<'_>] = &[
                ("/p/", "/p0", None, 0, 6, &["/p/a", "/p/c"], 0),
                ("/p/", "/p0", None, 1, 6, &["/p/a"], 1),
                ("/p/", "/p0", None, 2, 6, &["/p/a", "/p/c"], 0),
                ("/p/a\0", "/p0", None, 1, 6, &["/p/c"], 0),
                ("/p/", "/p0", Some(5), 0, 5, &["/p/a", "/p/b", "/p/c"], 0),
                ("/p/", "/p0", Some(5), 1, 5, &["/p/a"], 2),
                ("/p/", "/p0", Some(2), 0, 2, &["/p/a"], 0),
                ("/p/", "/p0", Some(1), 0, 1, &[], 0),
                ("/p/a", "/p/c", None, 0, 6, &["/p/a"], 0),
                ("/", "0", None, 0, 6, &["/p/a", "/p/c", "/q/a"], 0),
                ("/p/a", "/p/a", None, 0, 6, &[], 0),
                ("/z", "/a", None, 0, 6, &[], 0),
                ("", "", None, 0, 6, &[], 0),
            ];
            for &(start, end, at, limit, revision, keys, remaining) in table {
                let range = store.range(start, end, at, limit).await.unwrap();
                let found: Vec<&str> = range.entries.iter().map(|entry| &*entry.key).collect();
                assert_eq!(
                    (range.revision, &*found, range.remaining),
                    (revision, keys, remaining),
                    "{start} {end} {at:?}"
                );
            }
            let future = store.range("/", "0", Some(7), 0).await;
            assert_eq!(future, Err(ReadError::Future { requested: 7, current: 6 }));
        });
    }
}

#[test]
fn a_long_range_is_read_in_steps_and_still_of_one_revision() {
    for store in stores() {
        block_on(async {
            let keys: Vec<String> = (0..3000).map(|n| format!("/k/{n:05}")).collect();
            futures::future::join_all(keys.iter().map(|key| store.create(key, "v".into()))).await;
            let mut range = store.range("/k/", "/k0", None, 2500);
            // The first step is taken, then the world changes.
            assert!((&mut range).now_or_never().is_none());
            for key in [&keys[10], &keys[2000], &keys[2900]] {
                let at = store.get(key).await.unwrap().unwrap().mod_revision;
                store.delete(key, at).await.unwrap();
            }
            let range = range.await.unwrap();
            assert_eq!((range.revision, range.entries.len(), range.remaining), (3001, 2500, 500));
            assert!(range.entries.iter().map(|entry| &*entry.key).eq(keys[..2500].iter().map(|key| &**key)));
        });
    }
}

#[test]
fn a_newest_range_that_a_compaction_overtakes_starts_over() {
    for store in stores() {
        block_on(async {
            let keys: Vec<String> = (0..3000).map(|n| format!("/k/{n:05}")).collect();
            futures::future::join_all(keys.iter().map(|key| store.create(key, "v".into()))).await;
            let mut newest = store.range("/k/", "/k0", None, 0);
            let mut exact = store.range("/k/", "/k0", Some(3001), 0);
            assert!((&mut newest).now_or_never().is_none() && (&mut exact).now_or_never().is_none());
            let deleted = store.delete(&keys[2999], 3001).await.unwrap();
            store.compact(deleted).await.unwrap();
            let range = newest.await.unwrap();
            assert_eq!((range.revision, range.entries.len()), (deleted, 2999));
            assert_eq!(exact.await, Err(ReadError::Compacted { requested: 3001, oldest: deleted }));
        });
    }
}

#[test]
fn a_watch_answers_what_changed_and_what_was_there_before() {
    for store in stores() {
        block_on(async {
            let mut watch = store.watch("/p/", "/p0", 1).await.unwrap();
            assert!(ready(&mut *watch).is_none());
            store.create("/p/a", "1".into()).await.unwrap();
            store.create("/q/a", "1".into()).await.unwrap();
            store.update("/p/a", "2".into(), 2).await.unwrap();
            store.delete("/p/a", 4).await.unwrap();
            let (first, second) = (entry("/p/a", "1", 2, 2), entry("/p/a", "2", 2, 4));
            let change = |revision, current: Option<&Entry>, previous: Option<&Entry>| Change {
                revision,
                key: "/p/a".into(),
                current: current.cloned(),
                previous: previous.cloned(),
            };
            let expected = vec![
                change(2, Some(&first), None),
                change(4, Some(&second), Some(&first)),
                change(5, None, Some(&second)),
            ];
            assert_eq!(ready(&mut *watch).unwrap().unwrap(), expected);
            assert!(ready(&mut *watch).is_none());
            let mut later = store.watch("/p/", "/p0", 2).await.unwrap();
            assert_eq!(ready(&mut *later).unwrap().unwrap(), expected[1..]);
            assert!(matches!(store.watch("/p/", "/p0", 6).await.err(), Some(ReadError::Future { .. })));
        });
    }
}

#[test]
fn a_watch_that_has_seen_everything_makes_progress_without_matches() {
    for store in stores() {
        block_on(async {
            let mut watch = store.watch("/p/", "/p0", 1).await.unwrap();
            assert_eq!(watch.progress(), 1);
            assert!(ready(&mut *watch).is_none());
            for n in 0..10 {
                store.create(&format!("/q/{n}"), "".into()).await.unwrap();
            }
            assert_eq!(watch.progress(), 11);
            store.create("/p/a", "".into()).await.unwrap();
            store.create("/q/x", "".into()).await.unwrap();
            assert_eq!(watch.progress(), 11, "12 has not been delivered");
            assert_eq!(revisions(&mut *watch), [12]);
            assert!(ready(&mut *watch).is_none());
            assert_eq!(watch.progress(), 13);
            // It has seen everything, so a compaction takes nothing from it.
            store.create("/q/y", "".into()).await.unwrap();
            store.compact(14).await.unwrap();
            store.create("/p/b", "".into()).await.unwrap();
            assert_eq!(revisions(&mut *watch), [15]);
        });
    }
}

#[test]
fn a_cancelled_wait_loses_nothing_and_a_waiting_one_is_woken() {
    for store in stores() {
        block_on(async {
            let mut watch = store.watch("/", "0", 1).await.unwrap();
            for _ in 0..3 {
                assert!(ready(&mut *watch).is_none());
            }
            let (changes, _) = futures::join!(watch.next(), async {
                store.create("/a", "".into()).await.unwrap();
            });
            assert_eq!(changes.unwrap().len(), 1);
            drop(watch.next());
            store.create("/b", "".into()).await.unwrap();
            assert_eq!(revisions(&mut *watch), [3]);
        });
    }
}

#[test]
fn a_slow_watch_reads_on_from_history_in_pieces() {
    for store in stores() {
        block_on(async {
            let mut watch = store.watch("/", "0", 1).await.unwrap();
            let keys: Vec<String> = (0..2000).map(|n| format!("/{n}")).collect();
            futures::future::join_all(keys.iter().map(|key| store.create(key, "".into()))).await;
            let mut seen = Vec::new();
            while seen.len() < 2000 {
                let piece = revisions(&mut *watch);
                assert!(piece.len() <= 512);
                seen.extend(piece);
            }
            assert!(seen.into_iter().eq(2..=2001));
        });
    }
}

#[test]
fn compaction_forgets_history_and_nothing_else() {
    for store in stores() {
        block_on(async {
            store.create("/a", "1".into()).await.unwrap();
            store.create("/b", "1".into()).await.unwrap();
            store.update("/a", "2".into(), 2).await.unwrap();
            store.delete("/b", 3).await.unwrap();
            store.update("/a", "3".into(), 4).await.unwrap();
            let mut behind = store.watch("/", "0", 3).await.unwrap();
            let mut ahead = store.watch("/", "0", 4).await.unwrap();
            assert_eq!(store.compact(7).await, Err(ReadError::Future { requested: 7, current: 6 }));
            assert_eq!(store.compact(4).await, Ok(()));
            assert_eq!(store.compact(4).await, Ok(()));
            assert_eq!(store.compact(3).await, Err(ReadError::Compacted { requested: 3, oldest: 4 }));
            let gone = Err(ReadError::Compacted { requested: 3, oldest: 4 });
            assert_eq!(store.range("/", "0", Some(3), 0).await, gone);
            assert_eq!(ready(&mut *behind), Some(Err(ReadError::Compacted { requested: 3, oldest: 4 })));
            assert_eq!(store.watch("/", "0", 3).await.err(), gone.err());
            assert_eq!(revisions(&mut *ahead), [5, 6]);
            let at = |revision| store.range("/", "0", Some(revision), 0);
            assert_eq!(at(4).await.unwrap().entries, [entry("/a", "2", 2, 4), entry("/b", "1", 3, 3)]);
            assert_eq!(at(5).await.unwrap().entries, [entry("/a", "2", 2, 4)]);
            assert_eq!(store.compact(6).await, Ok(()));
            assert_eq!(at(6).await.unwrap().entries, [entry("/a", "3", 2, 6)]);
            assert_eq!(store.create("/b", "2".into()).await, Ok(7));
            assert_eq!(store.get("/b").await, Ok(Some(entry("/b", "2", 7, 7))));
        });
    }
}

#[test]
fn history_beyond_its_limit_is_forgotten_without_being_asked() {
    let options = Options { history_bytes_max: 64 << 10, ..Options::default() };
    let store = LogStore::open(Arc::new(SimulatedDisk::new()), options).unwrap();
    block_on(async {
        let mut revision = store.create("/hot", vec![0; 1000].into()).await.unwrap();
        while store.range("/", "0", Some(2), 0).await.is_ok() {
            revision = store.update("/hot", vec![0; 1000].into(), revision).await.unwrap();
            assert!(revision < 1_000_000, "the history is never trimmed");
        }
        assert_eq!(store.range("/", "0", None, 0).await.unwrap().entries[0].mod_revision, revision);
    });
}

#[test]
fn a_write_that_is_too_large_is_refused_and_the_store_goes_on() {
    for store in stores() {
        block_on(async {
            let huge = store.create("/a", vec![0; (16 << 20) + 1].into()).await;
            assert!(matches!(huge, Err(WriteError::TooLarge { .. })), "{huge:?}");
            assert_eq!(store.create("/a", vec![0; (16 << 20) - 2].into()).await, Ok(2));
            assert_eq!(store.create("", "".into()).await, Ok(3));
        });
    }
}

#[test]
fn closing_writes_what_waits_and_then_ends_the_watches() {
    for store in stores() {
        let mut watch = block_on(store.watch("/", "0", 1)).unwrap();
        let mut write = store.create("/a", "".into());
        let answered = (&mut write).now_or_never();
        assert!(answered.is_none_or(|result| result == Ok(2)));
        drop(write);
        drop(store);
        assert_eq!(revisions(&mut *watch), [2]);
        assert!(matches!(ready(&mut *watch), Some(Err(ReadError::Unavailable(_)))));
    }
}
