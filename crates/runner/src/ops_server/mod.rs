//! The operations server (HTTPS): health, metrics and configuration of a running component.
//!
//! ```text
//!   TCP ─▶ TLS (client certificate) ─▶ access (authentication, authorization) ─▶ health │ metrics │ configz │ pages
//! ```

pub mod access;
pub mod health;
pub mod pod_resources;
pub mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bayplan_listener::{BACKLOG, Handler, Limits, RequestBody};
use bayplan_metrics::{NO_PROFILES, Registry, ZPages, is_profile, text};
use bayplan_model::status::{Status, reason};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use access::{Access, Peer};
use health::Health;
use pod_resources::PodResources;

/// Scrapers and probes are few; when there are more, those that ask for nothing are closed. One that says nothing costs
/// little more than its socket, and the more there is room for, the longer a client has before its place is wanted.
const CONNECTIONS_MAX: usize = 1_024;
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
            socket.listen(BACKLOG)
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
    /// `/metrics/resources`, of a scheduler.
    pub pod_resources: Option<PodResources>,
    /// `/configz`.
    pub config: Value,
    /// `/statusz` and `/flagz`.
    pub pages: ZPages,
}

struct Shared {
    endpoints: Endpoints,
    started: Instant,
    access: Access,
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
        tls: watch::Receiver<Arc<rustls::ServerConfig>>,
        http2: Http2,
        access: Access,
        endpoints: Endpoints,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { endpoints, started: Instant::now(), access, stopping: watch::channel(false).0 });
        let mut limits = Limits::new(CONNECTIONS_MAX);
        if http2.streams_max > 0 {
            limits.streams_max = http2.streams_max;
        }
        let serving = tokio::spawn(serve(Arc::clone(&shared), listener, tls, limits));
        Ok(OpsServer { address, shared, serving })
    }

    /// Stops; requests in progress are finished within a limit.
    pub async fn stop(self) {
        self.shared.stopping.send_replace(true);
        let _ = self.serving.await;
    }
}

/// Serves `/metrics` and `/healthz` without TLS or authentication, as exporters do, until `stopping` is true.
pub fn serve_metrics(
    listener: TcpListener,
    metrics: Arc<Registry>,
    stopping: watch::Receiver<bool>,
) -> BoxFuture<'static, ()> {
    let handler: Handler = Arc::new(move |request| {
        let response = match request.uri().path() {
            "/metrics" => with_type(200, text::CONTENT_TYPE, metrics.render()),
            "/healthz" => plain(200, "ok".into()),
            _ => plain(404, "404 page not found\n".into()),
        };
        Box::pin(async move { response.map(BodyExt::boxed_unsync) })
    });
    bayplan_listener::serve_plain(listener, Limits::new(CONNECTIONS_MAX), stopping, handler)
}

/// The TLS configuration of each moment: its certificate may be replaced.
type TlsConfigs = watch::Receiver<Arc<rustls::ServerConfig>>;

async fn serve(shared: Arc<Shared>, listener: TcpListener, tls: TlsConfigs, limits: Limits) {
    let stopping = shared.stopping.subscribe();
    let connect = Arc::new(move |session: &rustls::ServerConnection| connect(&shared, session));
    bayplan_listener::serve_renewed(listener, tls, limits, stopping, connect).await;
}

/// Answers the requests of one connection, as the user whom its certificate names.
fn connect(shared: &Arc<Shared>, session: &rustls::ServerConnection) -> Handler {
    // By the clock that TLS has verified it by.
    let peer = session.peer_certificates().map(|chain| Arc::new(access::peer(chain, Timestamp::now())));
    let shared = Arc::clone(shared);
    Arc::new(move |request| {
        let (shared, peer) = (Arc::clone(&shared), peer.clone());
        Box::pin(async move { answer(&shared, peer.as_deref(), &request).await.map(BodyExt::boxed_unsync) })
    })
}

async fn answer(shared: &Shared, peer: Option<&Peer>, request: &Request<RequestBody>) -> Response<Full<Bytes>> {
    let (method, path) = (request.method(), request.uri().path());
    if let Err(status) = shared.access.check(peer, request.headers(), method, path).await {
        return refusal(&status);
    }
    if let Some(page) = shared.endpoints.pages.answer(path, shared.started.elapsed()) {
        return plain(200, page);
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
        "/metrics/resources" if endpoints.pod_resources.is_some() && method == Method::DELETE => {
            // Nothing is kept from scrape to scrape.
            plain(200, "metrics reset\n".into())
        }
        "/metrics/resources" => pod_resources(endpoints).await,
        "/metrics/slis" => with_type(200, text::CONTENT_TYPE, endpoints.health.slis().render()),
        _ if is_profile(path) => plain(501, NO_PROFILES.into()),
        "/configz" => with_type(200, "application/json", endpoints.config.to_string()),
        _ => plain(404, "404 page not found\n".into()),
    }
}

async fn pod_resources(endpoints: &Endpoints) -> Response<Full<Bytes>> {
    let Some(resources) = &endpoints.pod_resources else { return plain(404, "404 page not found\n".into()) };
    match resources.scrape().await {
        Some(metrics) => with_type(200, text::CONTENT_TYPE, metrics),
        None => plain(503, "the scheduler is busy, try again\n".into()),
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
