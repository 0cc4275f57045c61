//! Cutting proxies on loopback: every connection between two members runs through one, which can be cut and healed.
//!
//! ```text
//!   scheduler ─▶ Balancer ─┬─ Link ─▶ API server 0 ─▶ Link ─▶ etcd 0, 1, 2
//!                          └─ Link ─▶ API server 1
//!   etcd 1, 2 ─▶ PeerDoor ── Link by who calls ─▶ etcd 0
//! ```

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The header by which an etcd member says who it is when it calls another one.
const PEER_HEADER: &[u8] = b"x-server-from:";
/// A peer's request has its headers within this many bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// What a link does with the bytes of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Passes them on.
    Open,
    /// Keeps them back in both directions without a word, as a network that lost a route: when it heals, connections
    /// that neither end gave up go on.
    Dropped,
    /// Ends every connection with a reset, and every new one.
    Reset,
}

/// A way from one member to another.
pub(crate) struct Link {
    traffic: watch::Sender<Traffic>,
    live: AtomicUsize,
    cut: AtomicUsize,
}

impl Link {
    fn new() -> Arc<Link> {
        let (traffic, _) = watch::channel(Traffic::Open);
        Arc::new(Link { traffic, live: AtomicUsize::new(0), cut: AtomicUsize::new(0) })
    }

    /// Drops or resets what runs over it from now on.
    pub(crate) fn cut(&self, how: Traffic) {
        assert_ne!(how, Traffic::Open);
        self.cut.store(self.live.load(Ordering::SeqCst), Ordering::SeqCst);
        self.traffic.send_replace(how);
    }

    /// Passes everything on again.
    pub(crate) fn heal(&self) {
        self.traffic.send_replace(Traffic::Open);
    }

    /// How many connections the last cut has met so far: those that lived, and those that were tried since.
    pub(crate) fn connections_cut(&self) -> usize {
        self.cut.load(Ordering::SeqCst)
    }

    /// Whether a connection runs over it.
    pub(crate) fn is_in_use(&self) -> bool {
        self.live.load(Ordering::SeqCst) > 0
    }

    fn is_open(&self) -> bool {
        *self.traffic.borrow() == Traffic::Open
    }

    /// Carries one connection until it ends; `head` was read from the client already.
    async fn carry(&self, mut client: TcpStream, server: u16, head: &[u8]) -> io::Result<()> {
        if !self.is_open() {
            self.cut.fetch_add(1, Ordering::SeqCst);
        }
        let mut traffic = self.traffic.subscribe();
        let is_decided = |traffic: &Traffic| *traffic != Traffic::Dropped;
        let is_reset = |traffic: &Traffic| *traffic == Traffic::Reset;
        if traffic.wait_for(is_decided).await.is_ok_and(|traffic| *traffic == Traffic::Reset) {
            return client.set_zero_linger();
        }
        let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
        server.set_nodelay(true)?;
        server.write_all(head).await?;
        self.live.fetch_add(1, Ordering::SeqCst);
        let ended = {
            let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
            let there = pump(from_client, to_server, self.traffic.subscribe());
            let back = pump(from_server, to_client, self.traffic.subscribe());
            tokio::select! {
                ended = futures::future::try_join(there, back) => ended.map(drop),
                _ = traffic.wait_for(is_reset) => Err(io::ErrorKind::ConnectionReset.into()),
            }
        };
        self.live.fetch_sub(1, Ordering::SeqCst);
        if ended.is_err() {
            // Also when one end died: the other one learns it as it would without a proxy between them.
            let _ = client.set_zero_linger();
            let _ = server.set_zero_linger();
        }
        ended
    }
}

/// Passes bytes on in one direction while traffic is not dropped.
async fn pump(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, mut traffic: watch::Receiver<Traffic>) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    let gone = |_| io::Error::from(io::ErrorKind::ConnectionAborted);
    loop {
        traffic.wait_for(|traffic| *traffic != Traffic::Dropped).await.map_err(gone)?;
        let count = tokio::select! {
            biased;
            _ = traffic.wait_for(|traffic| *traffic == Traffic::Dropped) => continue,
            read = from.read(&mut buffer) => read?,
        };
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}

/// The address under which one client reaches several servers, as an operator's load balancer offers it.
pub(crate) struct Balancer {
    pub(crate) port: u16,
    /// To each server.
    pub(crate) links: Vec<Arc<Link>>,
}

/// Whether each server passed its last health check, as load balancers do them.
pub(crate) type Health = Arc<Vec<AtomicBool>>;

impl Balancer {
    /// Leads to the servers in turn, to healthy ones that can be reached first.
    pub(crate) async fn start(servers: &[u16], health: &Health) -> Balancer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let links: Vec<_> = servers.iter().map(|_| Link::new()).collect();
        let (targets, health, servers) = (links.clone(), health.clone(), servers.to_vec());
        tokio::spawn(async move {
            for turn in 0.. {
                let Ok((client, _)) = listener.accept().await else { return };
                let chosen = choose(&targets, &health, turn);
                let (link, server) = (targets[chosen].clone(), servers[chosen]);
                tokio::spawn(async move {
                    client.set_nodelay(true)?;
                    link.carry(client, server, &[]).await
                });
            }
        });
        Balancer { port, links }
    }
}

fn choose(links: &[Arc<Link>], health: &Health, turn: usize) -> usize {
    let in_turn = || (0..links.len()).map(move |i| (turn + i) % links.len());
    let is_healthy = |i: usize| health[i].load(Ordering::SeqCst);
    let best = in_turn().find(|&i| links[i].is_open() && is_healthy(i));
    best.or_else(|| in_turn().find(|&i| links[i].is_open())).unwrap_or(turn % links.len())
}

/// A link that one client has for itself.
pub(crate) struct Door {
    pub(crate) port: u16,
    pub(crate) link: Arc<Link>,
}

impl Door {
    /// Leads to a server.
    pub(crate) async fn start(server: u16) -> Door {
        let always: Health = Arc::new(vec![AtomicBool::new(true)]);
        let mut balancer = Balancer::start(&[server], &always).await;
        Door { port: balancer.port, link: balancer.links.remove(0) }
    }
}

/// The address that an etcd member tells its peers. All members must know it by the same one, so the links behind
/// it are told apart by what a caller says of itself in its first request.
pub(crate) struct PeerDoor {
    pub(crate) port: u16,
    /// By the hexadecimal id of the caller; empty for requests that name none.
    links: Arc<Mutex<BTreeMap<String, Arc<Link>>>>,
}

impl PeerDoor {
    /// Leads to a member's own port.
    pub(crate) async fn start(member: u16) -> PeerDoor {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let links: Arc<Mutex<BTreeMap<String, Arc<Link>>>> = Arc::default();
        let known = links.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let known = known.clone();
                tokio::spawn(async move {
                    client.set_nodelay(true)?;
                    let head = tokio::time::timeout(Duration::from_secs(10), read_head(&mut client)).await??;
                    let link = known.lock().unwrap().entry(caller(&head)).or_insert_with(Link::new).clone();
                    link.carry(client, member, &head).await
                });
            }
        });
        PeerDoor { port, links }
    }

    /// The link of one caller.
    pub(crate) fn from(&self, caller: &str) -> Arc<Link> {
        self.links.lock().unwrap().entry(caller.to_owned()).or_insert_with(Link::new).clone()
    }
}

async fn read_head(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        if client.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

/// Who says that it is calling.
fn caller(head: &[u8]) -> String {
    let lines = head.split(|byte| *byte == b'\n');
    let value = lines.into_iter().find_map(|line| {
        let name = line.get(..PEER_HEADER.len())?;
        name.eq_ignore_ascii_case(PEER_HEADER).then(|| &line[PEER_HEADER.len()..])
    });
    String::from_utf8_lossy(value.unwrap_or_default()).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers every line with the same line.
    async fn echo() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        port
    }

    async fn answer(client: &mut TcpStream) -> io::Result<u8> {
        client.write_all(b"x").await?;
        client.read_u8().await
    }

    #[tokio::test]
    async fn a_dropped_link_is_silent_and_goes_on_when_it_heals() {
        let door = Door::start(echo().await).await;
        let mut client = TcpStream::connect(("127.0.0.1", door.port)).await.unwrap();
        assert_eq!(answer(&mut client).await.unwrap(), b'x');
        door.link.cut(Traffic::Dropped);
        assert_eq!(door.link.connections_cut(), 1);
        client.write_all(b"y").await.unwrap();
        let silence = tokio::time::timeout(Duration::from_millis(100), client.read_u8()).await;
        assert!(silence.is_err(), "{silence:?}");
        door.link.heal();
        assert_eq!(client.read_u8().await.unwrap(), b'y');
    }

    #[tokio::test]
    async fn a_reset_link_ends_old_and_new_connections_and_counts_both() {
        let door = Door::start(echo().await).await;
        let mut old = TcpStream::connect(("127.0.0.1", door.port)).await.unwrap();
        assert_eq!(answer(&mut old).await.unwrap(), b'x');
        door.link.cut(Traffic::Reset);
        assert_eq!(old.read_u8().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let mut new = TcpStream::connect(("127.0.0.1", door.port)).await.unwrap();
        assert!(answer(&mut new).await.is_err());
        assert_eq!(door.link.connections_cut(), 2);
        door.link.heal();
        let mut healed = TcpStream::connect(("127.0.0.1", door.port)).await.unwrap();
        assert_eq!(answer(&mut healed).await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn a_balancer_leads_to_healthy_servers_that_can_be_reached() {
        let servers = [echo().await, echo().await];
        let health: Health = Arc::new(vec![AtomicBool::new(true), AtomicBool::new(true)]);
        let balancer = Balancer::start(&servers, &health).await;
        assert_eq!([choose(&balancer.links, &health, 0), choose(&balancer.links, &health, 1)], [0, 1]);
        balancer.links[0].cut(Traffic::Dropped);
        assert_eq!([choose(&balancer.links, &health, 0), choose(&balancer.links, &health, 1)], [1, 1]);
        balancer.links[0].heal();
        health[1].store(false, Ordering::SeqCst);
        assert_eq!([choose(&balancer.links, &health, 0), choose(&balancer.links, &health, 1)], [0, 0]);
    }

    #[test]
    fn peers_are_told_apart_by_what_they_say() {
        assert_eq!(caller(b"GET /raft/stream HTTP/1.1\r\nX-Server-From: 8e9e05c52164694d\r\n\r\n"), "8e9e05c52164694d");
        assert_eq!(caller(b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n"), "");
    }
}
