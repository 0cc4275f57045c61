//! What the mirror answers is what etcd has.

use std::sync::Arc;

use bayplan_etcd::{EtcdStore, Options};
use bayplan_store::{ReadError, Store, WriteError};
use bayplan_testkit::{Etcd, Rng};

use crate::{connect, take, with_etcd};

const ALL: (&str, &str) = ("/registry/", "/registry0");

/// Random writes through a store; answers the revisions they were given.
async fn write_randomly(store: &EtcdStore, seed: u64, writes: usize) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    let mut given = Vec::new();
    while given.len() < writes {
        let key = format!("/registry/k/{}", rng.below(20));
        let value = format!("{seed} {}", given.len());
        let result = match store.get(&key).await.unwrap() {
            None => store.create(&key, value.into()).await,
            Some(entry) if rng.below(3) == 0 => store.delete(&key, entry.mod_revision).await,
            Some(entry) => store.update(&key, value.into(), entry.mod_revision).await,
        };
        match result {
            Ok(revision) => given.push(revision),
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    given
}

#[test]
fn two_stores_on_one_etcd_agree_at_every_revision() {
    with_etcd("two_stores_on_one_etcd_agree_at_every_revision", |etcd| async move {
        let (one, other) = (connect(&etcd).await, connect(&etcd).await);
        let mut watches = [one.watch("/", "0", 1).await.unwrap(), other.watch("/", "0", 1).await.unwrap()];
        let (first, second) = futures::join!(write_randomly(&one, 1, 300), write_randomly(&other, 2, 300));
        let mut given = [first, second].concat();
        given.sort_unstable();
        assert!(given.iter().copied().eq(2..=601), "every write has a revision of its own, and there are no gaps");
        let seen = [take(&mut *watches[0], 600).await, take(&mut *watches[1], 600).await];
        assert_eq!(seen[0], seen[1]);
        assert!(seen[0].iter().map(|change| change.revision).eq(2..=601));
        // A third one has listed at the end and has no history: it reads older revisions from etcd itself.
        let direct = connect(&etcd).await;
        for at in (1..=601).step_by(37).chain([601]) {
            let range = one.range(ALL.0, ALL.1, Some(at), 0).await.unwrap();
            assert_eq!(other.range(ALL.0, ALL.1, Some(at), 0).await.unwrap(), range, "at {at}");
            assert_eq!(direct.range(ALL.0, ALL.1, Some(at), 0).await.unwrap(), range, "at {at}");
            let page = one.range(ALL.0, ALL.1, Some(at), 3).await.unwrap();
            assert_eq!(direct.range(ALL.0, ALL.1, Some(at), 3).await.unwrap(), page, "at {at}");
        }
        // A watch that begins before its history is caught up from etcd, and then follows the mirror.
        let mut late = direct.watch("/", "0", 100).await.unwrap();
        assert_eq!(take(&mut *late, 501).await, seen[0][99..]);
        let new = one.create("/registry/new", "".into()).await.unwrap();
        assert_eq!(take(&mut *late, 1).await[0].revision, new);
        assert_eq!(late.progress(), new);
        let future = one.range(ALL.0, ALL.1, Some(new + 1), 0).await;
        assert_eq!(future, Err(ReadError::Future { requested: new + 1, current: new }));
    });
}

#[test]
fn a_read_sees_every_write_that_was_acknowledged_before_it() {
    with_etcd("a_read_sees_every_write_that_was_acknowledged_before_it", |etcd| async move {
        let (writer, reader) = (connect(&etcd).await, connect(&etcd).await);
        let mut revision = writer.create("/registry/a", "".into()).await.unwrap();
        for n in 0..300 {
            revision = writer.update("/registry/a", n.to_string().into(), revision).await.unwrap();
            let read = reader.get("/registry/a").await.unwrap().unwrap();
            assert_eq!((read.mod_revision, &*read.value), (revision, n.to_string().as_bytes()));
            assert_eq!(reader.range(ALL.0, ALL.1, None, 0).await.unwrap().revision, revision);
        }
    });
}

#[test]
fn another_prefix_is_another_store_and_its_revisions_do_not_stall_reads() {
    with_etcd("another_prefix_is_another_store_and_its_revisions_do_not_stall_reads", |etcd| async move {
        let one = connect(&etcd).await;
        let blue = Options { prefix: "/blue".to_owned(), ..Options::new([etcd.url()]) };
        let other = EtcdStore::connect(blue.clone()).await.unwrap();
        one.create("/registry/a", "one".into()).await.unwrap();
        let revision = other.create("/registry/a", "other".into()).await.unwrap();
        // The newest revision is not of a key of the first, which learns of it by asking for progress.
        let range = one.range("/", "0", None, 0).await.unwrap();
        assert_eq!((range.revision, &*range.entries[0].value, range.entries.len()), (revision, &b"one"[..], 1));
        let again = EtcdStore::connect(blue).await.unwrap();
        assert_eq!(again.get("/registry/a").await.unwrap().unwrap().value, "other");
        let outside = one.create("/elsewhere/a", "".into()).await;
        assert!(matches!(&outside, Err(WriteError::Unavailable(why)) if why.contains("/elsewhere/a")), "{outside:?}");
    });
}

#[test]
fn history_beyond_its_limit_is_read_from_etcd() {
    with_etcd("history_beyond_its_limit_is_read_from_etcd", |etcd| async move {
        let options = Options { history_bytes_max: 16 << 10, ..Options::new([etcd.url()]) };
        let (small, whole) = (EtcdStore::connect(options).await.unwrap(), connect(&etcd).await);
        let mut revision = small.create("/registry/hot", vec![b'x'; 1000].into()).await.unwrap();
        for _ in 0..200 {
            revision = small.update("/registry/hot", vec![b'y'; 1000].into(), revision).await.unwrap();
        }
        for at in [2, 10, 100, revision] {
            let expected = whole.range(ALL.0, ALL.1, Some(at), 0).await.unwrap();
            assert_eq!(small.range(ALL.0, ALL.1, Some(at), 0).await.unwrap(), expected, "at {at}");
        }
        let mut watch = small.watch("/", "0", 1).await.unwrap();
        let seen = take(&mut *watch, 201).await;
        assert!(seen.iter().map(|change| change.revision).eq(2..=revision));
    });
}

#[test]
fn servers_share_the_turns_of_compaction() {
    with_etcd("servers_share_the_turns_of_compaction", |etcd| async move {
        let (one, other) = (connect(&etcd).await, connect(&etcd).await);
        let default = bayplan_store::CompactionTurn::default();
        let (mut first, mut second) = (one.compact_turn(default).await.unwrap(), default);
        second = other.compact_turn(second).await.unwrap();
        assert_eq!((first.count, second.count), (1, 1), "the second server learns that the turn was taken");
        let mut key = one.create("/registry/a", "".into()).await.unwrap();
        let mut oldest_kept = 0;
        for round in 0..4 {
            key = one.update("/registry/a", round.to_string().into(), key).await.unwrap();
            oldest_kept = second.revision.unwrap();
            // The second comes first this time, and the first one learns of it.
            second = other.compact_turn(second).await.unwrap();
            first = one.compact_turn(first).await.unwrap();
            assert_eq!((first.count, second.count), (round + 2, round + 2));
        }
        for store in [&one, &other] {
            assert!(store.range("/", "0", Some(oldest_kept), 0).await.is_ok());
            let gone = store.range("/", "0", Some(oldest_kept - 1), 0).await;
            let expected = ReadError::Compacted { requested: oldest_kept - 1, oldest: oldest_kept };
            assert_eq!(gone, Err(expected));
        }
    });
}

#[test]
fn many_readers_share_questions_and_all_are_answered() {
    with_etcd("many_readers_share_questions_and_all_are_answered", |etcd| async move {
        let store = Arc::new(connect(&etcd).await);
        store.create("/registry/a", "1".into()).await.unwrap();
        let reads = (0..5000).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.get("/registry/a").await.unwrap().unwrap().mod_revision })
        });
        let answers = futures::future::join_all(reads).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap() == 2));
        let asked = requests(&etcd, "Range");
        assert!(asked < 2500.0, "5,000 reads asked etcd {asked} times");
    });
}

/// How many calls of a method etcd has answered, by its metrics.
fn requests(etcd: &Etcd, method: &str) -> f64 {
    let name = format!("grpc_method=\"{method}\"");
    let metrics = etcd.metrics();
    let lines = metrics.lines().filter(|line| line.starts_with("grpc_server_handled_total") && line.contains(&name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}
