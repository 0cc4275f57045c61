//! The faults: each is done to the cluster, seen to have happened, and undone.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_testkit::Rng;

use crate::cluster::{Cluster, PATIENCE, Part};
use crate::proxy::{Link, Traffic};

/// How long a fault lasts at least, after it was seen, in milliseconds;
const LASTS_MS_MIN: usize = 1_000;
/// and how much longer at most.
const LASTS_MS_MORE: usize = 2_500;
/// How long a server that cannot reach a quorum may take to say so: it was asked to answer within 6 s.
const REFUSAL_MAX: Duration = Duration::from_secs(11);

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`, and a new start.
    Kill(Victim),
    /// `kill -STOP`, and `kill -CONT`.
    Pause(Victim),
    /// Links are cut, and heal.
    Cut(Route, Traffic),
    /// Two etcd members of three are paused at once.
    PauseQuorum,
    /// Two etcd members of three are killed at once.
    KillQuorum,
}

/// Whom it meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    EtcdLeader,
    EtcdFollower,
    ApiServer,
    Leading(Part),
}

/// Which connections are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    EtcdLeaderAndPeers,
    EtcdFollowerAndPeers,
    EtcdLeaderAndFollower,
    ApiServerAndEtcd,
    ApiServerAndOneMember,
    LeadingAndServers(Part),
    LeadingAndOneServer(Part),
    ClientsAndApiServer,
}

use Fault::{Cut, Kill, KillQuorum, Pause, PauseQuorum};
use Route::{
    ApiServerAndEtcd, ApiServerAndOneMember, ClientsAndApiServer, EtcdFollowerAndPeers, EtcdLeaderAndFollower,
    EtcdLeaderAndPeers, LeadingAndOneServer, LeadingAndServers,
};
use Traffic::{Dropped, Reset};
use Victim::{ApiServer, EtcdFollower, EtcdLeader, Leading};

/// A dozen that meet every member in some way, for every change.
pub(crate) const DOZEN: [Fault; 12] = [
    Kill(EtcdLeader),
    Kill(ApiServer),
    Kill(Leading(Part::Scheduler)),
    Kill(Leading(Part::Manager)),
    Pause(EtcdLeader),
    Pause(ApiServer),
    Pause(Leading(Part::Scheduler)),
    Cut(EtcdLeaderAndPeers, Dropped),
    Cut(ApiServerAndEtcd, Dropped),
    Cut(LeadingAndServers(Part::Manager), Dropped),
    Cut(ClientsAndApiServer, Reset),
    PauseQuorum,
];

/// All of them, for the long form.
pub(crate) fn all() -> Vec<Fault> {
    let mut faults = vec![PauseQuorum, KillQuorum];
    for victim in [EtcdLeader, EtcdFollower, ApiServer, Leading(Part::Scheduler), Leading(Part::Manager)] {
        faults.extend([Kill(victim), Pause(victim)]);
    }
    let parts = [Part::Scheduler, Part::Manager];
    let routes = [
        &[EtcdLeaderAndPeers, EtcdFollowerAndPeers, EtcdLeaderAndFollower, ApiServerAndEtcd][..],
        &[ApiServerAndOneMember, ClientsAndApiServer],
        &parts.map(LeadingAndServers),
        &parts.map(LeadingAndOneServer),
    ];
    for route in routes.concat() {
        faults.extend([Cut(route, Dropped), Cut(route, Reset)]);
    }
    faults
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kill(victim) => write!(f, "kill {victim}"),
            Pause(victim) => write!(f, "pause {victim}"),
            Cut(route, Reset) => write!(f, "reset {route}"),
            Cut(route, _) => write!(f, "cut {route}"),
            PauseQuorum => f.write_str("pause two etcd members of three"),
            KillQuorum => f.write_str("kill two etcd members of three"),
        }
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EtcdLeader => "the leading etcd member",
            EtcdFollower => "a following etcd member",
            ApiServer => "an API server",
            Leading(Part::Scheduler) => "the leading scheduler",
            Leading(Part::Manager) => "the leading controller manager",
        })
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EtcdLeaderAndPeers => write!(f, "{EtcdLeader} from its peers"),
            EtcdFollowerAndPeers => write!(f, "{EtcdFollower} from its peers"),
            EtcdLeaderAndFollower => write!(f, "{EtcdLeader} from one of its peers"),
            ApiServerAndEtcd => write!(f, "{ApiServer} from etcd"),
            ApiServerAndOneMember => write!(f, "{ApiServer} from one etcd member"),
            LeadingAndServers(part) => write!(f, "{} from all API servers", Leading(*part)),
            LeadingAndOneServer(part) => write!(f, "{} from one API server", Leading(*part)),
            ClientsAndApiServer => write!(f, "clients from {ApiServer}"),
        }
    }
}

/// Does a fault to the cluster and undoes it; answers what showed that it happened.
pub(crate) async fn strike(cluster: &mut Cluster, fault: Fault, rng: &mut Rng) -> String {
    let lasts = Duration::from_millis((LASTS_MS_MIN + rng.below(LASTS_MS_MORE)) as u64);
    let evidence = match fault {
        Kill(EtcdLeader | EtcdFollower) | Pause(EtcdLeader | EtcdFollower) => {
            strike_member(cluster, fault, lasts, rng).await
        }
        Kill(ApiServer) | Pause(ApiServer) => strike_server(cluster, fault, lasts, rng).await,
        Kill(Leading(part)) | Pause(Leading(part)) => strike_leading(cluster, fault, part, lasts).await,
        Cut(LeadingAndServers(part), how) => cut_leading(cluster, part, how, lasts).await,
        Cut(ApiServerAndEtcd, how) => cut_server_from_etcd(cluster, how, lasts, rng).await,
        Cut(EtcdLeaderAndPeers, how) => cut_etcd_leader(cluster, how, lasts).await,
        Cut(route, how) => {
            let links = links(cluster, route, rng).await;
            let evidence = cut(cluster, &links, how, lasts).await;
            heal(&links);
            evidence
        }
        PauseQuorum | KillQuorum => lose_quorum(cluster, fault, lasts, rng).await,
    };
    members_agree(cluster).await;
    cluster.servers_are_ready().await;
    evidence
}

/// Waits until every etcd member follows the same leader.
async fn members_agree(cluster: &mut Cluster) {
    cluster
        .until("the etcd members agree on a leader", PATIENCE, async |cluster| {
            let statuses = futures::future::join_all(cluster.members.iter().map(|member| member.etcd.status())).await;
            let first = statuses.first()?.as_ref()?.leader;
            statuses.iter().flatten().filter(|status| status.leader == first && first != 0).count().eq(&3).then_some(())
        })
        .await;
}

async fn leading_member(cluster: &mut Cluster) -> (usize, u64) {
    cluster.until("etcd has a leader", PATIENCE, async |cluster| cluster.etcd_leader(&[0, 1, 2]).await).await
}

/// The other two members.
fn others(member: usize) -> Vec<usize> {
    (0..3).filter(|other| *other != member).collect()
}

/// Waits until the others have elected one of them.
async fn others_elect(cluster: &mut Cluster, (old, term): (usize, u64)) -> String {
    let begun = Instant::now();
    let new = cluster.until("etcd elects another leader", PATIENCE, async |cluster| {
        let (leader, newer) = cluster.etcd_leader(&others(old)).await?;
        (leader != old && newer > term).then_some(leader)
    });
    let new = new.await;
    format!("etcd-{new} leads after {:.1} s", begun.elapsed().as_secs_f64())
}

async fn strike_member(cluster: &mut Cluster, fault: Fault, lasts: Duration, rng: &mut Rng) -> String {
    let (leader, term) = leading_member(cluster).await;
    let meets_leader = matches!(fault, Kill(EtcdLeader) | Pause(EtcdLeader));
    let victim = if meets_leader { leader } else { *rng.pick(&others(leader)) };
    let process = &mut cluster.members[victim].process;
    let is_kill = matches!(fault, Kill(_));
    let mut evidence = if is_kill { process.kill() } else { paused(process) };
    if meets_leader {
        evidence = format!("{evidence}, {}", others_elect(cluster, (leader, term)).await);
    }
    cluster.pass(lasts).await;
    let process = &mut cluster.members[victim].process;
    if is_kill {
        process.restart()
    } else {
        process.resume()
    }
    evidence
}

fn paused(process: &crate::processes::Process) -> String {
    process.pause();
    let deadline = Instant::now() + PATIENCE;
    while !process.is_paused() {
        assert!(Instant::now() < deadline, "{} does not stop", process.name);
        std::thread::yield_now();
    }
    format!("{} ({}) stopped", process.name, process.id().expect("it runs"))
}

async fn strike_server(cluster: &mut Cluster, fault: Fault, lasts: Duration, rng: &mut Rng) -> String {
    let victim = rng.below(cluster.servers.len());
    let process = &mut cluster.servers[victim].process;
    let is_kill = matches!(fault, Kill(_));
    let evidence = if is_kill { process.kill() } else { paused(process) };
    let asked = tokio::time::timeout(lasts, cluster.clients[victim].get("/api/v1/namespaces/default")).await;
    assert!(!matches!(asked, Ok(crate::requests::Reply::Done(_))), "a server that is away answers");
    cluster.pass(lasts).await;
    let process = &mut cluster.servers[victim].process;
    if is_kill {
        process.restart()
    } else {
        process.resume()
    }
    evidence
}

async fn leading(cluster: &mut Cluster, part: Part) -> usize {
    cluster.until("somebody leads", PATIENCE, async |cluster| cluster.leading(part).await).await
}

/// Waits until the other one of two leads.
async fn other_leads(cluster: &mut Cluster, part: Part, old: usize) -> String {
    let begun = Instant::now();
    let leads = async |cluster: &Cluster| cluster.leading(part).await.filter(|leading| *leading != old);
    let new = cluster.until("the standby takes over", PATIENCE, leads).await;
    format!("{} leads after {:.1} s", cluster.components(part)[new].process.name, begun.elapsed().as_secs_f64())
}

/// Waits until the one that lost its lease has ended, and was started again.
async fn steps_down(cluster: &mut Cluster, revived: usize) -> &'static str {
    use std::sync::atomic::Ordering::SeqCst;
    let ended = async |cluster: &Cluster| (cluster.revived.load(SeqCst) > revived).then_some(());
    cluster.until("whoever lost its lease ends", PATIENCE, ended).await;
    "the old leader ended by itself"
}

async fn strike_leading(cluster: &mut Cluster, fault: Fault, part: Part, lasts: Duration) -> String {
    let victim = leading(cluster, part).await;
    let process = &mut cluster.component(part, victim).process;
    if matches!(fault, Kill(_)) {
        let evidence = process.kill();
        let evidence = format!("{evidence}, {}", other_leads(cluster, part, victim).await);
        cluster.component(part, victim).process.restart();
        return evidence;
    }
    let evidence = paused(process);
    let evidence = format!("{evidence}, {}", other_leads(cluster, part, victim).await);
    cluster.pass(lasts).await;
    let revived = cluster.revived.load(std::sync::atomic::Ordering::SeqCst);
    cluster.component(part, victim).process.resume();
    format!("{evidence}, {}", steps_down(cluster, revived).await)
}

async fn cut_leading(cluster: &mut Cluster, part: Part, how: Traffic, lasts: Duration) -> String {
    let victim = leading(cluster, part).await;
    let links = cluster.component(part, victim).servers.links.clone();
    let revived = cluster.revived.load(std::sync::atomic::Ordering::SeqCst);
    links.iter().for_each(|link| link.cut(how));
    let evidence = other_leads(cluster, part, victim).await;
    let stepped_down = steps_down(cluster, revived).await;
    cluster.pass(lasts).await;
    let count = connections_cut(&links);
    heal(&links);
    format!("{count} connections cut, {evidence}, {stepped_down}")
}

async fn cut_server_from_etcd(cluster: &mut Cluster, how: Traffic, lasts: Duration, rng: &mut Rng) -> String {
    let victim = rng.below(cluster.servers.len());
    let links: Vec<_> = cluster.servers[victim].etcd.iter().map(|door| door.link.clone()).collect();
    let evidence = cut(cluster, &links, how, lasts).await;
    let refused = refuses(cluster, victim).await;
    heal(&links);
    format!("{evidence}, {refused}")
}

async fn cut_etcd_leader(cluster: &mut Cluster, how: Traffic, lasts: Duration) -> String {
    let (leader, term) = leading_member(cluster).await;
    let links = peer_links(cluster, leader, &others(leader));
    links.iter().for_each(|link| link.cut(how));
    let elected = others_elect(cluster, (leader, term)).await;
    cluster.pass(lasts).await;
    let count = connections_cut(&links);
    heal(&links);
    format!("{count} connections cut, {elected}")
}

/// The links between a member and some of its peers, in both directions; with those of callers that do not say who they
/// are, because a connection that began with a probe carries messages later.
fn peer_links(cluster: &Cluster, member: usize, peers: &[usize]) -> Vec<Arc<Link>> {
    let id = |member: usize| format!("{:x}", cluster.members[member].id);
    let door = |member: usize| &cluster.members[member].peers;
    let both = |peer: &usize| [door(member).from(&id(*peer)), door(*peer).from(&id(member)), door(*peer).from("")];
    peers.iter().flat_map(both).chain([door(member).from("")]).collect()
}

/// The links of the simpler cuts.
async fn links(cluster: &mut Cluster, route: Route, rng: &mut Rng) -> Vec<Arc<Link>> {
    let server = rng.below(cluster.servers.len());
    match route {
        ClientsAndApiServer => vec![cluster.servers[server].clients.link.clone()],
        ApiServerAndOneMember => {
            let doors = &cluster.servers[server].etcd;
            let in_use: Vec<_> = doors.iter().filter(|door| door.link.is_in_use()).collect();
            vec![rng.pick(&in_use).link.clone()]
        }
        LeadingAndOneServer(part) => {
            let victim = leading(cluster, part).await;
            let links = cluster.component(part, victim).servers.links.clone();
            vec![links.into_iter().find(|link| link.is_in_use()).expect("a leader has a connection")]
        }
        EtcdFollowerAndPeers => {
            let (leader, _) = leading_member(cluster).await;
            let victim = *rng.pick(&others(leader));
            peer_links(cluster, victim, &others(victim))
        }
        EtcdLeaderAndFollower => {
            let (leader, _) = leading_member(cluster).await;
            peer_links(cluster, leader, &[*rng.pick(&others(leader))])
        }
        EtcdLeaderAndPeers | ApiServerAndEtcd | LeadingAndServers(_) => unreachable!("they have ways of their own"),
    }
}

/// Cuts links for a while; answers how many connections it met.
async fn cut(cluster: &mut Cluster, links: &[Arc<Link>], how: Traffic, lasts: Duration) -> String {
    links.iter().for_each(|link| link.cut(how));
    cluster.pass(lasts).await;
    format!("{} connections cut", connections_cut(links))
}

fn connections_cut(links: &[Arc<Link>]) -> usize {
    let count = links.iter().map(|link| link.connections_cut()).sum();
    assert_ne!(count, 0, "the cut met no connection");
    count
}

fn heal(links: &[Arc<Link>]) {
    links.iter().for_each(|link| link.heal());
}

/// Asks a server that has no quorum behind it: it answers 5xx in bounded time, to reads and to writes.
async fn refuses(cluster: &Cluster, server: usize) -> String {
    use crate::requests::Reply;
    let client = &cluster.clients[server];
    let begun = Instant::now();
    let object = crate::load::config_map("without-a-quorum", "");
    let read = format!("{}/without-a-quorum", crate::load::CONFIG_MAPS);
    let replies = tokio::join!(client.post(crate::load::CONFIG_MAPS, &object), client.get(&read));
    let took = begun.elapsed();
    assert!(took < REFUSAL_MAX, "API server {server} needs {took:?} to say that it has no quorum: {replies:?}");
    let say = |reply: &Reply| match reply {
        Reply::Failed(code) => code.to_string(),
        Reply::Unanswered if cluster.may_abort => "the end of the stream".into(),
        _ => panic!("API server {server} has no quorum, but answers a write and a read by {replies:?} after {took:?}"),
    };
    let (write, read) = (say(&replies.0), say(&replies.1));
    format!("API server {server} answers a write by {write} and a read by {read} within {:.1} s", took.as_secs_f64())
}

async fn lose_quorum(cluster: &mut Cluster, fault: Fault, lasts: Duration, rng: &mut Rng) -> String {
    let victims = others(rng.below(3));
    let mut evidence = Vec::new();
    for victim in &victims {
        let process = &mut cluster.members[*victim].process;
        let is_kill = fault == KillQuorum;
        evidence.push(if is_kill { process.kill() } else { paused(process) });
    }
    let (first, second) = tokio::join!(refuses(cluster, 0), refuses(cluster, 1));
    evidence.extend([first, second]);
    cluster.pass(lasts).await;
    for victim in victims {
        let process = &mut cluster.members[victim].process;
        if fault == KillQuorum { process.restart() } else { process.resume() }
    }
    evidence.join(", ")
}
