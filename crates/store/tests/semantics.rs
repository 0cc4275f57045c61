//! What a caller sees, in memory and on a disk: the suite of all stores, and what only this one promises.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;

use bayplan_store::disk::SimulatedDisk;
use bayplan_store::{Change, LogStore, Options, ReadError, Store, Watch, WriteError};
use bayplan_testkit::store_suite::Case;
use futures::FutureExt;
use futures::executor::block_on;

fn stores() -> Vec<LogStore> {
    let on_disk = LogStore::open(Arc::new(SimulatedDisk::new()), Options::default()).unwrap();
    vec![LogStore::in_memory().unwrap(), on_disk]
}

/// Runs a case of the suite on each store.
fn on_each_store(_case: &str, run: Case) {
    for store in stores() {
        block_on(run(Arc::new(store)));
    }
}

bayplan_testkit::store_suite!(on_each_store);

fn ready(watch: &mut dyn Watch) -> Option<Result<Vec<Change>, ReadError>> {
    watch.next().now_or_never()
}

fn revisions(watch: &mut dyn Watch) -> Vec<u64> {
    ready(watch).unwrap().unwrap().iter().map(|change| change.revision).collect()
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
