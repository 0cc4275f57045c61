//! How requests reach a server: over connections of our own, or straight into a service of this process.
//!
//! Over one connection of HTTP/2 the system is asked to send, to receive and to wait for many requests at once; servers
//! that only speak HTTP/1.1 get a connection for every request in flight.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

use crate::config::{Authenticator, Config, Current, Error, Identity, Impersonate, Proxy, Tls};
use crate::route::Route;

/// The body of a request.
pub type Body = Full<Bytes>;

/// Where requests go; cheaply cloned.
pub(crate) type Transport = BoxCloneSyncService<Request<Body>, Answer, BoxError>;

/// What comes back, with a body still to be read.
pub type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

type Connections = Pool<HttpsConnector<Route>, Body>;

/// A connection that is idle this long is pinged, as client-go does.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// A ping that is not answered this long ends the connection, as client-go does.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(15);

/// An HTTP client of one server, for what is not an API request.
#[derive(Clone)]
pub struct HttpClient(Transport);

impl HttpClient {
    /// Prepares connections; none is opened yet. Must be called inside a tokio runtime.
    pub fn new(config: &Config) -> Result<Self, Error> {
        Ok(HttpClient(over_network(config)?))
    }

    /// Sends a request whose URI is a path below the server's address.
    pub fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Answer, BoxError>> {
        Box::pin(self.0.clone().oneshot(request.map(Full::new)))
    }
}

/// Connections to the server of a configuration, under its identity.
pub(crate) fn over_network(config: &Config) -> Result<Transport, Error> {
    let authenticator = Authenticator::new(&config.credentials)?;
    let connector = Connector {
        tls: config.tls.clone(),
        uses_tls: config.server.scheme_str() == Some("https"),
        connect_timeout: config.connect_timeout,
        proxy: config.proxy.clone(),
    };
    let connections = connector.connections(config.tls.identity.as_ref())?;
    let server = Server {
        base: config.server.clone(),
        headers: impersonation(&config.impersonate)?,
        authenticator,
        connector,
        connections: Mutex::new((None, connections)),
    };
    Ok(in_process(Network(Arc::new(server))))
}

/// Opens connections as a configuration says.
struct Connector {
    tls: Tls,
    uses_tls: bool,
    connect_timeout: Option<Duration>,
    proxy: Option<Proxy>,
}

impl Connector {
    fn connections(&self, identity: Option<&Identity>) -> Result<Connections, Error> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(self.connect_timeout);
        tcp.set_keepalive(Some(KEEP_ALIVE));
        let tls = self.tls.client_config(identity, self.uses_tls)?;
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let tls = match &self.tls.server_name {
            Some(name) => tls.with_server_name_resolver(FixedServerNameResolver::new(name.clone())),
            None => tls,
        };
        Ok(Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http2_adaptive_window(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .http2_keep_alive_timeout(KEEP_ALIVE_ANSWER)
            .http2_keep_alive_while_idle(true)
            .build(tls.enable_all_versions().wrap_connector(self.route(tcp)?)))
    }

    /// How the server is reached: directly, or through the proxy.
    fn route(&self, tcp: HttpConnector) -> Result<Route, Error> {
        let Some(proxy) = &self.proxy else { return Ok(Route::direct(tcp)) };
        let tls = self.tls.client_config(None, proxy.address.scheme_str() == Some("https"))?;
        Route::through(proxy, tcp, tls, self.connect_timeout)
    }
}

/// A server over the network.
struct Server {
    base: Uri,
    headers: HeaderMap,
    authenticator: Authenticator,
    connector: Connector,
    /// The connections, and the certificate an exec plugin handed out for them.
    connections: Mutex<(Option<Identity>, Connections)>,
}

impl Server {
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let current = self.authenticator.current().await?;
        self.complete(&mut request, &current)?;
        let answer = self.connections(&current)?.request(request).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            self.authenticator.rejected(&current).await;
        }
        Ok(answer)
    }

    /// Puts the server's address, our identity and whom we impersonate into a request.
    fn complete(&self, request: &mut Request<Body>, current: &Current) -> Result<(), BoxError> {
        *request.uri_mut() = below(&self.base, request.uri())?;
        let headers = request.headers_mut();
        if let Some(authorization) = &current.authorization {
            headers.entry(header::AUTHORIZATION).or_insert_with(|| authorization.clone());
        }
        for (name, value) in &self.headers {
            headers.append(name.clone(), value.clone());
        }
        Ok(())
    }

    /// The connections; new ones when an exec plugin handed out another certificate.
    fn connections(&self, current: &Current) -> Result<Connections, Error> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(identity) = &current.identity
            && !connections.0.as_ref().is_some_and(|known| known.is(identity))
        {
            *connections = (Some(identity.clone()), self.connector.connections(Some(identity))?);
        }
        Ok(connections.1.clone())
    }
}

/// A path below a server's address, which may have a path itself.
fn below(base: &Uri, uri: &Uri) -> Result<Uri, http::Error> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut builder = Uri::builder();
    if let Some(scheme) = base.scheme() {
        builder = builder.scheme(scheme.clone());
    }
    if let Some(authority) = base.authority() {
        builder = builder.authority(authority.clone());
    }
    match base.path().trim_end_matches('/') {
        "" => builder.path_and_query(path).build(),
        prefix => builder.path_and_query(format!("{prefix}{path}")).build(),
    }
}

/// The headers that ask a server to act as another user.
fn impersonation(user: &Impersonate) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    let text = |value: &str| HeaderValue::from_str(value).map_err(|_| Error::Header("the user to impersonate"));
    for (name, value) in [("impersonate-user", &user.user), ("impersonate-uid", &user.uid)] {
        if !value.is_empty() {
            headers.insert(HeaderName::from_static(name), text(value)?);
        }
    }
    for group in &user.groups {
        headers.append("impersonate-group", text(group)?);
    }
    for (key, values) in &user.extra {
        let name = HeaderName::try_from(format!("impersonate-extra-{}", crate::request::encoded(key)));
        let name = name.map_err(|_| Error::Header("the user to impersonate"))?;
        for value in values {
            headers.append(name.clone(), text(value)?);
        }
    }
    Ok(headers)
}

/// A server over the network, as a service.
#[derive(Clone)]
struct Network(Arc<Server>);

impl Service<Request<Body>> for Network {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = Arc::clone(&self.0);
        Box::pin(async move { server.send(request).await })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_below_the_servers_address() {
        for (base, expected) in [
            ("https://10.0.0.1:6443", "https://10.0.0.1:6443/api/v1/pods?watch=1"),
            ("https://example/k8s/clusters/c/", "https://example/k8s/clusters/c/api/v1/pods?watch=1"),
        ] {
            let uri = below(&base.parse().unwrap(), &"/api/v1/pods?watch=1".parse().unwrap()).unwrap();
            assert_eq!(uri, expected);
        }
    }

    #[test]
    fn a_user_to_impersonate_is_named_in_headers() {
        let user = Impersonate {
            user: "jane".into(),
            uid: "7".into(),
            groups: vec!["dev".into(), "ops".into()],
            extra: vec![("example.org/scope".into(), vec!["all".into()])],
        };
        let headers = impersonation(&user).unwrap();
        let mut found: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        found.sort();
        assert_eq!(
            found,
            [
                "impersonate-extra-example.org%2fscope: all",
                "impersonate-group: dev",
                "impersonate-group: ops",
                "impersonate-uid: 7",
                "impersonate-user: jane",
            ]
        );
        assert!(impersonation(&Impersonate::default()).unwrap().is_empty());
    }
}
