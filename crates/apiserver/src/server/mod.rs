//! The server: a TLS listener for clients on the network, and the same request path for clients in this process.
//!
//! ```text
//!   TCP ─▶ TLS (client certificate) ─▶ HTTP/1.1 or HTTP/2 ─┐
//!   InProcess { user } ────────────────────────────────────┴─▶ handler ─▶ authn ─▶ authz ─┬─▶ resource ─▶ registry
//!                                                                                        └─▶ non_resource
//! ```

mod awaited;
mod body;
mod flow;
mod handler;
mod health;
mod housekeeping;
mod loopback;
mod metrics;
mod non_resource;
mod report;
mod resource;
mod response;
mod usage;
mod width;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub use bayplan_listener::ResponseBody;
use bayplan_listener::{Handler, Limits};
use bayplan_metrics::ZPages;
use bayplan_model::trace::Tracer;
use bayplan_store::{ReadError, Store};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
pub(crate) use handler::RequestContext;
use http::{Request, Response};
use jiff::Timestamp;
use loopback::Loopback;
pub(crate) use metrics::WatchSeries;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::admission::{AdmissionMetrics, AdmissionPlugins};
use crate::authn::impersonation::LastModes;
use crate::authn::{Accepted, Authenticator, Peer, RequestHeaders, StaticTokens};
use crate::authz::{AuthorizationMode, Authorizer, PolicyIndex};
use crate::bootstrap::{self, BootstrapOptions};
use crate::certificates::tls::Serving;
use crate::measured_store::MeasuredStore;
use crate::registry::{Clock, EVENT_LIFETIME, NODE_PORTS, Registry, ServiceRange, keep_service_addresses};
use crate::serviceaccounts::{KeyError, ServiceAccountOptions, Tokens};
use crate::user::User;

/// The most open connections. Each costs a task, buffers and a TLS session (about 64 KiB).
const CONNECTIONS_MAX: usize = 10_000;

/// The configuration of a server.
pub struct Config {
    /// Bearer tokens with a fixed identity.
    pub static_tokens: StaticTokens,
    /// Accept the bootstrap tokens of `kube-system`.
    pub bootstrap_tokens: bool,
    /// Believe front proxies who their users are.
    pub request_headers: Option<RequestHeaders>,
    /// Who signs and verifies service account tokens.
    pub service_accounts: ServiceAccountOptions,
    /// Who decides about rights, asked in this order.
    pub authorization: Vec<AuthorizationMode>,
    /// Serve requests without credentials as `system:anonymous` instead of refusing them.
    pub anonymous: bool,
    /// `host:port` of the server for its clients, published by discovery.
    pub address: String,
    /// The admission plugins that are enabled.
    pub plugins: AdmissionPlugins,
    /// The range of cluster IPs; the first belongs to the `kubernetes` service.
    pub service_range: ServiceRange,
    /// The ports that services of type `NodePort` get.
    pub node_ports: RangeInclusive<u16>,
    /// How long an event is kept after it was last written.
    pub event_lifetime: Duration,
    /// How many requests are served at once.
    pub seats: usize,
    /// FlowSchemas and priority levels steer which requests are served. Otherwise they are only kept, and requests are
    /// only limited in number.
    pub priority_and_fairness: bool,
    /// The values in the objects that every cluster starts with.
    pub bootstrap: BootstrapOptions,
    /// The most open connections; fewer if the process may not open as many files.
    pub connections_max: usize,
    /// The source of the current time.
    pub clock: Clock,
    /// Where the server's metrics are registered, and what `/metrics` shows.
    pub metrics: bayplan_metrics::Registry,
    /// What `/statusz` and `/flagz` show.
    pub pages: ZPages,
    /// Where spans of requests go, if they are traced.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// Serve `metrics.k8s.io` with what simulated pods use.
    pub simulated_usage: bool,
}

impl Config {
    /// A server at an address with this key, the system's clock, and defaults otherwise.
    pub fn new(service_account_key: impl Into<String>, address: SocketAddr) -> Config {
        Config {
            static_tokens: StaticTokens::default(),
            bootstrap_tokens: false,
            request_headers: None,
            service_accounts: ServiceAccountOptions::new(service_account_key),
            authorization: vec![AuthorizationMode::Rbac],
            anonymous: true,
            address: address.to_string(),
            plugins: AdmissionPlugins::default(),
            service_range: ServiceRange::default(),
            node_ports: NODE_PORTS,
            event_lifetime: EVENT_LIFETIME,
            seats: flow::CONCURRENCY,
            priority_and_fairness: true,
            bootstrap: BootstrapOptions {
                advertise_address: address.ip(),
                advertise_port: address.port(),
                client_authority: String::new(),
                front_proxy: None,
                nobodys_authority: None,
                aggregate_roles: true,
                shared_store: false,
            },
            connections_max: CONNECTIONS_MAX,
            clock: Arc::new(Timestamp::now),
            metrics: bayplan_metrics::Registry::default(),
            pages: ZPages { component: "apiserver", ..ZPages::default() },
            tracer: None,
            simulated_usage: false,
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
    pub(crate) last_modes: LastModes,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) address: String,
    connections_max: usize,
    pub(crate) flow: Arc<flow::FlowControl>,
    pub(crate) usage: Arc<usage::Usage>,
    pub(crate) metrics: Arc<metrics::ServerMetrics>,
    pub(crate) pages: ZPages,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    pub(crate) simulated_usage: bool,
    pub(crate) started: Instant,
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
        let metrics = Arc::new(metrics::ServerMetrics::new(&config.metrics));
        let store: Arc<dyn Store> = Arc::new(MeasuredStore::new(store, &metrics.storage));
        let tokens = Arc::new(Tokens::new(config.service_accounts)?);
        let index = Arc::new(PolicyIndex::default());
        let authorizer = Authorizer::new(index.clone(), config.authorization);
        let mut registry =
            Registry::new(store.clone(), config.clock, config.plugins, config.service_range, authorizer.clone());
        registry.node_ports = config.node_ports;
        registry.event_lifetime = config.event_lifetime;
        registry.admission_metrics = Some(AdmissionMetrics::new(&config.metrics));
        let registry = Arc::new(registry);
        let mut tasks = JoinSet::new();
        for cache in registry.caches() {
            tasks.spawn(cache.clone().feed(store.clone(), metrics.storage.received(cache.kind())));
        }
        let left_by_others = if config.bootstrap.shared_store { store.revision().await? } else { 0 };
        bootstrap::ensure(&*registry, config.service_range.first(), &config.bootstrap)
            .await
            .map_err(StartError::Bootstrap)?;
        let mut address = bootstrap::ServerAddress::new(registry.clone(), &config.bootstrap);
        address.publish().await.map_err(StartError::Bootstrap)?;
        tasks.spawn(address.keep());
        registry.repair_services_at_start().await.map_err(StartError::Bootstrap)?;
        tasks.spawn(keep_service_addresses(registry.clone()));
        index.load(&*store).await?;
        if authorizer.knows_nodes() {
            authorizer.nodes.load_all(&*store).await?;
            tasks.spawn(authorizer.nodes.clone().follow(store.clone()));
        }
        tasks.spawn(index.clone().follow(store.clone()));
        tasks.spawn(housekeeping::expire_events(registry.clone()));
        tasks.spawn(housekeeping::compact(store.clone()));
        let flow = flow::FlowControl::new(config.seats, metrics.flow.clone(), config.priority_and_fairness);
        tasks.spawn(flow.clone().run());
        let follower = match config.priority_and_fairness {
            true => Some(flow::Follower::start(flow.clone(), &*store, left_by_others).await?),
            false => None,
        };
        let accepted = Accepted {
            static_tokens: config.static_tokens,
            bootstrap_tokens: config.bootstrap_tokens,
            request_headers: config.request_headers,
            anonymous: config.anonymous,
        };
        let shared = Arc::new(Shared {
            registry: registry.clone(),
            authenticator: Authenticator::new(accepted, tokens.clone()),
            authorizer,
            last_modes: LastModes::default(),
            tokens,
            address: config.address,
            connections_max: config.connections_max,
            flow,
            usage: Arc::default(),
            metrics,
            pages: config.pages,
            tracer: config.tracer,
            simulated_usage: config.simulated_usage,
            started: Instant::now(),
            stopping: watch::channel(false).0,
        });
        let loopback = Loopback::new(shared.clone());
        if let Some(follower) = follower {
            tasks.spawn(flow::StatusWriter::new(follower.outdated(), loopback.clone()).write());
            tasks.spawn(follower.follow(store));
        }
        tasks.spawn(flow::ensurer::keep(registry, loopback));
        Ok(ApiServer { shared, tasks: Arc::new(tokio::sync::Mutex::new(tasks)) })
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

    fn accept(&self, listener: TcpListener, tls: Arc<rustls::ServerConfig>) -> BoxFuture<'static, ()> {
        let (shared, stopping) = (self.shared.clone(), self.shared.stopping.subscribe());
        let connect = Arc::new(move |session: &rustls::ServerConnection| connect(&shared, session));
        bayplan_listener::serve(listener, tls, Limits::new(self.shared.connections_max), stopping, connect)
    }

    /// Serves connections until [`shutdown`](Self::shutdown). Keys, certificates and authorities may be replaced: new
    /// connections see the new ones, and whom the new authorities do not know is refused from its next request on.
    pub async fn serve_renewed(&self, listener: TcpListener, serving: watch::Receiver<Arc<Serving>>) {
        self.accept_renewed(listener, serving).await;
    }

    fn accept_renewed(&self, listener: TcpListener, serving: watch::Receiver<Arc<Serving>>) -> BoxFuture<'static, ()> {
        let (shared, stopping) = (self.shared.clone(), self.shared.stopping.subscribe());
        let (config, configs) = watch::channel(serving.borrow().asking());
        let mut replaced = serving.clone();
        let pass_on = async move {
            while replaced.changed().await.is_ok() {
                config.send_replace(replaced.borrow_and_update().asking());
            }
            // Nobody replaces them any more; the last stay.
            std::future::pending::<()>().await;
        };
        let connect = Arc::new(move |session: &rustls::ServerConnection| {
            let peer = session.peer_certificates().map(|chain| Arc::new(Peer::presenting(chain, serving.clone())));
            answering(&shared, peer)
        });
        let limits = Limits::new(self.shared.connections_max);
        let serve = bayplan_listener::serve_renewed(listener, configs, limits, stopping, connect);
        Box::pin(async move {
            tokio::select! {
                () = serve => {}
                () = pass_on => {}
            }
        })
    }

    /// Stops the server: watches end, listeners close, background tasks are dropped.
    pub async fn shutdown(&self) {
        self.shared.stopping.send_replace(true);
        self.tasks.lock().await.shutdown().await;
    }
}

/// Answers the requests of one connection, as the user whom its certificate names.
fn connect(shared: &Arc<Shared>, session: &rustls::ServerConnection) -> Handler {
    // By the clock that TLS has verified it by.
    let peer = session.peer_certificates().map(|chain| Arc::new(Peer::of_chain(chain, Timestamp::now())));
    answering(shared, peer)
}

/// Answers the requests of a connection with this peer.
fn answering(shared: &Arc<Shared>, peer: Option<Arc<Peer>>) -> Handler {
    let shared = shared.clone();
    Arc::new(move |request| handler::handle(shared.clone(), peer.clone(), request))
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
