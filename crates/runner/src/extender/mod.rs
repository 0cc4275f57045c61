//! Extenders over HTTP: the scheduler calls an external service with `POST <urlPrefix>/<verb>`.
//!
//! ```text
//!   scheduler core ──Extender──▶ HttpExtender ──wire (text)──▶ connection (HTTP and TLS) ──▶ the service
//! ```

mod connection;
pub(crate) mod manifest;
mod wire;

use std::collections::BTreeMap;

use bayplan_client::HttpClient;
use bayplan_scheduler::config::ExtenderConfig;
use bayplan_scheduler::extender::{Error as Failure, Extender, ExtenderFilterResult, HostPriority, MetaVictims};
use bayplan_scheduler::{Candidate, NodeInfo, PodInfo};
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use crate::effects::BINDING_REQUESTS_MAX;

/// The longest answer that is accepted: 15,000 whole nodes of 32 KiB, three times the largest cluster upstream
/// supports.
const ANSWER_BYTES_MAX: usize = 15_000 * 32 * 1024;

/// Why an extender cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("couldn't build extenders: {url}: {reason}")]
pub struct Error {
    /// The extender's `urlPrefix`.
    url: String,
    /// What is wrong with it.
    #[source]
    reason: Reason,
}

/// What is wrong with the configuration of an extender.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The URL is invalid.
    #[error("not a URL with scheme http or https")]
    Url,
    /// A CA is given together with the insecure flag.
    #[error("specifying a root certificates file with the insecure flag is not allowed")]
    InsecureWithCa,
    /// A file cannot be read.
    #[error("{file}: {error}")]
    File {
        /// The file.
        file: String,
        /// The error of the read.
        error: std::io::Error,
    },
    /// A field is not base64.
    #[error("tlsConfig.{field}: {error}")]
    Base64 {
        /// The field.
        field: &'static str,
        /// The error of the decoder.
        error: base64::DecodeError,
    },
    /// The CA is not PEM.
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    Ca,
    /// The certificates cannot be used.
    #[error("{0}")]
    Tls(Box<bayplan_client::Error>),
    /// With a single thread the runtime would deadlock: the scheduler's thread waits for the answer.
    #[error("extenders need a runtime of several threads")]
    Runtime,
}

/// An extender that is called over HTTP.
pub struct HttpExtender {
    config: ExtenderConfig,
    client: HttpClient,
    runtime: Handle,
    /// Bindings that may be in flight at once, as of those sent to the API server.
    binding_permits: Semaphore,
}

impl HttpExtender {
    /// Prepares the connection; nothing is sent yet. Must be called inside a tokio runtime of several threads: the
    /// scheduler waits for answers on one of them.
    pub fn new(config: ExtenderConfig) -> Result<Self, Error> {
        let failed = |reason| Error { url: config.url_prefix.clone(), reason };
        let runtime = Handle::current();
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Err(failed(Reason::Runtime));
        }
        let connection = connection::of(&config).map_err(failed)?;
        let client = HttpClient::new(&connection).map_err(|error| failed(Reason::Tls(Box::new(error))))?;
        Ok(HttpExtender { config, client, runtime, binding_permits: Semaphore::new(BINDING_REQUESTS_MAX) })
    }

    /// Sends a request and waits for the answer, on a thread that may block.
    fn wait<T>(&self, asking: impl Future<Output = T>) -> T {
        tokio::task::block_in_place(|| self.runtime.block_on(asking))
    }

    /// Sends a request; any status but 200 is an error.
    async fn send(&self, verb: &str, body: String) -> Result<Bytes, Failure> {
        let url = format!("{}/{verb}", self.config.url_prefix.trim_end_matches('/'));
        let post = |reason: &str| Failure::Failed(format!("Post {url:?}: {reason}"));
        let request = Request::post(format!("/{verb}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Bytes::from(body))
            .map_err(|error| post(&error.to_string()))?;
        let exchange = async {
            let answer = self.client.send(request).await.map_err(|error| post(&deepest(&*error)))?;
            if answer.status() != StatusCode::OK {
                let code = answer.status().as_u16();
                return Err(Failure::Failed(format!("failed {verb} with extender at URL {url}, code {code}")));
            }
            let (mut body, mut read) = (answer.into_body(), BytesMut::new());
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(|error| post(&deepest(&*error)))?.into_data() else { continue };
                if read.len() + data.len() > ANSWER_BYTES_MAX {
                    return Err(post("length limit exceeded"));
                }
                read.extend_from_slice(&data);
            }
            Ok(read.freeze())
        };
        tokio::time::timeout(self.config.timeout(), exchange)
            .await
            .unwrap_or_else(|_| Err(post("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")))
    }

    /// Sends a request while a pod is being placed.
    fn request<T>(
        &self,
        verb: &str,
        body: Result<String, wire::Error>,
        read: impl FnOnce(&[u8]) -> Result<T, wire::Error>,
    ) -> Result<T, Failure> {
        let answer = self.wait(self.send(verb, body?))?;
        Ok(read(&answer)?)
    }

    /// Logs an error of an ignorable extender, which the pod's status does not show.
    fn logged<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(error) = &answer
            && self.config.ignorable
        {
            let extender = self.config.name();
            tracing::info!(extender, %error, "Skipping extender as it returned error and has ignorable flag set");
        }
        answer
    }
}

/// The innermost cause, which says what happened rather than where.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

impl From<wire::Error> for Failure {
    fn from(error: wire::Error) -> Self {
        Failure::Failed(error.to_string())
    }
}

impl Extender for HttpExtender {
    fn config(&self) -> &ExtenderConfig {
        &self.config
    }

    fn filter(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<ExtenderFilterResult, Failure> {
        let cached = self.config.node_cache_capable;
        let body = wire::arguments(pod, nodes, cached);
        self.logged(self.request(&self.config.filter_verb, body, |answer| wire::filtered(answer, cached)))
    }

    fn prioritize(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Vec<HostPriority>, Failure> {
        let body = wire::arguments(pod, nodes, self.config.node_cache_capable);
        let answer = self.request(&self.config.prioritize_verb, body, wire::priorities);
        if let Err(error) = &answer {
            tracing::debug!(extender = self.config.name(), %error, "No score given by this extender");
        }
        answer
    }

    fn process_preemption(
        &self,
        pod: &PodInfo,
        candidates: &[Candidate],
    ) -> Result<BTreeMap<String, MetaVictims>, Failure> {
        let body = wire::preemption(pod, candidates, self.config.node_cache_capable);
        self.logged(self.request(&self.config.preempt_verb, body, wire::victims))
    }

    fn bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let _permit = self.binding_permits.acquire().await.expect("it is never closed");
            let answer = self.send(&self.config.bind_verb, wire::binding(pod, node)).await;
            self.logged(answer.and_then(|answer| Ok(wire::bound(&answer)?)))
        })
    }
}
