//! Many threads at once, on a real folder.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::atomic::{AtomicBool, Ordering};

use bayplan_store::{LogStore, Store, WriteError};
use futures::executor::block_on;

const WRITERS: u64 = 8;
const WRITES: u64 = 60;

/// Adds one to a counter the way an API server updates an object: read, compare, try again.
async fn increment(store: &LogStore, key: &str) {
    loop {
        let entry = store.get(key).await.unwrap().unwrap();
        let number: u64 = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
        match store.update(key, (number + 1).to_string().into(), entry.mod_revision).await {
            Ok(_) => return,
            Err(WriteError::Conflict { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn counters_add_up_and_every_watcher_sees_every_change_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = LogStore::open_folder(folder.path()).unwrap();
    block_on(store.create("/shared", "0".into())).unwrap();
    // A creation, a write of each writer's own key and an increment per round, after the shared key's creation.
    let last = 2 + WRITERS + WRITERS * (WRITES - 1) + WRITERS * WRITES;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                block_on(async {
                    let key = format!("/own/{writer}");
                    let mut revision = store.create(&key, "0".into()).await.unwrap();
                    increment(store, "/shared").await;
                    for n in 1..WRITES {
                        revision = store.update(&key, n.to_string().into(), revision).await.unwrap();
                        increment(store, "/shared").await;
                    }
                });
            });
        }
        for _ in 0..4 {
            let mut watch = block_on(store.watch("", "\u{10FFFF}", 1)).unwrap();
            scope.spawn(move || {
                let mut seen = 1;
                while seen < last {
                    for change in block_on(watch.next()).unwrap() {
                        assert_eq!(change.revision, seen + 1);
                        seen = change.revision;
                    }
                }
            });
        }
    });
    let total = (WRITERS * WRITES).to_string();
    assert_eq!(block_on(store.get("/shared")).unwrap().unwrap().value, total);
    assert_eq!(block_on(store.revision()), Ok(last));
    let before = block_on(store.range("", "\u{10FFFF}", None, 0)).unwrap();
    drop(store);
    let store = LogStore::open_folder(folder.path()).unwrap();
    assert_eq!(block_on(store.range("", "\u{10FFFF}", None, 0)).unwrap(), before);
}

#[test]
fn ranges_stay_whole_while_writes_and_compactions_go_on() {
    let store = LogStore::in_memory().unwrap();
    let keys: Vec<String> = (0..2500).map(|n| format!("/k/{n:05}")).collect();
    block_on(futures::future::join_all(keys.iter().map(|key| store.create(key, "".into()))));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for key in keys.iter().cycle().take(4000) {
                let entry = block_on(store.get(key)).unwrap().unwrap();
                let revision = block_on(store.update(key, "x".into(), entry.mod_revision)).unwrap();
                if revision % 50 == 0 {
                    block_on(store.compact(revision)).unwrap();
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let range = block_on(store.range("/k/", "/k0", None, 0)).unwrap();
                    assert_eq!(range.entries.len(), keys.len());
                    assert!(range.entries.iter().all(|entry| entry.mod_revision <= range.revision));
                    assert!(range.entries.iter().any(|entry| entry.mod_revision == range.revision));
                }
            });
        }
        let finished = writer.join();
        done.store(true, Ordering::Relaxed);
        finished.unwrap();
    });
}
