//! Every kind of hostile client at once, beside those who work: SECURITY.md says what each of them can do, and this
//! says that the others do not feel it.
//!
//! ```text
//!   hostile   no credentials, a user of one namespace, its administrator, a node: each a function in `hostile`
//!   honest    probes, an administrator, leases, pods that want a node: each a function in `honest`, timed
//! ```
//!
//! Real process, real sockets, real TLS. The modest form runs with all other tests; CONTRIBUTING.md has the command of
//! the heavy one.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

#[path = "../cluster/mod.rs"]
mod cluster;
mod honest;
mod hostile;

use std::sync::Arc;
use std::time::Duration;

use cluster::Cluster;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// How soon those who work must be answered.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How many of a hundred answers must come so soon. The rest is for a machine that does other things too.
const PERCENT: usize = 90;
/// How often the measurement may be repeated on such a machine.
const ROUNDS: usize = 3;

/// How large each crowd is, and how long those who work are watched.
#[derive(Clone, Copy)]
struct Size {
    /// Connections that say nothing, or never finish what they say.
    idle: usize,
    /// Requests at once of each kind.
    requests: usize,
    /// Elements in the bodies that are made to be costly.
    elements: usize,
    watched: Duration,
}

const MODEST: Size = Size { idle: 100, requests: 30, elements: 200, watched: Duration::from_secs(6) };
const HEAVY: Size = Size { idle: 2_000, requests: 700, elements: 5_000, watched: Duration::from_secs(30) };

/// Attackers have machines of their own. Here they share the processors with the server and with those who work, so
/// they get what those leave over.
fn attackers_runtime() -> &'static Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().on_thread_start(|| {
        // Without it the attack is only harder to stand.
        let _ = rustix::process::nice(10);
    });
    // It ends with the process: a runtime must not be dropped where another one runs.
    Box::leak(Box::new(builder.build().unwrap()))
}

async fn those_who_work_are_answered(size: Size, crowd: &[hostile::Hostile]) {
    let cluster = Arc::new(Cluster::start().await);
    let (runtime, mut attackers) = (attackers_runtime(), JoinSet::new());
    {
        let _inside = runtime.enter();
        crowd.iter().for_each(|hostile| (hostile.start)(&cluster, size, &mut attackers));
    }
    let mut slow = Vec::new();
    for _ in 0..ROUNDS {
        slow = honest::watch(&cluster, size.watched).await;
        if slow.is_empty() {
            break;
        }
    }
    let names: Vec<&str> = crowd.iter().map(|hostile| hostile.name).collect();
    assert!(slow.is_empty(), "beside {}:\n{}", names.join(", "), slow.join("\n"));
    while let Some(ended) = attackers.try_join_next() {
        ended.expect("an attacker that gives up has found something to complain about");
    }
    attackers.shutdown().await;
    // Nobody is left behind: the server still knows everybody, and its nodes are all there.
    assert_eq!(cluster.ready_nodes().await, cluster::NODES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_hostile_clients_is_not_felt_by_those_who_work() {
    those_who_work_are_answered(MODEST, hostile::ALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes of both processors; for a release build"]
async fn a_large_crowd_of_hostile_clients_is_not_felt_by_those_who_work() {
    those_who_work_are_answered(HEAVY, hostile::ALL).await;
}
