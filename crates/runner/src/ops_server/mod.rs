//! The operations server (HTTPS): health, metrics and configuration of a running component.
//!
//! ```text
//!   TCP ─▶ TLS (client certificate) ─▶ access (authentication, authorization) ─▶ health │ metrics │ configz
//! ```

pub mod access;
pub mod health;
pub mod peer;
pub mod tls;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bayplan_metrics::{Registry, text};
use bayplan_model::status::{Status, reason};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use jiff::Timestamp;
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use access::Access;
use health::Health;
use peer::Peer;

/// Scrapers and probes are few; more at once wait in the listener's queue.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take for the TLS handshake, and for the head of a request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long open connections may take to end when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// How long a scrape waits for a busy component before it is answered with the last values.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port is in use, or the address is not this machine's.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address and port.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
    /// No certificate can be served.
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

/// Where the server listens, and how.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The address to bind.
    pub address: IpAddr,
    /// The port; 0 for no server at all.
    pub port: u16,
    /// `SO_REUSEPORT`: several processes may share the port.
    pub share_port: bool,
}

impl Listen {
    /// Every address, at this port.
    pub fn everywhere(port: u16) -> Self {
        Listen { address: Ipv4Addr::UNSPECIFIED.into(), port, share_port: false }
    }

    /// Opens the port; none when it is 0.
    pub fn open(&self) -> Result<Option<TcpListener>, Error> {
        if self.port == 0 {
            return Ok(None);
        }
        let address = SocketAddr::new(self.address, self.port);
        let open = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            if self.share_port {
                socket.set_reuseport(true)?;
            }
            // As Go's listeners do: a restart must not wait for the connections of the previous process.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(CONNECTIONS_MAX as u32)
        };
        open().map(Some).map_err(|source| Error::Listen { address, source })
    }
}

/// The HTTP/2 settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Http2 {
    /// Serves HTTP/1.1 only.
    pub disabled: bool,
    /// Streams of one connection at once; 0 leaves it to the server.
    pub streams_max: u32,
}

/// Brings the gauges of a component up to date.
pub type Refresh = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What is served.
#[derive(Clone)]
pub struct Endpoints {
    /// `/healthz`, `/livez`, `/readyz` and `/metrics/slis`.
    pub health: Health,
    /// `/metrics`.
    pub metrics: Registry,
    /// Called before a scrape is answered.
    pub refresh: Option<Refresh>,
    /// `/configz`.
    pub config: Value,
}

struct Shared {
    endpoints: Endpoints,
    access: Access,
    http2: Http2,
    stopping: watch::Sender<bool>,
}

/// A running server.
pub struct OpsServer {
    /// The address it listens on.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

impl OpsServer {
    /// Serves on an open port.
    pub fn start(
        listener: TcpListener,
        tls: Arc<rustls::ServerConfig>,
        http2: Http2,
        access: Access,
        endpoints: Endpoints,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { endpoints, access, http2, stopping: watch::channel(false).0 });
        let serving = tokio::spawn(serve(Arc::clone(&shared), listener, TlsAcceptor::from(tls)));
        Ok(OpsServer { address, shared, serving })
    }

    /// Stops; requests in progress are finished within a limit.
    pub async fn stop(self) {
        self.shared.stopping.send_replace(true);
        let _ = self.serving.await;
    }
}

async fn serve(shared: Arc<Shared>, listener: TcpListener, acceptor: TlsAcceptor) {
    let limit = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut stopping = shared.stopping.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&limit).acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = serve_connection(Arc::clone(&shared), acceptor.clone(), stream);
                connections.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Err(error) => {
                // Most likely out of file descriptors: wait until some are closed.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, ended).await;
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A dropped server has stopped too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

async fn serve_connection(shared: Arc<Shared>, acceptor: TlsAcceptor, stream: TcpStream) {
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let chain = stream.get_ref().1.peer_certificates();
    // By the clock that TLS has verified it by.
    let peer = chain.map(|chain| Arc::new(Peer::of_chain(chain, Timestamp::now())));
    let mut stopping = shared.stopping.subscribe();
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
    builder.http2().timer(TokioTimer::new());
    if shared.http2.streams_max > 0 {
        builder.http2().max_concurrent_streams(shared.http2.streams_max);
    }
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (shared, peer) = (Arc::clone(&shared), peer.clone());
        async move { Ok::<_, Infallible>(answer(&shared, peer.as_deref(), &request).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer(shared: &Shared, peer: Option<&Peer>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (method, path) = (request.method(), request.uri().path());
    if let Err(status) = shared.access.check(peer, request.headers(), method, path).await {
        return refusal(&status);
    }
    route(&shared.endpoints, method, path, request.uri().query().unwrap_or_default()).await
}

async fn route(endpoints: &Endpoints, method: &Method, path: &str, query: &str) -> Response<Full<Bytes>> {
    if let Some((code, body)) = endpoints.health.answer(path, query) {
        return plain(code, body);
    }
    match path {
        "/metrics" if method == Method::DELETE => {
            endpoints.metrics.reset();
            plain(200, "metrics reset\n".into())
        }
        "/metrics" => {
            if let Some(refresh) = &endpoints.refresh {
                let _ = tokio::time::timeout(REFRESH_TIMEOUT, refresh()).await;
            }
            with_type(200, text::CONTENT_TYPE, endpoints.metrics.render())
        }
        "/metrics/slis" => with_type(200, text::CONTENT_TYPE, endpoints.health.slis().render()),
        "/configz" => with_type(200, "application/json", endpoints.config.to_string()),
        _ => plain(404, "404 page not found\n".into()),
    }
}

fn plain(code: u16, body: String) -> Response<Full<Bytes>> {
    with_type(code, "text/plain; charset=utf-8", body)
}

fn refusal(status: &Status) -> Response<Full<Bytes>> {
    let code = if status.is(reason::UNAUTHORIZED) { 401 } else { 403 };
    let body = serde_json::to_string(status).unwrap_or_default();
    with_type(code, "application/json", body)
}

fn with_type(code: u16, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests;
