//! Lost connections, a paused and a killed etcd: bounded errors, and nothing is lost or doubled afterwards.

use std::time::{Duration, Instant};

use bayplan_etcd::{EtcdStore, Options};
use bayplan_store::{ReadError, Store, WriteError};
use bayplan_testkit::Etcd;

use crate::proxy::Proxy;
use crate::{PATIENCE, connect, take, with_etcd};

/// The longest that a call may take while etcd does not answer, and a little for a busy machine.
const BOUND: Duration = Duration::from_secs(20);

/// Tries until the store answers again.
async fn recovered(store: &EtcdStore) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match store.revision().await {
            Ok(revision) => return revision,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

#[test]
fn a_cut_connection_loses_and_doubles_no_event() {
    with_etcd("a_cut_connection_loses_and_doubles_no_event", |etcd| async move {
        let proxy = Proxy::to(etcd.address()).await;
        let cut = EtcdStore::connect(Options::new([proxy.url()])).await.unwrap();
        let direct = connect(&etcd).await;
        let mut watch = cut.watch("/", "0", 1).await.unwrap();
        for round in 0..5 {
            for n in 0..20 {
                direct.create(&format!("/registry/{round}-{n}"), "".into()).await.unwrap();
                match n {
                    5 => proxy.cut(),
                    15 => proxy.mend(),
                    _ => {}
                }
            }
        }
        let seen = take(&mut *watch, 100).await;
        assert!(seen.iter().map(|change| change.revision).eq(2..=101));
        recovered(&cut).await;
        let expected = direct.range("/", "0", None, 0).await.unwrap();
        assert_eq!(cut.range("/", "0", None, 0).await.unwrap(), expected);
    });
}

#[test]
fn what_was_compacted_during_a_cut_is_listed_again_and_watchers_are_told() {
    with_etcd("what_was_compacted_during_a_cut_is_listed_again_and_watchers_are_told", |etcd| async move {
        let proxy = Proxy::to(etcd.address()).await;
        let cut = EtcdStore::connect(Options::new([proxy.url()])).await.unwrap();
        let direct = connect(&etcd).await;
        let gone = direct.create("/registry/gone", "".into()).await.unwrap();
        let mut watch = cut.watch("/", "0", 1).await.unwrap();
        take(&mut *watch, 1).await;
        proxy.cut();
        direct.delete("/registry/gone", gone).await.unwrap();
        let mut newest = direct.create("/registry/a", "".into()).await.unwrap();
        for _ in 0..10 {
            newest = direct.update("/registry/a", "".into(), newest).await.unwrap();
        }
        direct.compact(newest).await.unwrap();
        proxy.mend();
        let told = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
        assert_eq!(told, Err(ReadError::Compacted { requested: 2, oldest: newest }));
        recovered(&cut).await;
        let expected = direct.range("/", "0", None, 0).await.unwrap();
        assert_eq!(cut.range("/", "0", None, 0).await.unwrap(), expected);
        let mut again = cut.watch("/", "0", newest).await.unwrap();
        newest = direct.update("/registry/a", "".into(), newest).await.unwrap();
        assert_eq!(take(&mut *again, 1).await[0].revision, newest);
    });
}

/// Everything fails within its bound, and recent reads go on. A write that is known not to have left was refused; of
/// any other nobody knows.
async fn check_outage(store: &EtcdStore, may_not_leave: bool) {
    let started = Instant::now();
    let (read, write, health) =
        futures::join!(store.get("/registry/a"), store.create("/registry/lost", "".into()), store.writable());
    assert!(started.elapsed() < BOUND, "{:?}", started.elapsed());
    assert!(matches!(&read, Err(ReadError::Unavailable(why)) if why.contains("ask for the revision")), "{read:?}");
    let expected = match &write {
        Err(WriteError::InDoubt(why)) => why.starts_with("write: "),
        Err(WriteError::Unavailable(why)) => may_not_leave && why.ends_with("nothing was written"),
        _ => false,
    };
    assert!(expected, "{write:?}");
    assert!(matches!(&health, Err(WriteError::Unavailable(_))), "{health:?}");
    assert_eq!(store.get_recent("/registry/a").await.unwrap().unwrap().value, "1");
}

#[test]
fn a_paused_etcd_gives_bounded_errors_and_then_goes_on() {
    with_etcd("a_paused_etcd_gives_bounded_errors_and_then_goes_on", |etcd| async move {
        let store = connect(&etcd).await;
        store.create("/registry/a", "1".into()).await.unwrap();
        let mut watch = store.watch("/", "0", 1).await.unwrap();
        etcd.pause();
        check_outage(&store, false).await;
        etcd.resume();
        check_recovery(&etcd, &store, &mut *watch).await;
    });
}

#[test]
fn a_killed_etcd_gives_bounded_errors_and_comes_back_with_everything() {
    with_etcd("a_killed_etcd_gives_bounded_errors_and_comes_back_with_everything", |mut etcd| async move {
        let store = connect(&etcd).await;
        store.create("/registry/a", "1".into()).await.unwrap();
        let mut watch = store.watch("/", "0", 1).await.unwrap();
        etcd.kill();
        check_outage(&store, true).await;
        etcd.restart();
        check_recovery(&etcd, &store, &mut *watch).await;
    });
}

/// Writing goes on, and a watcher sees every revision once; a write whose outcome was unknown may have happened.
async fn check_recovery(etcd: &Etcd, store: &EtcdStore, watch: &mut dyn bayplan_store::Watch) {
    recovered(store).await;
    let direct = connect(etcd).await;
    for n in 0..10 {
        let written = direct.create(&format!("/registry/after/{n}"), "".into()).await.unwrap();
        assert_eq!(store.get(&format!("/registry/after/{n}")).await.unwrap().unwrap().mod_revision, written);
    }
    let newest = store.create("/registry/last", "".into()).await.unwrap();
    let seen = take(watch, usize::try_from(newest).unwrap() - 1).await;
    assert!(seen.iter().map(|change| change.revision).eq(2..=newest));
    assert_eq!(store.writable().await, Ok(()));
}

#[test]
fn a_full_database_is_named() {
    let test = "a_full_database_is_named";
    let Some(etcd) = Etcd::start_with(test, |_| vec!["--quota-backend-bytes=1048576".to_owned()]) else { return };
    crate::block_on(async move {
        let store = connect(&etcd).await;
        assert_eq!((store.writable().await, store.warning()), (Ok(()), None));
        let mut n = 0;
        // etcd holds its quota against what it has committed to disk, which it does every 100 ms: how many writes fit
        // before it refuses one depends on the machine.
        let deadline = Instant::now() + PATIENCE;
        let refused = loop {
            match store.create(&format!("/registry/{n}"), vec![b'x'; 100 << 10].into()).await {
                Ok(_) => n += 1,
                Err(error) => break error,
            }
            assert!(Instant::now() < deadline, "the quota is not reached after {n} writes");
        };
        let named = |error: &WriteError| error.to_string().contains("NOSPACE");
        assert!(named(&refused), "{refused}");
        let deadline = Instant::now() + PATIENCE;
        while store.writable().await.is_ok() {
            assert!(Instant::now() < deadline, "the alarm is never seen");
        }
        assert!(named(&store.writable().await.unwrap_err()));
        assert!(store.warning().unwrap().contains("NOSPACE"));
        // Reads go on. etcd may carry out the very write that it answers with the alarm, so that one may be there.
        let there = store.range("/", "0", None, 0).await.unwrap().entries.len();
        assert!(there == n || there == n + 1, "{there} keys after {n} acknowledged writes");
        assert!(refused.to_string().contains("unknown"), "{refused}");
        let large = store.create("/registry/large", vec![b'x'; 3 << 20].into()).await;
        assert!(matches!(large, Err(WriteError::TooLarge { .. })), "{large:?}");
    });
}

#[test]
fn another_member_is_asked_when_one_does_not_answer() {
    with_etcd("another_member_is_asked_when_one_does_not_answer", |etcd| async move {
        let proxies = [Proxy::to(etcd.address()).await, Proxy::to(etcd.address()).await];
        let store = EtcdStore::connect(Options::new(proxies.iter().map(Proxy::url))).await.unwrap();
        let mut watch = store.watch("/", "0", 1).await.unwrap();
        let mut newest = store.create("/registry/a", "".into()).await.unwrap();
        for round in 0..6 {
            proxies[round % 2].cut();
            // The first write may be lost with the connection it was sent on; then it is seen to be in place or not.
            let deadline = Instant::now() + PATIENCE;
            loop {
                assert!(Instant::now() < deadline, "round {round}");
                match store.update("/registry/a", round.to_string().into(), newest).await {
                    Ok(revision) => break newest = revision,
                    Err(WriteError::Conflict { found }) => newest = found.unwrap().mod_revision,
                    Err(WriteError::Unavailable(_) | WriteError::InDoubt(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(store.get("/registry/a").await.unwrap().unwrap().mod_revision, newest);
            proxies[round % 2].mend();
        }
        let seen = take(&mut *watch, usize::try_from(newest).unwrap() - 1).await;
        assert!(seen.iter().map(|change| change.revision).eq(2..=newest));
    });
}
