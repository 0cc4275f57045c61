//! How requests reach a server: over connections of our own, or straight into a service of this process.
//!
//! kube reads kubeconfigs, identities and TLS settings. Its client is not used for two reasons: it passes every request
//! through a task of its own, which took a fifth of the processor time from a pod's creation to its binding; and it
//! speaks HTTP/1 only, with one connection for each request in flight, where one HTTP/2 connection serves many.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Connections;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use rustls::pki_types::ServerName;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use crate::client::Error;

/// Where requests go; cheaply cloned.
pub(crate) type Transport = BoxCloneSyncService<Request<Body>, Answer, BoxError>;

/// What comes back, with a body still to be read.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A connection that is idle this long is pinged, as client-go does.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// A ping that is not answered this long ends the connection, as client-go does.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(15);

/// Connections to the server of a configuration, under its identity.
pub(crate) fn over_network(config: &kube::Config) -> Result<Transport, Error> {
    let failed = |source: kube::Error| Error::Connect(Box::new(source));
    if let Some(proxy) = &config.proxy_url {
        return Err(Error::Proxy(proxy.to_string()));
    }
    // Another thread may have installed the provider first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    tcp.set_keepalive(Some(KEEP_ALIVE));
    let tls =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config().map_err(failed)?).https_or_http();
    let tls = match &config.tls_server_name {
        Some(name) => {
            let name = ServerName::try_from(name.clone()).map_err(|_| Error::ServerName(name.clone()))?;
            tls.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => tls,
    };
    let connections = Connections::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http2_adaptive_window(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE_ANSWER)
        .http2_keep_alive_while_idle(true)
        .build::<_, Body>(tls.enable_all_versions().wrap_connector(tcp));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(failed)?)
        .layer(config.extra_headers_layer().map_err(failed)?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(in_process(service))
}

/// A service.
pub(crate) fn in_process<S, B>(service: S) -> Transport
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let boxed = |answer: Response<B>| answer.map(|body| body.map_err(Into::into).boxed_unsync());
    BoxCloneSyncService::new(service.map_response(boxed).map_err(Into::into))
}
