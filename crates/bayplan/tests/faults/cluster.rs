//! The whole cluster: three etcd members, two API servers, two schedulers, two controller managers and simulated nodes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bayplan_apiserver::certificates::{Names, Pki, kubeconfig};
use bayplan_client::{Client, Config};
use bayplan_runner::nodes::run_nodes;
use bayplan_sim::FleetConfig;
use bayplan_testkit::free_ports;
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::watch;

use crate::etcd::{Etcd, Status};
use crate::load::NAMESPACE;
use crate::processes::Process;
use crate::proxy::{Balancer, Door, Health, PeerDoor};
use crate::recipes::{self, Binaries};
use crate::requests::{ApiClient, Reply, Tally};

/// How long anything may take while no fault is under way; generous because shared machines stall.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// How often something is looked for in vain, at least, before it counts as missing: a machine that stood still for
/// longer than [`PATIENCE`] has given nobody a chance.
const LOOKS_MIN: u32 = 60;
/// The time between two looks at something that is awaited.
const GLANCE: Duration = Duration::from_millis(100);
/// How often a balancer checks the health of the servers behind it, and how long a check may take.
const HEALTH_CHECK: Duration = Duration::from_secs(1);
/// Simulated nodes.
pub(crate) const NODES: usize = 5;
/// Schedulers and managers that end by themselves are started again so often at most for one fault: they stop when
/// they lose their lease, as upstream's do, and whoever runs them starts them again.
const REVIVALS_MAX: usize = 30;

/// An etcd member.
pub(crate) struct Member {
    pub(crate) process: Process,
    /// Asked directly.
    pub(crate) etcd: Etcd,
    pub(crate) id: u64,
    /// Where its peers reach it.
    pub(crate) peers: PeerDoor,
}

/// An API server.
pub(crate) struct Server {
    pub(crate) process: Process,
    /// To each etcd member.
    pub(crate) etcd: Vec<Door>,
    /// Where the test's own clients reach it.
    pub(crate) clients: Door,
}

/// A scheduler or a controller manager.
pub(crate) struct Component {
    pub(crate) process: Process,
    pub(crate) servers: Balancer,
}

/// Which of the two kinds of components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Scheduler,
    Manager,
}

impl Part {
    /// The name of its Lease.
    fn lease(self) -> &'static str {
        match self {
            Part::Scheduler => "kube-scheduler",
            Part::Manager => "kube-controller-manager",
        }
    }
}

/// Everything that runs.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    pub(crate) servers: Vec<Server>,
    pub(crate) schedulers: Vec<Component>,
    pub(crate) managers: Vec<Component>,
    /// One for each API server.
    pub(crate) clients: Vec<ApiClient>,
    pub(crate) tally: Arc<Tally>,
    /// kube-apiserver answers a request that takes too long by 504, or ends its stream if it had begun an answer.
    pub(crate) may_abort: bool,
    /// How often a component was started again since this was last reset.
    pub(crate) revived: AtomicUsize,
    /// Ends the simulated nodes and the health checks when it is dropped.
    _stop: watch::Sender<bool>,
    // Dropped last: the processes above write into it.
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts everything and waits until nodes and the namespace of the load are ready.
    pub(crate) async fn start(binaries: &Binaries) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let names = Names::standard(None, [10, 0, 0, 1].into());
        let pki = Pki::open(&folder.path().join("pki"), &names, Timestamp::now()).unwrap();
        let (members, member_ports) = start_members(binaries, folder.path()).await;
        let (servers, server_ports) = start_servers(binaries, folder.path(), &member_ports).await;
        let (stop, stopping) = watch::channel(false);
        let config = |name: &str, port: u16| {
            let path = folder.path().join(format!("{name}.kubeconfig"));
            let identity = if name.starts_with("scheduler") { &pki.scheduler } else { &pki.admin };
            let url = format!("https://127.0.0.1:{port}");
            kubeconfig::write(&path, &url, &pki.authority.certificate, identity).unwrap();
            path
        };
        let health: Health = Arc::new(server_ports.iter().map(|_| AtomicBool::new(false)).collect());
        for (i, port) in server_ports.iter().enumerate() {
            let check = load(&config(&format!("health-{i}"), *port));
            tokio::spawn(check_health(check, i, health.clone(), stopping.clone()));
        }
        let (clock, tally) = (Instant::now(), Arc::new(Tally::default()));
        let client = |(i, server): (usize, &Server)| {
            ApiClient::new(&load(&config(&format!("client-{i}"), server.clients.port)), clock, &tally)
        };
        let clients = servers.iter().enumerate().map(client).collect();
        let (mut schedulers, mut managers) = (Vec::new(), Vec::new());
        for i in 0..2 {
            for (part, components) in [("scheduler", &mut schedulers), ("controller-manager", &mut managers)] {
                let balancer = Balancer::start(&server_ports, &health).await;
                let name = format!("{part}-{i}");
                let recipe = recipes::component(binaries, part, &config(&name, balancer.port));
                components.push(Component { process: Process::start(&name, folder.path(), recipe), servers: balancer });
            }
        }
        let (may_abort, revived, _stop, _folder) = (binaries.is_upstream(), AtomicUsize::new(0), stop, folder);
        let nodes = Balancer::start(&server_ports, &health).await;
        let nodes = load(&write_for_nodes(_folder.path(), &pki, nodes.port));
        let mut cluster =
            Cluster { members, servers, schedulers, managers, clients, tally, may_abort, revived, _stop, _folder };
        cluster.become_ready(nodes, stopping).await;
        cluster
    }

    async fn become_ready(&mut self, nodes: Config, stopping: watch::Receiver<bool>) {
        self.servers_are_ready().await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        self.until("the namespace", PATIENCE, async |cluster| {
            match cluster.clients[0].post("/api/v1/namespaces", &namespace).await {
                Reply::Done(_) | Reply::Refused(409) => Some(()),
                _ => None,
            }
        })
        .await;
        let fleet = FleetConfig { nodes: NODES, ..FleetConfig::default() };
        let (registered, _) = watch::channel(0);
        let client = Client::from_config(&nodes).unwrap();
        tokio::spawn(run_nodes(client, fleet, registered, stopping));
        let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default");
        self.until("the namespace's service account", PATIENCE, async |cluster| {
            cluster.clients[0].get(&account).await.done()
        })
        .await;
    }

    /// Looks again and again until there is something to see; starts components that ended by themselves.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        within: Duration,
        mut look: impl AsyncFnMut(&Cluster) -> Option<T>,
    ) -> T {
        let mut patience = Patience::new(within);
        loop {
            self.revive();
            if let Some(seen) = look(self).await {
                return seen;
            }
            assert!(patience.is_left(), "in vain for {within:?}: {what}");
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Lets time pass.
    pub(crate) async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        self.until("time passes", time + PATIENCE, async |_| (Instant::now() >= end).then_some(())).await;
    }

    fn revive(&mut self) {
        for Component { process, .. } in self.schedulers.iter_mut().chain(&mut self.managers) {
            let Some(status) = process.ended() else { continue };
            assert_eq!(status.code(), Some(1), "{} ended: {status}\n  {}", process.name, process.log_end());
            let revived = self.revived.fetch_add(1, Ordering::SeqCst);
            assert!(revived < REVIVALS_MAX, "{} ends again and again\n  {}", process.name, process.log_end());
            process.restart();
        }
        let members = self.members.iter_mut().map(|member| &mut member.process);
        for process in members.chain(self.servers.iter_mut().map(|server| &mut server.process)) {
            if let Some(status) = process.ended() {
                panic!("{} ended by itself: {status}\n  {}", process.name, process.log_end());
            }
        }
    }

    /// Waits until both API servers say that they are ready.
    pub(crate) async fn servers_are_ready(&mut self) {
        for i in 0..self.servers.len() {
            let what = format!("API server {i} is ready");
            self.until(&what, PATIENCE, async |cluster| match cluster.clients[i].watch("/readyz").await {
                Ok(_) => Some(()),
                Err(_) => None,
            })
            .await;
        }
    }

    /// The member that leads, by the word of those that answer, and in which term; none while there is none.
    pub(crate) async fn etcd_leader(&self, asked: &[usize]) -> Option<(usize, u64)> {
        let asked = asked.iter().map(|i| self.members[*i].etcd.status());
        let statuses: Vec<Status> = futures::future::join_all(asked).await.into_iter().flatten().collect();
        let newest = statuses.iter().filter(|status| status.leader != 0).max_by_key(|status| status.term)?;
        // The leader itself must say so, or it is one that is gone.
        let leader = self.members.iter().position(|member| member.id == newest.leader)?;
        statuses.iter().any(|status| status.member == newest.leader).then_some((leader, newest.term))
    }

    /// Which of the two holds the Lease of a part, as any server tells it.
    pub(crate) async fn leading(&self, part: Part) -> Option<usize> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{}", part.lease());
        let asked = self.clients.iter().map(|client| client.get(&path));
        let lease = futures::future::select_ok(asked.map(|reply| Box::pin(async { reply.await.done().ok_or(()) })));
        let (lease, _) = lease.await.ok()?;
        let holder = lease["spec"]["holderIdentity"].as_str()?;
        let of = |component: &Component| holder.starts_with(&format!("{}_", component.process.name));
        self.components(part).iter().position(of)
    }

    /// The two schedulers, or the two managers.
    pub(crate) fn components(&self, part: Part) -> &[Component] {
        match part {
            Part::Scheduler => &self.schedulers,
            Part::Manager => &self.managers,
        }
    }

    /// One of them.
    pub(crate) fn component(&mut self, part: Part, i: usize) -> &mut Component {
        match part {
            Part::Scheduler => &mut self.schedulers[i],
            Part::Manager => &mut self.managers[i],
        }
    }
}

async fn start_members(binaries: &Binaries, folder: &Path) -> (Vec<Member>, Vec<u16>) {
    let (clients, listens): ([u16; 3], [u16; 3]) = (free_ports(), free_ports());
    let mut doors = Vec::new();
    for listen in listens {
        doors.push(PeerDoor::start(listen).await);
    }
    let peers: Vec<u16> = doors.iter().map(|door| door.port).collect();
    let start = |(i, door): (usize, PeerDoor)| {
        let recipe = recipes::etcd(binaries, folder, i, clients[i], listens[i], &peers);
        let process = Process::start(&format!("etcd-{i}"), folder, recipe);
        Member { process, etcd: Etcd::on(clients[i]), id: 0, peers: door }
    };
    let mut members: Vec<Member> = doors.into_iter().enumerate().map(start).collect();
    // An API server that finds no etcd at its start ends: whoever starts it waits, or starts it again.
    let mut patience = Patience::new(PATIENCE);
    for i in 0..members.len() {
        members[i].id = loop {
            let status = members[i].etcd.status().await;
            match status {
                Some(status) if status.leader != 0 => break status.member,
                _ if patience.is_left() => tokio::time::sleep(GLANCE).await,
                _ => panic!("etcd-{i} has no leader, it says {status:?}\n{}", reports(&mut members)),
            }
        };
    }
    (members, clients.to_vec())
}

/// How each member is, for the person who reads why they did not begin.
fn reports(members: &mut [Member]) -> String {
    let report = |member: &mut Member| {
        let state = member.process.ended().map_or("runs".to_owned(), |status| format!("ended: {status}"));
        format!("{} {state}\n  {}\n", member.process.name, member.process.log_end())
    };
    members.iter_mut().map(report).collect()
}

/// What is left of the time and of the looks that something has.
struct Patience {
    deadline: Instant,
    looks: u32,
}

impl Patience {
    fn new(within: Duration) -> Patience {
        Patience { deadline: Instant::now() + within, looks: LOOKS_MIN }
    }

    /// Counts one more look in vain.
    fn is_left(&mut self) -> bool {
        self.looks = self.looks.saturating_sub(1);
        self.looks > 0 || Instant::now() < self.deadline
    }
}

async fn start_servers(binaries: &Binaries, folder: &Path, members: &[u16]) -> (Vec<Server>, Vec<u16>) {
    let ports: [u16; 2] = free_ports();
    let mut servers = Vec::new();
    for (i, port) in ports.into_iter().enumerate() {
        let mut etcd = Vec::new();
        for member in members {
            etcd.push(Door::start(*member).await);
        }
        let through: Vec<u16> = etcd.iter().map(|door| door.port).collect();
        let recipe = recipes::api_server(binaries, folder, i, port, &through);
        let process = Process::start(&format!("apiserver-{i}"), folder, recipe);
        servers.push(Server { process, etcd, clients: Door::start(port).await });
    }
    (servers, ports.to_vec())
}

fn write_for_nodes(folder: &Path, pki: &Pki, port: u16) -> PathBuf {
    let path = folder.join("nodes.kubeconfig");
    let url = format!("https://127.0.0.1:{port}");
    kubeconfig::write(&path, &url, &pki.authority.certificate, &pki.admin).unwrap();
    path
}

fn load(kubeconfig: &Path) -> Config {
    Config::load(Some(kubeconfig), None, None).unwrap()
}

async fn check_health(config: Config, server: usize, health: Health, stopping: watch::Receiver<bool>) {
    let client = Client::from_config(&config).unwrap();
    while !*stopping.borrow() && stopping.has_changed().is_ok() {
        let answer = tokio::time::timeout(HEALTH_CHECK, client.get("/readyz", "*/*")).await;
        health[server].store(matches!(answer, Ok(Ok(_))), Ordering::SeqCst);
        tokio::time::sleep(HEALTH_CHECK).await;
    }
}
