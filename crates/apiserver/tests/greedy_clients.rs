//! Clients that hold what others need: connections, seats, memory. Over real sockets and TLS.
#![allow(clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bayplan_apiserver::certificates::{Names, Pki, tls};
use bayplan_apiserver::{ApiServer, Config, StaticTokens, User};
use bayplan_store::LogStore;
use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use support::Client;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::RwLock;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// Anybody who may do everything, by rights and not by belonging to `system:masters`.
const USERS: [&str; 3] = ["mallory", "alice", "system:kube-controller-manager"];

/// Held shared by tests that take memory, and alone by the one that measures the memory of their process.
static MEMORY: RwLock<()> = RwLock::const_new(());

struct World {
    _server: ApiServer,
    admin: Client,
    address: SocketAddr,
    pki: Pki,
}

async fn world(connections_max: usize) -> World {
    let names = Names::standard(None, "10.0.0.1".parse().unwrap());
    let pki = Pki::in_memory(&names, jiff::Timestamp::now()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = Config::new(pki.service_account_key.clone(), address);
    let tokens = USERS.iter().map(|user| format!("{user}-token,{user},{user}\n")).collect::<String>();
    config.static_tokens = StaticTokens::parse(&(tokens + "root-token,root,root,system:masters\n")).unwrap();
    config.connections_max = connections_max;
    let server = ApiServer::new(config, Arc::new(LogStore::in_memory().unwrap())).await.unwrap();
    let serving = server.clone();
    let config = tls::server_config(&pki).unwrap();
    tokio::spawn(async move { serving.serve(listener, config).await });
    let admin = Client::of(server.service(User::new("admin", ["system:masters"])));
    let subjects = USERS.map(|name| json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let binding = json!({"metadata": {"name": "users"}, "roleRef": role, "subjects": subjects});
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    World { _server: server, admin, address, pki }
}

impl World {
    async fn tls(&self) -> TlsStream<TcpStream> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(tls::roots(&self.pki).unwrap())
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(self.address).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream).await.unwrap()
    }

    async fn http2(&self, builder: &Builder<TokioExecutor>) -> SendRequest<Body> {
        let (sender, connection) = builder.handshake(TokioIo::new(self.tls().await)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    async fn client(&self) -> SendRequest<Body> {
        self.http2(&Builder::new(TokioExecutor::new())).await
    }

    /// The code of the answer to a GET on a connection of its own.
    async fn get(&self, user: &str, path: &str) -> u16 {
        let mut client = self.client().await;
        code(client.send_request(get(user, path)).await.unwrap()).await
    }
}

fn request(method: &str, user: &str, path: &str) -> http::request::Builder {
    let request = Request::builder().method(method).uri(format!("https://localhost{path}"));
    if user.is_empty() { request } else { request.header("Authorization", format!("Bearer {user}-token")) }
}

fn get(user: &str, path: &str) -> Request<Body> {
    request("GET", user, path).body(Full::new(Bytes::new()).boxed_unsync()).unwrap()
}

async fn code(response: Response<Incoming>) -> u16 {
    let code = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    code
}

#[tokio::test]
async fn silent_connections_lock_nobody_out() {
    let _memory = MEMORY.read().await;
    let world = world(300).await;
    let mut silent = Vec::new();
    for number in 0..900 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
        if number % 10 == 0 {
            silent.push(world.tls().await.into_inner().0);
        }
        if number % 300 == 299 {
            assert_eq!(world.get("", "/readyz").await, 200);
        }
    }
    assert_eq!(world.get("alice", "/api/v1/namespaces").await, 200);
    drop(silent);
}

#[tokio::test]
async fn reads_that_wait_for_a_version_keep_nobody_waiting() {
    let _memory = MEMORY.read().await;
    let world = world(100).await;
    let mut flood = Vec::new();
    for _ in 0..6 {
        let client = world.client().await;
        for _ in 0..950 {
            let mut client = client.clone();
            let read = get("mallory", "/api/v1/namespaces/default?resourceVersion=999999999");
            flood.push(tokio::spawn(async move { client.send_request(read).await.unwrap().status().as_u16() }));
        }
    }
    for _ in 0..10 {
        for (user, path) in [
            ("root", "/api/v1/nodes"),
            ("alice", "/api/v1/nodes"),
            ("system:kube-controller-manager", "/api/v1/namespaces/default"),
            ("", "/livez"),
        ] {
            assert_eq!(world.get(user, path).await, 200, "{user} {path}");
        }
    }
    let mut answers: Vec<u16> = join_all(flood).await.into_iter().map(Result::unwrap).collect();
    answers.sort_unstable();
    answers.dedup();
    assert!(answers.iter().all(|code| [429, 504].contains(code)), "{answers:?}");
    assert_eq!(world.get("mallory", "/api/v1/namespaces/default").await, 200);
}

/// The memory of this process, in MB.
#[cfg(target_os = "linux")]
fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096 / 1_000_000
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn lists_that_nobody_reads_take_little_memory() {
    let _memory = MEMORY.write().await;
    let world = world(100).await;
    let data = "x".repeat(5_000);
    let objects = (0..2_000).map(|number| {
        let object = json!({"metadata": {"name": format!("c{number}")}, "data": {"text": data}});
        world.admin.create("/api/v1/namespaces/default/configmaps", object)
    });
    join_all(objects).await;
    let before = memory();
    let mut unread = Vec::new();
    for (user, accept) in [
        ("mallory", "application/json"),
        ("root", "application/json"),
        ("root", "application/json;as=Table;v=v1;g=meta.k8s.io"),
    ] {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(0);
        let client = world.http2(&builder).await;
        for _ in 0..150 {
            let mut client = client.clone();
            let mut list = get(user, "/api/v1/configmaps");
            list.headers_mut().insert("Accept", accept.parse().unwrap());
            unread.push(tokio::spawn(async move { client.send_request(list).await }));
        }
    }
    // All of them are served as far as they can be when lists that are read come through.
    for _ in 0..3 {
        assert_eq!(world.get("system:kube-controller-manager", "/api/v1/configmaps").await, 200);
        assert_eq!(world.get("root", "/api/v1/namespaces").await, 200);
        assert_eq!(world.get("", "/livez").await, 200);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < 64, "450 lists of 10 MB that nobody reads take {grown} MB");
    // Users of the same level wait for mallory's seats, but not for long enough to be refused.
    assert_eq!(world.get("alice", "/api/v1/namespaces").await, 200);
    unread.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn slow_bodies_keep_nobody_waiting() {
    let _memory = MEMORY.read().await;
    let world = world(100).await;
    let client = world.client().await;
    let mut slow = Vec::new();
    for number in 0..650 {
        let mut client = client.clone();
        let start = futures::stream::once(async { Ok(Frame::data(Bytes::from_static(b"{"))) });
        let body = futures::StreamExt::chain(start, futures::stream::pending());
        let path = format!("/api/v1/namespaces/default/configmaps?fieldManager=f{number}");
        let post = request("POST", "mallory", &path).header("Content-Type", "application/json");
        let post = post.header("Content-Length", "1000").body(StreamBody::new(body).boxed_unsync()).unwrap();
        slow.push(tokio::spawn(async move { client.send_request(post).await }));
    }
    for _ in 0..10 {
        for user in ["alice", "root", "mallory"] {
            assert_eq!(world.get(user, "/api/v1/nodes").await, 200, "{user}");
        }
    }
    world.admin.create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "beside"}})).await;
    slow.iter().for_each(tokio::task::JoinHandle::abort);
}
