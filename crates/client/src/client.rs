//! The client: sends [`api::Request`]s to the server of a kubeconfig, or to a service in this process.
//!
//! [`api::Request`]: bayplan_model::api::Request

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_model::api::{Api, Request};
use bayplan_model::status::{Status, reason};
use bayplan_model::trace::SpanContext;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Response, header};
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::bearer_token::{self, BearerToken};
use crate::config::{Config, Error};
use crate::limiter::Limiter;
use crate::metrics::RequestMetrics;
use crate::request::{self, Parts};
use crate::transport::{self, Answer, Body, Transport};

/// Servers give up on a request after 60 s; a client that waits a little longer receives that answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(70);

/// A cheaply cloned connection to an API server; each clone may have its own identity, budget and timeout.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    user_agent: HeaderValue,
    authorization: Option<HeaderValue>,
    token: Option<BearerToken>,
    limiter: Option<Arc<Limiter>>,
    timeout: Option<Duration>,
    /// The server's address, as metrics name it.
    host: Arc<str>,
    metrics: Option<RequestMetrics>,
}

impl Client {
    /// Connects as a kubeconfig says: the given file, else `KUBECONFIG`, else `~/.kube/config`, else the pod's
    /// service account. Must be called inside a tokio runtime.
    pub async fn from_kubeconfig(path: Option<&Path>, context: Option<&str>) -> Result<Self, Error> {
        Self::connect(path, context, None).await
    }

    /// Connects as [`from_kubeconfig`](Self::from_kubeconfig) does, but to the server at `master` if there is one; a
    /// `master` without any kubeconfig is talked to without credentials.
    pub async fn connect(path: Option<&Path>, context: Option<&str>, master: Option<&str>) -> Result<Self, Error> {
        Self::from_config(&Config::load(path, context, master)?)
    }

    /// Connects as a ready configuration says. Must be called inside a tokio runtime.
    pub fn from_config(config: &Config) -> Result<Self, Error> {
        let host = config.server.authority().map_or_else(String::new, ToString::to_string);
        Ok(Self::new(transport::over_network(config)?, &host))
    }

    /// Talks to a service in this process, through the same requests as over the network. Must be called inside a
    /// tokio runtime.
    pub fn from_service<S, B>(service: S) -> Self
    where
        S: tower::Service<http::Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<tower::BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<tower::BoxError>,
    {
        Self::new(transport::in_process(service), "in-process")
    }

    fn new(transport: Transport, host: &str) -> Self {
        let user_agent = HeaderValue::from_static(concat!("bayplan/", env!("CARGO_PKG_VERSION")));
        let host = Arc::from(host);
        Client {
            transport,
            user_agent,
            authorization: None,
            token: None,
            limiter: None,
            timeout: None,
            host,
            metrics: None,
        }
    }

    /// The server's host and port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The same connection under another user agent.
    pub fn with_user_agent(mut self, user_agent: &str) -> Result<Self, Error> {
        self.user_agent = HeaderValue::from_str(user_agent).map_err(|_| Error::Header("the user agent"))?;
        Ok(self)
    }

    /// The same connection with a bearer token as its identity.
    pub fn with_bearer_token(mut self, token: &str) -> Result<Self, Error> {
        self.authorization = Some(bearer_token::header(token)?);
        Ok(self)
    }

    /// The same connection with a bearer token as its identity that may be replaced at any time.
    #[must_use]
    pub fn with_changing_token(mut self, token: &BearerToken) -> Self {
        self.token = Some(token.clone());
        self
    }

    /// The same connection, counted among the requests of another client.
    #[must_use]
    pub fn counted_with(mut self, other: &Client) -> Self {
        self.metrics.clone_from(&other.metrics);
        self
    }

    /// The same connection with a rate limit of its own; without one, nothing is throttled.
    #[must_use]
    pub fn with_limit(mut self, requests_per_second: f64, burst: u32) -> Self {
        self.limiter = Some(Arc::new(Limiter::new(requests_per_second, burst)));
        self
    }

    /// The same connection, giving each call (not watches) at most this long, on both sides.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The same connection, with metrics of its requests.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &RequestMetrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// Reads any path, `/healthz` or discovery for example; `accept` is the `Accept` header.
    pub async fn get(&self, path_and_query: &str, accept: &'static str) -> Result<Bytes, Status> {
        self.exchange(Parts::get(path_and_query.into(), HeaderValue::from_static(accept))).await
    }

    /// Sends a request and collects the answer.
    async fn exchange(&self, mut parts: Parts) -> Result<Bytes, Status> {
        if let Some(timeout) = self.timeout {
            request::push_query(&mut parts.path_and_query, &[("timeout", Cow::Owned(request::go_seconds(timeout)))]);
        }
        let method = parts.method.clone();
        let whole = async {
            let answer = self.send(parts).await?;
            let body = answer.into_body().collect().await.map_err(|e| request::unreachable(&*e))?.to_bytes();
            if let Some(metrics) = &self.metrics {
                metrics.received(method.as_str(), &self.host, body.len());
            }
            Ok(body)
        };
        let timeout = self.timeout.unwrap_or(CALL_TIMEOUT);
        tokio::time::timeout(timeout, whole).await.unwrap_or_else(|_| {
            Err(Status::failure(0, reason::SERVICE_UNAVAILABLE, format!("no answer within {timeout:?}")))
        })
    }

    /// Sends a request; a success is answered with its body still to be read.
    pub(crate) async fn send(&self, parts: Parts) -> Result<Answer, Status> {
        let (method, size) = (parts.method.clone(), parts.body.len());
        if let Some(limiter) = &self.limiter {
            let since = Instant::now();
            limiter.admit().await;
            if let Some(metrics) = &self.metrics {
                metrics.waited(method.as_str(), &self.host, since);
            }
        }
        let since = Instant::now();
        let answer = self.transport.clone().oneshot(self.http_request(parts)?).await;
        if let Some(metrics) = &self.metrics {
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            metrics.answered(method.as_str(), &self.host, code, size, since);
        }
        let answer = answer.map_err(|e| request::unreachable(&*e))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        if let Some(token) = self.token.as_ref().filter(|_| head.status == http::StatusCode::UNAUTHORIZED) {
            token.refuse();
        }
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Err(request::failure(head.status.as_u16(), &head.headers, &body))
    }

    fn http_request(&self, parts: Parts) -> Result<http::Request<Body>, Status> {
        let mut request = http::Request::builder()
            .method(parts.method)
            .uri(parts.path_and_query)
            .header(header::ACCEPT, parts.accept)
            .header(header::USER_AGENT, &self.user_agent);
        if let Some(content_type) = parts.content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some(trace) = parts.trace {
            request = request.header(SpanContext::HEADER, trace.to_header());
        }
        let changing = self.token.as_ref().and_then(BearerToken::header);
        if let Some(authorization) = changing.as_ref().or(self.authorization.as_ref()) {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        request
            .body(Body::from(parts.body))
            .map_err(|error| Status::failure(400, reason::BAD_REQUEST, format!("not a request: {error}")))
    }
}

impl Api for Client {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        Box::pin(self.exchange(request::parts(request)))
    }
}
