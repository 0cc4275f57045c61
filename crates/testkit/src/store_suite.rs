//! What every store must do, whatever it is made of: cases that are run on each of them.
//!
//! Each case gets an empty store at revision 1. `store_suite!` makes a test of every case:
//!
//! ```text
//!   fn on_each_store(case: &str, run: Case) { … block_on(run(store)) … }
//!   bayplan_testkit::store_suite!(on_each_store);
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bayplan_store::{Change, CompactionTurn, Entry, ReadError, Store, Watch, WriteError};
use futures::FutureExt;
use futures::future::BoxFuture;

/// A case, as `store_suite!` hands it over.
pub type Case = fn(Arc<dyn Store>) -> BoxFuture<'static, ()>;

/// Makes a test of every case; the argument is a function that runs a `Case` on each store of its kind.
#[macro_export]
macro_rules! store_suite {
    ($on_each:path) => {
        $crate::store_suite! { $on_each:
            every_write_has_the_next_revision_and_its_precondition
            of_writes_that_expect_the_same_exactly_one_wins
            a_range_has_its_bounds_its_limit_and_its_revision
            pages_of_one_revision_add_up_while_writes_go_on
            a_watch_answers_what_changed_and_what_was_there_before
            a_watch_that_has_seen_everything_makes_progress_without_matches
            a_cancelled_wait_loses_nothing_and_a_waiting_one_is_woken
            a_slow_watch_reads_on_from_history_in_pieces
            a_watch_resumes_where_another_ended
            compaction_forgets_history_and_nothing_else
            readers_stay_whole_while_history_is_compacted
            turns_of_compaction_keep_what_the_last_turn_saw
            recent_reads_see_this_process_own_writes
            of_ten_thousand_concurrent_writes_each_precondition_holds_once
        }
    };
    ($on_each:path: $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $on_each(stringify!($case), |store| Box::pin($crate::store_suite::$case(store)));
            }
        )*
    };
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

/// Preconditions, revisions and what conflicts answer.
pub async fn every_write_has_the_next_revision_and_its_precondition(store: Arc<dyn Store>) {
    assert_eq!(store.revision().await, Ok(1));
    assert_eq!(found(store.update("/registry/a", "x".into(), 1).await), None);
    assert_eq!(found(store.update("/registry/a", "x".into(), 0).await), None);
    assert_eq!(found(store.delete("/registry/a", 0).await), None);
    assert_eq!(store.create("/registry/a", "1".into()).await, Ok(2));
    assert_eq!(found(store.create("/registry/a", "2".into()).await), Some(entry("/registry/a", "1", 2, 2)));
    assert_eq!(store.update("/registry/a", "2".into(), 2).await, Ok(3));
    assert_eq!(found(store.update("/registry/a", "3".into(), 2).await), Some(entry("/registry/a", "2", 2, 3)));
    assert_eq!(found(store.delete("/registry/a", 2).await), Some(entry("/registry/a", "2", 2, 3)));
    assert_eq!(store.get("/registry/a").await, Ok(Some(entry("/registry/a", "2", 2, 3))));
    assert_eq!(store.delete("/registry/a", 3).await, Ok(4));
    assert_eq!(store.get("/registry/a").await, Ok(None));
    assert_eq!(store.create("/registry/a", "4".into()).await, Ok(5));
    assert_eq!(store.get("/registry/a").await, Ok(Some(entry("/registry/a", "4", 5, 5))));
    assert_eq!(store.revision().await, Ok(5));
}

/// Fifty updates of one revision.
pub async fn of_writes_that_expect_the_same_exactly_one_wins(store: Arc<dyn Store>) {
    store.create("/registry/a", "0".into()).await.unwrap();
    let results =
        futures::future::join_all((0..50).map(|n| store.update("/registry/a", n.to_string().into(), 2))).await;
    assert_eq!(results.iter().filter(|result| **result == Ok(3)).count(), 1);
    let winner = store.get("/registry/a").await.unwrap();
    for result in results.into_iter().filter(Result::is_err) {
        assert_eq!(found(result), winner);
    }
}

/// Bounds, limits, paging and reads at a revision.
pub async fn a_range_has_its_bounds_its_limit_and_its_revision(store: Arc<dyn Store>) {
    for key in ["/registry/p/a", "/registry/p/b", "/registry/p/c", "/registry/q/a"] {
        store.create(key, key.to_owned().into()).await.unwrap();
    }
    store.delete("/registry/p/b", 3).await.unwrap();
    type Row<'a> = (&'a str, &'a str, Option<u64>, usize, u64, &'a [&'a str], usize);
    // start, end, at, limit → revision, keys, remaining
    let table: &[Row<'_>] = &[
        ("/registry/p/", "/registry/p0", None, 0, 6, &["/registry/p/a", "/registry/p/c"], 0),
        ("/registry/p/", "/registry/p0", None, 1, 6, &["/registry/p/a"], 1),
        ("/registry/p/", "/registry/p0", None, 2, 6, &["/registry/p/a", "/registry/p/c"], 0),
        ("/registry/p/a\0", "/registry/p0", None, 1, 6, &["/registry/p/c"], 0),
        ("/registry/p/", "/registry/p0", Some(5), 0, 5, &["/registry/p/a", "/registry/p/b", "/registry/p/c"], 0),
        ("/registry/p/", "/registry/p0", Some(5), 1, 5, &["/registry/p/a"], 2),
        ("/registry/p/", "/registry/p0", Some(2), 0, 2, &["/registry/p/a"], 0),
        ("/registry/p/", "/registry/p0", Some(1), 0, 1, &[], 0),
        ("/registry/p/a", "/registry/p/c", None, 0, 6, &["/registry/p/a"], 0),
        ("/", "0", None, 0, 6, &["/registry/p/a", "/registry/p/c", "/registry/q/a"], 0),
        ("/registry/p/a", "/registry/p/a", None, 0, 6, &[], 0),
        ("/z", "/a", None, 0, 6, &[], 0),
        ("", "", None, 0, 6, &[], 0),
    ];
    for &(start, end, at, limit, revision, keys, remaining) in table {
        let range = store.range(start, end, at, limit).await.unwrap();
        let found: Vec<&str> = range.entries.iter().map(|entry| &*entry.key).collect();
        assert_eq!((range.revision, &*found, range.remaining), (revision, keys, remaining), "{start} {end} {at:?}");
    }
    let future = store.range("/", "0", Some(7), 0).await;
    assert_eq!(future, Err(ReadError::Future { requested: 7, current: 6 }));
}

/// Both sides of a change, and a watch that begins later.
pub async fn a_watch_answers_what_changed_and_what_was_there_before(store: Arc<dyn Store>) {
    let mut watch = store.watch("/registry/p/", "/registry/p0", 1).await.unwrap();
    assert!(ready(&mut *watch).is_none());
    store.create("/registry/p/a", "1".into()).await.unwrap();
    store.create("/registry/q/a", "1".into()).await.unwrap();
    store.update("/registry/p/a", "2".into(), 2).await.unwrap();
    store.delete("/registry/p/a", 4).await.unwrap();
    let (first, second) = (entry("/registry/p/a", "1", 2, 2), entry("/registry/p/a", "2", 2, 4));
    let change = |revision, current: Option<&Entry>, previous: Option<&Entry>| Change {
        revision,
        key: "/registry/p/a".into(),
        current: current.cloned(),
        previous: previous.cloned(),
    };
    let expected =
        vec![change(2, Some(&first), None), change(4, Some(&second), Some(&first)), change(5, None, Some(&second))];
    assert_eq!(ready(&mut *watch).unwrap().unwrap(), expected);
    assert!(ready(&mut *watch).is_none());
    let mut later = store.watch("/registry/p/", "/registry/p0", 2).await.unwrap();
    assert_eq!(ready(&mut *later).unwrap().unwrap(), expected[1..]);
    assert!(matches!(store.watch("/registry/p/", "/registry/p0", 6).await.err(), Some(ReadError::Future { .. })));
}

/// What a bookmark may promise.
pub async fn a_watch_that_has_seen_everything_makes_progress_without_matches(store: Arc<dyn Store>) {
    let mut watch = store.watch("/registry/p/", "/registry/p0", 1).await.unwrap();
    assert_eq!(watch.progress(), 1);
    assert!(ready(&mut *watch).is_none());
    for n in 0..10 {
        store.create(&format!("/registry/q/{n}"), "".into()).await.unwrap();
    }
    assert_eq!(watch.progress(), 11);
    store.create("/registry/p/a", "".into()).await.unwrap();
    store.create("/registry/q/x", "".into()).await.unwrap();
    assert_eq!(watch.progress(), 11, "12 has not been delivered");
    assert_eq!(revisions(&mut *watch), [12]);
    assert!(ready(&mut *watch).is_none());
    assert_eq!(watch.progress(), 13);
    // It has seen everything, so a compaction takes nothing from it.
    store.create("/registry/q/y", "".into()).await.unwrap();
    store.compact(14).await.unwrap();
    store.create("/registry/p/b", "".into()).await.unwrap();
    assert_eq!(revisions(&mut *watch), [15]);
}

/// Waiting may be given up and taken up again.
pub async fn a_cancelled_wait_loses_nothing_and_a_waiting_one_is_woken(store: Arc<dyn Store>) {
    let mut watch = store.watch("/", "0", 1).await.unwrap();
    for _ in 0..3 {
        assert!(ready(&mut *watch).is_none());
    }
    let (changes, _) = futures::join!(watch.next(), async {
        store.create("/registry/a", "".into()).await.unwrap();
    });
    assert_eq!(changes.unwrap().len(), 1);
    drop(watch.next());
    store.create("/registry/b", "".into()).await.unwrap();
    assert_eq!(revisions(&mut *watch), [3]);
}

/// Two thousand changes before the first look.
pub async fn a_slow_watch_reads_on_from_history_in_pieces(store: Arc<dyn Store>) {
    let mut watch = store.watch("/", "0", 1).await.unwrap();
    let keys: Vec<String> = (0..2000).map(|n| format!("/registry/{n}")).collect();
    futures::future::join_all(keys.iter().map(|key| store.create(key, "".into()))).await;
    let mut seen = Vec::new();
    while seen.len() < 2000 {
        let piece = revisions(&mut *watch);
        assert!(piece.len() <= 512);
        seen.extend(piece);
    }
    assert!(seen.into_iter().eq(2..=2001));
}

/// What can be read before and after a compaction.
pub async fn compaction_forgets_history_and_nothing_else(store: Arc<dyn Store>) {
    store.create("/registry/a", "1".into()).await.unwrap();
    store.create("/registry/b", "1".into()).await.unwrap();
    store.update("/registry/a", "2".into(), 2).await.unwrap();
    store.delete("/registry/b", 3).await.unwrap();
    store.update("/registry/a", "3".into(), 4).await.unwrap();
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
    assert_eq!(at(4).await.unwrap().entries, [entry("/registry/a", "2", 2, 4), entry("/registry/b", "1", 3, 3)]);
    assert_eq!(at(5).await.unwrap().entries, [entry("/registry/a", "2", 2, 4)]);
    assert_eq!(store.compact(6).await, Ok(()));
    assert_eq!(at(6).await.unwrap().entries, [entry("/registry/a", "3", 2, 6)]);
    assert_eq!(store.create("/registry/b", "2".into()).await, Ok(7));
    assert_eq!(store.get("/registry/b").await, Ok(Some(entry("/registry/b", "2", 7, 7))));
}

/// A list in pages, as the API server reads one, is of one revision.
pub async fn pages_of_one_revision_add_up_while_writes_go_on(store: Arc<dyn Store>) {
    let keys: Vec<String> = (0..250).map(|n| format!("/registry/k/{n:05}")).collect();
    futures::future::join_all(keys.iter().map(|key| store.create(key, "1".into()))).await;
    let (mut start, mut at, mut seen) = ("/registry/k/".to_owned(), None, Vec::new());
    loop {
        let page = store.range(&start, "/registry/k0", at, 60).await.unwrap();
        assert_eq!(page.remaining, 250 - seen.len() - page.entries.len());
        assert_eq!((page.revision, page.unreadable.len()), (251, 0));
        at = Some(page.revision);
        let last = page.entries.last().unwrap().clone();
        seen.extend(page.entries);
        // What comes behind the page changes before it is read.
        let next = format!("/registry/k/{:05}", seen.len());
        if let Some(entry) = store.get(&next).await.unwrap() {
            store.delete(&next, entry.mod_revision).await.unwrap();
        }
        if page.remaining == 0 {
            break;
        }
        start = format!("{}\0", last.key);
    }
    assert!(seen.iter().map(|entry| &*entry.key).eq(keys.iter().map(|key| &**key)));
}

/// Each of many watches goes on where the last one ended: nothing is lost or seen twice.
pub async fn a_watch_resumes_where_another_ended(store: Arc<dyn Store>) {
    let mut expected = Vec::new();
    let mut revision = store.create("/registry/p/a", "0".into()).await.unwrap();
    let (mut position, mut seen) = (revision, Vec::new());
    for round in 0..20 {
        for n in 0..3 {
            revision = store.update("/registry/p/a", format!("{round} {n}").into(), revision).await.unwrap();
            expected.push(revision);
            store.create(&format!("/registry/q/{round}-{n}"), "".into()).await.unwrap();
        }
        let mut watch = store.watch("/registry/p/", "/registry/p0", position).await.unwrap();
        for change in watch.next().await.unwrap() {
            assert_eq!(change.previous.map(|entry| entry.mod_revision), seen.last().copied().or(Some(2)));
            seen.push(change.revision);
        }
        position = watch.progress();
        assert!(position >= *seen.last().unwrap());
    }
    assert_eq!(seen, expected);
}

/// Ranges of the newest state stay whole while another caller writes and compacts.
pub async fn readers_stay_whole_while_history_is_compacted(store: Arc<dyn Store>) {
    let keys: Vec<String> = (0..200).map(|n| format!("/registry/k/{n:05}")).collect();
    futures::future::join_all(keys.iter().map(|key| store.create(key, "".into()))).await;
    let done = AtomicBool::new(false);
    let write = async {
        for key in keys.iter().cycle().take(400) {
            let entry = store.get(key).await.unwrap().unwrap();
            let revision = store.update(key, "x".into(), entry.mod_revision).await.unwrap();
            if revision % 50 == 0 {
                store.compact(revision).await.unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    };
    let read = async {
        let mut ranges = 0;
        while !done.load(Ordering::Relaxed) {
            let range = store.range("/registry/k/", "/registry/k0", None, 0).await.unwrap();
            assert_eq!(range.entries.len(), keys.len());
            assert!(range.entries.iter().all(|entry| entry.mod_revision <= range.revision));
            assert!(range.entries.iter().any(|entry| entry.mod_revision == range.revision));
            ranges += 1;
            // The writer is another future of the same task.
            yield_now().await;
        }
        ranges
    };
    let ((), ranges) = futures::join!(write, read);
    assert!(ranges > 0);
}

/// Periodic compaction forgets what was history a turn ago.
pub async fn turns_of_compaction_keep_what_the_last_turn_saw(store: Arc<dyn Store>) {
    let first = store.create("/registry/a", "1".into()).await.unwrap();
    let turn = store.compact_turn(CompactionTurn::default()).await.unwrap();
    assert!(turn.revision.unwrap() >= first);
    assert!(store.range("/", "0", Some(first), 0).await.is_ok(), "nothing is compacted at the first turn");
    let second = store.update("/registry/a", "2".into(), first).await.unwrap();
    let next = store.compact_turn(turn).await.unwrap();
    assert!(next.revision.unwrap() >= second);
    let seen = turn.revision.unwrap();
    assert!(store.range("/", "0", Some(seen), 0).await.is_ok());
    let gone = store.range("/", "0", Some(seen - 1), 0).await;
    assert!(matches!(gone, Err(ReadError::Compacted { .. })), "{gone:?}");
}

/// Reads without a round trip see what was written through the same store.
pub async fn recent_reads_see_this_process_own_writes(store: Arc<dyn Store>) {
    for n in 0..100 {
        let key = format!("/registry/k/{n:03}");
        let revision = store.create(&key, "1".into()).await.unwrap();
        assert_eq!(store.get_recent(&key).await, Ok(Some(entry(&key, "1", revision, revision))));
        let range = store.range_recent("/registry/k/", "/registry/k0", 0).await.unwrap();
        assert_eq!((range.revision, range.entries.len()), (revision, n + 1));
    }
}

/// Ten updates of each of a thousand keys at once, all expecting the same: one of each ten wins, and watchers see
/// exactly those.
pub async fn of_ten_thousand_concurrent_writes_each_precondition_holds_once(store: Arc<dyn Store>) {
    let keys: Vec<String> = (0..1000).map(|n| format!("/registry/k/{n:04}")).collect();
    let created = futures::future::join_all(keys.iter().map(|key| store.create(key, "-".into()))).await;
    let created: Vec<u64> = created.into_iter().map(Result::unwrap).collect();
    let mut watch = store.watch("/", "0", 1001).await.unwrap();
    let writes = (0..10_000).map(|n| {
        let (key, expected) = (&keys[n % 1000], created[n % 1000]);
        let store = &store;
        async move { (n, store.update(key, n.to_string().into(), expected).await) }
    });
    let results = futures::future::join_all(writes).await;
    let mut won = BTreeMap::new();
    for (n, result) in results {
        match result {
            Ok(revision) => assert_eq!(won.insert(revision, n), None, "a revision was given twice"),
            Err(WriteError::Conflict { found: Some(found) }) => assert_eq!(*found.key, *keys[n % 1000]),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(won.keys().copied().eq(1002..=2001));
    let mut seen = Vec::new();
    while seen.len() < 1000 {
        seen.extend(watch.next().await.unwrap().into_iter().map(|change| (change.revision, change.current.unwrap())));
    }
    for (revision, current) in seen {
        assert_eq!(current.value, won.remove(&revision).unwrap().to_string());
    }
    assert!(won.is_empty());
}

/// Lets the other futures of the task run.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
