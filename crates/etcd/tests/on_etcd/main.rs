//! The store on a real etcd: the suite of all stores, and what is only true of this one. Without an etcd the tests say
//! that they are skipped.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod connecting;
mod expiring;
mod faults;
mod mirror;
mod proxy;
mod unreadable;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bayplan_etcd::{EtcdStore, Options};
use bayplan_store::{Change, Watch};
use bayplan_testkit::Etcd;
use bayplan_testkit::store_suite::Case;

/// Longer than anything takes that is not broken, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test with an etcd of its own.
fn with_etcd<F: Future<Output = ()>>(test: &str, run: impl FnOnce(Etcd) -> F) {
    let Some(etcd) = Etcd::start(test) else { return };
    block_on(run(etcd));
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

async fn connect(etcd: &Etcd) -> EtcdStore {
    EtcdStore::connect(Options::new([etcd.url()])).await.unwrap()
}

/// Reads a watch until it has delivered so many changes.
async fn take(watch: &mut dyn Watch, count: usize) -> Vec<Change> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let next = tokio::time::timeout(PATIENCE, watch.next()).await;
        seen.extend(next.unwrap_or_else(|_| panic!("{} of {count} changes came", seen.len())).unwrap());
    }
    assert_eq!(seen.len(), count, "{seen:?}");
    seen
}

fn on_etcd(case: &str, run: Case) {
    with_etcd(case, |etcd| async move { run(Arc::new(connect(&etcd).await)).await });
}

bayplan_testkit::store_suite!(on_etcd);
