//! A round: load, a fault, its end, the arrival of every Deployment, and the history held against what etcd did.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bayplan_testkit::Rng;
use http::Method;
use serde_json::{Value, json};

use crate::cluster::{Cluster, PATIENCE};
use crate::faults::{self, Fault};
use crate::history::{Rule, Truth, Violation, WatchEvent, check_lists};
use crate::load::{self, CONFIG_MAP_KEYS, CONFIG_MAPS, Load, Records};
use crate::recipes::Binaries;
use crate::requests::version;
use crate::watchers::{Collection, Watcher};
use crate::workloads::{self, Rollouts};

/// How long the load runs before a fault.
const CALM: Duration = Duration::from_secs(1);
/// After a fault, every watcher has caught up within this: a silent connection is given up after 15 s.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(60);

const PODS: &str = "/api/v1/namespaces/faults/pods";
const WATCHED: [Collection; 2] = [
    Collection { path: CONFIG_MAPS, keys: CONFIG_MAP_KEYS },
    Collection { path: PODS, keys: "/registry/pods/faults/" },
];

/// What the rounds have shown so far.
#[derive(Default)]
struct Totals {
    faults: BTreeMap<String, usize>,
    arrival_max: Duration,
    changes: usize,
    operations: usize,
    promises: usize,
    in_doubt: usize,
    lists: usize,
    events: usize,
    resumed: usize,
    relisted: usize,
    revived: usize,
    bound: usize,
}

/// A cluster, its watchers and what etcd did.
pub(crate) struct Rounds {
    /// Which of the clusters that run side by side it is.
    number: usize,
    cluster: Cluster,
    /// Of ConfigMaps and of pods.
    watchers: [Vec<Watcher>; 2],
    truth: Truth,
    rng: Rng,
    totals: Totals,
    begun: Instant,
}

impl Rounds {
    /// Starts a cluster with Deployments, and watchers: one at each API server, and one that goes to and fro.
    pub(crate) async fn start(binaries: &Binaries, number: usize, seed: u64) -> Rounds {
        let begun = Instant::now();
        let mut cluster = Cluster::start(binaries).await;
        workloads::create(&mut cluster).await;
        let revision = cluster.members[0].etcd.revision().await.unwrap();
        let truth = Truth::new(cluster.members[0].etcd.keys_at(revision).await, revision);
        let mut watchers = [Vec::new(), Vec::new()];
        for (watchers, collection) in watchers.iter_mut().zip(WATCHED) {
            let clients = &cluster.clients;
            for (name, servers) in [("at 0", vec![0]), ("at 1", vec![1]), ("at either", vec![0, 1])] {
                let servers = servers.into_iter().map(|server: usize| clients[server].clone()).collect();
                let name = format!("the watcher of {} {name}", collection.keys);
                watchers.push(Watcher::start(&name, collection, servers).await);
            }
        }
        println!("cluster {number} with its Deployments after {:.0} s", begun.elapsed().as_secs_f64());
        Rounds { number, cluster, watchers, truth, rng: Rng::new(seed), totals: Totals::default(), begun }
    }

    /// Plays one fault.
    pub(crate) async fn play(&mut self, number: usize, of: usize, fault: Fault) {
        let (name, cluster) = (fault.to_string(), self.number);
        let at = self.begun.elapsed().as_secs_f64();
        println!("cluster {cluster}, fault {}/{of} at {at:.0} s: {name}", number + 1);
        self.cluster.revived.store(0, Ordering::SeqCst);
        let load = Load::start(&self.cluster.clients, number, self.rng.next_u64()).await;
        let rollouts = Rollouts::start(&self.cluster.clients, self.rng.next_u64());
        self.cluster.pass(CALM).await;
        let evidence = faults::strike(&mut self.cluster, fault, &mut self.rng).await;
        let healed = Instant::now();
        let changes = rollouts.finish().await;
        workloads::uncordon(&mut self.cluster).await;
        workloads::every_deployment_arrives(&mut self.cluster).await;
        let arrival = healed.elapsed();
        let records = load.finish().await;
        let violations = self.check(&records).await;
        println!(
            "  cluster {cluster}: {evidence}; {changes} changes of Deployments, all there {:.1} s after it",
            arrival.as_secs_f64()
        );
        assert!(violations.is_empty(), "{name}: {} violations: {violations:#?}", violations.len());
        *self.totals.faults.entry(name).or_default() += 1;
        self.totals.arrival_max = self.totals.arrival_max.max(arrival);
        self.totals.changes += changes;
        self.totals.revived += self.cluster.revived.load(Ordering::SeqCst);
        self.clear().await;
    }

    /// Holds what clients and watchers were told against what etcd did.
    async fn check(&mut self, records: &Records) -> Vec<Violation> {
        let until = self.watchers_catch_up().await;
        self.cluster.members[0].etcd.follow(&mut self.truth).await;
        let truth = &self.truth;
        let newest = truth.revision();
        assert_eq!(truth.state_at(newest, ""), self.cluster.members[1].etcd.keys_at(newest).await, "etcd disagrees");
        let mut violations: Vec<Violation> =
            records.promises.iter().flat_map(|promise| promise.check(truth, newest)).collect();
        violations.extend(records.registers.iter().flat_map(|register| register.check(truth)));
        violations.extend(check_lists(&records.lists, truth, CONFIG_MAP_KEYS));
        for (watchers, until) in self.watchers.iter().zip(until) {
            for watcher in watchers {
                let report = watcher.report(until);
                violations.extend(report.watched.check(truth, until));
                violations.extend(report.violations);
                self.totals.events += report.watched.events.len();
                self.totals.resumed += report.resumed;
                let is_list = |event: &&WatchEvent| matches!(event, WatchEvent::Listed(..));
                self.totals.relisted += report.watched.events.iter().filter(is_list).count();
                self.totals.bound = self.totals.bound.max(report.bound);
            }
        }
        self.totals.operations += records.registers.iter().map(|register| register.operations.len()).sum::<usize>();
        self.totals.promises += records.promises.len();
        self.totals.in_doubt += records.promises.iter().filter(|promise| promise.doubt.is_some()).count();
        self.totals.lists += records.lists.len();
        self.truth.forget(until[0]);
        violations
    }

    /// Writes something new into both collections, and waits until every watcher has seen it.
    async fn watchers_catch_up(&mut self) -> [u64; 2] {
        let name = format!("sentinel-{}", self.rng.next_u64());
        let container = json!({"name": "c", "image": "registry.example/none:1"});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": load::NAMESPACE},
            "spec": {"containers": [container], "schedulerName": "nobody"},
        });
        let objects = [load::config_map(&name, ""), pod];
        let mut until = [0; 2];
        for i in 0..2 {
            until[i] = version(&self.write(Method::POST, WATCHED[i].path, Some(&objects[i])).await);
            let watchers = &self.watchers[i];
            let caught_up =
                async |_: &Cluster| watchers.iter().all(|watcher| watcher.revision() >= until[i]).then_some(());
            let what = format!("the watchers of {} see {name} at {}", WATCHED[i].keys, until[i]);
            self.cluster.until(&what, CAUGHT_UP_WITHIN, caught_up).await;
        }
        self.write(Method::DELETE, &format!("{PODS}/{name}?gracePeriodSeconds=0"), None).await;
        until
    }

    /// A write while no fault is under way.
    async fn write(&mut self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let ask = async |cluster: &Cluster| cluster.clients[0].send(method.clone(), path, body).await.done();
        self.cluster.until(&format!("{method} {path}"), PATIENCE, ask).await
    }

    /// Removes what the load left behind.
    async fn clear(&mut self) {
        self.write(Method::DELETE, &format!("{CONFIG_MAPS}?labelSelector=load%3Dtrue"), None).await;
    }

    /// A write that etcd loses after it was acknowledged is found: the checks look at this cluster, and see.
    pub(crate) async fn find_a_planted_loss(&mut self) {
        let load = Load::start(&self.cluster.clients, usize::MAX, self.rng.next_u64()).await;
        self.cluster.pass(CALM * 2).await;
        let records = load.finish().await;
        let kept = records.promises.iter().find(|promise| !promise.deleted && promise.doubt.is_none());
        let key = kept.expect("some object was written and not deleted").key.clone();
        self.cluster.members[2].etcd.delete(&key).await;
        let violations = self.check(&records).await;
        let rules: Vec<Rule> = violations.iter().map(|violation| violation.rule).collect();
        assert_eq!(rules, [Rule::NothingAcknowledgedIsLost], "{violations:?}");
        assert!(violations[0].what.contains(&key), "{violations:?}");
        println!("a write that was taken away behind everybody's back was found");
    }

    /// Says what was done and held.
    pub(crate) fn summary(&self) {
        let totals = &self.totals;
        println!("cluster {}:", self.number);
        for (name, count) in &totals.faults {
            println!("{count:5} × {name}");
        }
        let count = |counter: &std::sync::atomic::AtomicUsize| counter.load(Ordering::Relaxed);
        let tally = &self.cluster.tally;
        println!(
            "{} faults in {:.0} s; {} requests acknowledged, {} refused, {} failed, {} unanswered",
            totals.faults.values().sum::<usize>(),
            self.begun.elapsed().as_secs_f64(),
            count(&tally.done),
            count(&tally.refused),
            count(&tally.failed),
            count(&tally.unanswered),
        );
        println!(
            "{} operations on registers, {} objects ({} in doubt), {} lists, \
             {} watch events ({} resumed, {} listed again)",
            totals.operations,
            totals.promises,
            totals.in_doubt,
            totals.lists,
            totals.events,
            totals.resumed,
            totals.relisted,
        );
        println!(
            "{} changes of Deployments, {} pods bound, {} components started again; the slowest arrival took {:.1} s",
            totals.changes,
            totals.bound,
            totals.revived,
            totals.arrival_max.as_secs_f64(),
        );
    }
}
