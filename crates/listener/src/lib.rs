//! Accepts connections, with TLS or on loopback without, and serves HTTP/1.1 and HTTP/2 on them, with a limit on
//! everything that a client can hold.
//!
//! ```text
//!   TCP ─▶ table (room for one more?) ─▶ TLS, in turns ─▶ HTTP ─▶ handler ─▶ response, sent by its deadline
//!            └─ full: the connections that came least far and have been without a request longest are closed
//! ```
//!
//! A client holds a connection only while it uses it. Each phase has a time limit ([`Limits`]), and when connections
//! run out, those without a request in flight make room, so that silent clients cannot keep others out.

mod client_certificate;
mod connection;
mod crypto;
mod file_limit;
mod io;
mod streams;
mod table;
#[cfg(test)]
mod tests;
mod turns;
mod upgrade;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

pub use client_certificate::{ClientCertificate, Refused, Subject};
pub use crypto::{Unsupported, crypto_provider};
pub use file_limit::raise_file_limit;
pub use streams::SendBy;
use table::{Place, Table};
use turns::Turns;
pub use upgrade::{Upgrade, UpgradedStream};

/// How long open connections may last after the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// How long to wait before connections are looked through again when all of them have a request in flight.
const FULL_RETRY: Duration = Duration::from_millis(50);
/// How long to wait after the system refused a connection, most likely for want of file handles.
const ACCEPT_RETRY: Duration = Duration::from_millis(10);

/// How many connections the system keeps for a listener until it accepts them, as Go's programs ask for on Linux. A
/// client that finds no room tries again only after a second.
pub const BACKLOG: u32 = 4096;

/// The body of a request from the network.
pub type RequestBody = hyper::body::Incoming;
/// The body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;
/// Answers the requests of one connection.
pub type Handler = Arc<dyn Fn(Request<RequestBody>) -> BoxFuture<'static, Response<ResponseBody>> + Send + Sync>;

/// What a client may hold, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most open connections, further limited by the file handles of the process.
    pub connections_max: usize,
    /// The longest TLS handshake.
    pub handshake: Duration,
    /// From the handshake to the end of the first request's head.
    pub first_request: Duration,
    /// From the first byte of a later request to the end of its head (HTTP/1.1).
    pub head: Duration,
    /// The longest time between two requests.
    pub idle: Duration,
    /// How long a client may read nothing while data waits for it.
    pub write_stall: Duration,
    /// How often a silent HTTP/2 client is asked whether it is there.
    pub ping_interval: Duration,
    /// How long it may take to answer.
    pub ping_timeout: Duration,
    /// The most streams of an HTTP/2 connection at once.
    pub streams_max: u32,
}

impl Limits {
    /// The limits of a server with at most this many connections.
    ///
    /// A head is at most some KiB, so 10 s is generous for it, and for a handshake. Idle connections last 90 s, as long
    /// as Go's clients keep theirs, and as upstream. A client that reads nothing for 60 s, upstream's longest
    /// request, is gone. 1,000 streams are upstream's default.
    pub const fn new(connections_max: usize) -> Limits {
        Limits {
            connections_max,
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(10),
            head: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            write_stall: Duration::from_secs(60),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(15),
            streams_max: 1000,
        }
    }

    /// No limit can be passed unnoticed for longer than this, because none is shorter.
    fn shortest(&self) -> Duration {
        self.first_request.min(self.head).min(self.idle).min(self.write_stall)
    }
}

/// What serves the connections of a listener: called once for each, after its handshake.
pub type Connect = Arc<dyn Fn(&rustls::ServerConnection) -> Handler + Send + Sync>;

/// How a listener's connections become sessions.
#[derive(Clone)]
struct Handshakes {
    /// The latest configuration: each new connection takes the one of its moment.
    tls: watch::Receiver<Arc<rustls::ServerConfig>>,
    turns: Arc<Turns>,
}

impl Handshakes {
    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.tls.borrow().clone())
    }
}

/// Serves connections until `stopping` is true, or its sender gone.
pub fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    limits: Limits,
    stopping: watch::Receiver<bool>,
    connect: Connect,
) -> BoxFuture<'static, ()> {
    serve_renewed(listener, watch::channel(tls).1, limits, stopping, connect)
}

/// Serves connections until `stopping` is true, or its sender gone; certificates may be replaced meanwhile, and new
/// connections see the new ones.
pub fn serve_renewed(
    listener: TcpListener,
    tls: watch::Receiver<Arc<rustls::ServerConfig>>,
    limits: Limits,
    stopping: watch::Receiver<bool>,
    connect: Connect,
) -> BoxFuture<'static, ()> {
    let handshakes = Handshakes { tls, turns: Turns::new() };
    Box::pin(accept_all(listener, limits, stopping, move |stream, stopping, place| {
        connection::serve(stream, handshakes.clone(), limits, stopping, connect.clone(), place)
    }))
}

/// Serves connections without TLS: for a listener on loopback, whose clients could not know the certificate.
pub fn serve_plain(
    listener: TcpListener,
    limits: Limits,
    stopping: watch::Receiver<bool>,
    handler: Handler,
) -> BoxFuture<'static, ()> {
    Box::pin(accept_all(listener, limits, stopping, move |stream, stopping, place| {
        connection::serve_plain(stream, limits, stopping, handler.clone(), place)
    }))
}

async fn accept_all<S, F>(listener: TcpListener, limits: Limits, stopping: watch::Receiver<bool>, serve: S)
where
    S: Fn(TcpStream, watch::Receiver<bool>, Place) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let table = Arc::new(Table::new(file_limit::connections_max(limits.connections_max)));
    let mut connections = JoinSet::new();
    let mut stop = stopping.clone();
    loop {
        let stream = tokio::select! {
            stream = next_connection(&listener, &table) => stream,
            () = stopped(&mut stop) => break,
        };
        connections.spawn(serve(stream, stopping.clone(), table.open()));
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_GRACE, ended).await.is_err() {
        tracing::debug!("connections were closed at the end of the shutdown");
    }
}

/// Accepts a connection, once there is room for it.
async fn next_connection(listener: &TcpListener, table: &Table) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                while !table.make_room() {
                    let _ = tokio::time::timeout(FULL_RETRY, table.one_closed()).await;
                }
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                table.close_some();
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A dropped sender means that the server is gone.
    let _ = stopping.wait_for(|stop| *stop).await;
}
