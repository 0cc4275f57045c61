//! The server: a TLS listener for clients on the network, and the same request path for clients in this process.
//!
//! ```text
//!   TCP ─▶ TLS (client certificate) ─▶ HTTP/1.1 or HTTP/2 ─┐
//!   InProcess { user } ────────────────────────────────────┴─▶ handler ─▶ authn ─▶ authz ─┬─▶ resource ─▶ registry
//!                                                                                        └─▶ non_resource
//! ```

mod handler;
mod health;
mod housekeeping;
mod in_flight;
mod non_resource;
mod resource;
mod response;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bayplan_store::{ReadError, Store};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::admission::AdmissionPlugins;
use crate::authn::{Authenticator, Peer, StaticTokens};
use crate::authz::{Authorizer, PolicyIndex};
use crate::bootstrap::{self, BootstrapOptions};
use crate::registry::{Clock, Registry, ServiceRange};
use crate::serviceaccounts::{KeyError, Tokens};
use crate::user::User;

/// The most open connections; more wait in the listener's queue. Each costs a task, buffers and a TLS session (about
/// 64 KiB).
const CONNECTIONS_MAX: usize = 10_000;
/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long open connections may last after the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// The configuration of a server.
pub struct Config {
    /// Bearer tokens with a fixed identity.
    pub static_tokens: StaticTokens,
    /// The key that signs service account tokens (PKCS #8 PEM, ECDSA P-256).
    pub service_account_key: String,
    /// Serve requests without credentials as `system:anonymous` instead of refusing them.
    pub anonymous: bool,
    /// `host:port` of the server for its clients, published by discovery.
    pub address: String,
    /// The admission plugins that are enabled.
    pub plugins: AdmissionPlugins,
    /// The range of cluster IPs; the first belongs to the `kubernetes` service.
    pub service_range: ServiceRange,
    /// The values in the objects that every cluster starts with.
    pub bootstrap: BootstrapOptions,
    /// The source of the current time.
    pub clock: Clock,
}

impl Config {
    /// A server at an address with this key, the system's clock, and defaults otherwise.
    pub fn new(service_account_key: impl Into<String>, address: SocketAddr) -> Config {
        Config {
            static_tokens: StaticTokens::default(),
            service_account_key: service_account_key.into(),
            anonymous: true,
            address: address.to_string(),
            plugins: AdmissionPlugins::default(),
            service_range: ServiceRange::default(),
            bootstrap: BootstrapOptions {
                advertise_address: address.ip(),
                advertise_port: address.port(),
                client_authority: String::new(),
                aggregate_roles: true,
            },
            clock: Arc::new(Timestamp::now),
        }
    }
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The service account key cannot be used.
    #[error("the service account key cannot be used")]
    Key(#[from] KeyError),
    /// The store cannot be read.
    #[error("the store cannot be read")]
    Store(#[from] ReadError),
    /// The objects that every cluster starts with could not be written.
    #[error("the objects that every cluster starts with could not be written: {0}")]
    Bootstrap(bayplan_model::status::Status),
}

/// The parts of the server that all requests share.
pub(crate) struct Shared {
    pub(crate) registry: Arc<Registry>,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Authorizer,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) address: String,
    pub(crate) in_flight: in_flight::InFlight,
    pub(crate) stopping: watch::Sender<bool>,
}

/// An API server.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
    tasks: Arc<tokio::sync::Mutex<JoinSet<()>>>,
}

impl ApiServer {
    /// Starts a server over a store: feeds the watch caches and writes the objects that every cluster starts with.
    pub async fn new(config: Config, store: Arc<dyn Store>) -> Result<ApiServer, StartError> {
        Self::start(config, store).await
    }

    /// Boxed, as [`accept`](Self::accept) is, so that it is compiled in this crate and not in each that awaits it.
    fn start(config: Config, store: Arc<dyn Store>) -> BoxFuture<'static, Result<ApiServer, StartError>> {
        Self::assemble(config, store).boxed()
    }

    async fn assemble(config: Config, store: Arc<dyn Store>) -> Result<ApiServer, StartError> {
        let tokens = Arc::new(Tokens::new(&config.service_account_key)?);
        let index = Arc::new(PolicyIndex::default());
        let authorizer = Authorizer { index: index.clone() };
        let registry =
            Registry::new(store.clone(), config.clock, config.plugins, config.service_range, authorizer.clone());
        let registry = Arc::new(registry);
        let mut tasks = JoinSet::new();
        for cache in registry.caches() {
            tasks.spawn(cache.clone().feed(store.clone()));
        }
        bootstrap::ensure(&*registry, config.service_range.first(), &config.bootstrap)
            .await
            .map_err(StartError::Bootstrap)?;
        index.load(&*store).await?;
        tasks.spawn(index.clone().follow(store.clone()));
        tasks.spawn(housekeeping::expire_events(registry.clone()));
        tasks.spawn(housekeeping::compact(store));
        let shared = Shared {
            registry,
            authenticator: Authenticator::new(config.static_tokens, tokens.clone(), config.anonymous),
            authorizer,
            tokens,
            address: config.address,
            in_flight: in_flight::InFlight::default(),
            stopping: watch::channel(false).0,
        };
        Ok(ApiServer { shared: Arc::new(shared), tasks: Arc::new(tokio::sync::Mutex::new(tasks)) })
    }

    /// A service for callers in this process, who act as `identity`; requests take the same path as over the network.
    pub fn service(&self, identity: User) -> InProcess {
        InProcess { shared: self.shared.clone(), peer: Some(Arc::new(Peer::Caller(identity))) }
    }

    /// A service for callers without a client certificate: each request carries its own credentials.
    pub fn network_service(&self) -> InProcess {
        InProcess { shared: self.shared.clone(), peer: None }
    }

    /// Serves connections until [`shutdown`](Self::shutdown).
    pub async fn serve(&self, listener: TcpListener, tls: Arc<rustls::ServerConfig>) {
        self.accept(listener, tls).await;
    }

    fn accept(&self, listener: TcpListener, tls: Arc<rustls::ServerConfig>) -> BoxFuture<'_, ()> {
        self.accept_all(listener, tls).boxed()
    }

    async fn accept_all(&self, listener: TcpListener, tls: Arc<rustls::ServerConfig>) {
        let acceptor = TlsAcceptor::from(tls);
        let limit = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut stopping = self.shared.stopping.subscribe();
        let mut connections = JoinSet::new();
        loop {
            let Ok(permit) = limit.clone().acquire_owned().await else { break };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopped(&mut stopping) => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let connection = serve_connection(self.shared.clone(), acceptor.clone(), stream);
                    connections.spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    // Most likely the process is out of file handles: give other connections time to close.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_GRACE, ended).await.is_err() {
            tracing::debug!("connections were closed at the end of the shutdown");
        }
    }

    /// Stops the server: watches end, listeners close, background tasks are dropped.
    pub async fn shutdown(&self) {
        self.shared.stopping.send_replace(true);
        self.tasks.lock().await.shutdown().await;
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A dropped sender means that the server is gone.
    let _ = stopping.wait_for(|stop| *stop).await;
}

async fn serve_connection(shared: Arc<Shared>, acceptor: TlsAcceptor, stream: TcpStream) {
    // Small responses must not wait for more data (Nagle).
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let chain = stream.get_ref().1.peer_certificates();
    // By the clock that TLS has verified it by.
    let peer = chain.map(|chain| Arc::new(Peer::of_chain(chain, Timestamp::now())));
    let mut stopping = shared.stopping.subscribe();
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let (shared, peer) = (shared.clone(), peer.clone());
        async move { Ok::<_, Infallible>(handler::handle(shared, peer, request).await) }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(1000);
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

/// A tower service for callers in this process, with a fixed identity or none.
#[derive(Clone)]
pub struct InProcess {
    shared: Arc<Shared>,
    peer: Option<Arc<Peer>>,
}

impl<B> tower::Service<Request<B>> for InProcess
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (shared, peer) = (self.shared.clone(), self.peer.clone());
        Box::pin(handler::handle(shared, peer, request).map(Ok))
    }
}
