//! The test's own clients: requests to one API server, with answers that say what is known of their effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bayplan_client::{Config, HttpClient};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use serde_json::Value;

/// How long a server is asked to take at most: a tenth of what it takes by itself, so that faults fit into minutes.
const SERVER_TIMEOUT: Duration = Duration::from_secs(6);
/// How long an answer is waited for; a server that is paused or cut off gives none.
pub(crate) const CLIENT_TIMEOUT: Duration = Duration::from_secs(12);

/// What is known of a request's effect.
#[derive(Debug)]
pub(crate) enum Reply {
    /// It was carried out.
    Done(Value),
    /// It was refused by a 4xx: it had no effect.
    Refused(u16),
    /// The server answered 5xx: it may have been carried out.
    Failed(u16),
    /// No whole answer came: it may have been carried out, or may still be.
    Unanswered,
}

impl Reply {
    /// The answer, if it was carried out.
    pub(crate) fn done(self) -> Option<Value> {
        match self {
            Reply::Done(value) => Some(value),
            _ => None,
        }
    }
}

/// How many requests there were, by what is known of their effect.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) done: AtomicUsize,
    pub(crate) refused: AtomicUsize,
    pub(crate) failed: AtomicUsize,
    pub(crate) unanswered: AtomicUsize,
}

/// A client of one API server, over a link of its own.
#[derive(Clone)]
pub(crate) struct ApiClient {
    http: HttpClient,
    clock: Instant,
    tally: Arc<Tally>,
}

impl ApiClient {
    /// A client for a configuration; times are counted from `clock`.
    pub(crate) fn new(config: &Config, clock: Instant, tally: &Arc<Tally>) -> ApiClient {
        ApiClient { http: HttpClient::new(config).unwrap(), clock, tally: tally.clone() }
    }

    /// Nanoseconds on the test's one clock.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap()
    }

    /// Sends a request whose answer should come in seconds.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Reply {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}timeout={}s", SERVER_TIMEOUT.as_secs());
        let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let mut request = http::Request::builder().method(method).uri(path).header("Accept", "application/json");
        if body.is_some() {
            request = request.header("Content-Type", content_type);
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let reply = self.exchange(request.body(body).unwrap()).await;
        let count = match reply {
            Reply::Done(_) => &self.tally.done,
            Reply::Refused(_) => &self.tally.refused,
            Reply::Failed(_) => &self.tally.failed,
            Reply::Unanswered => &self.tally.unanswered,
        };
        count.fetch_add(1, Ordering::Relaxed);
        reply
    }

    async fn exchange(&self, request: http::Request<Bytes>) -> Reply {
        let whole = async {
            let answer = self.http.send(request).await.ok()?;
            let code = answer.status().as_u16();
            let body = answer.into_body().collect().await.ok()?.to_bytes();
            Some((code, body))
        };
        match tokio::time::timeout(CLIENT_TIMEOUT, whole).await.ok().flatten() {
            None => Reply::Unanswered,
            Some((200..300, body)) => serde_json::from_slice(&body).map_or(Reply::Unanswered, Reply::Done),
            Some((code @ 400..500, _)) => Reply::Refused(code),
            Some((code, _)) => Reply::Failed(code),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::PATCH, path, Some(body)).await
    }

    /// Opens a watch; its lines are read from the answer's body. None when the server does not take it, with the code
    /// that it gave.
    pub(crate) async fn watch(&self, path: &str) -> Result<bayplan_client::Answer, Option<u16>> {
        let request = http::Request::get(path).header("Accept", "application/json").body(Bytes::new()).unwrap();
        let answer = tokio::time::timeout(CLIENT_TIMEOUT, self.http.send(request)).await;
        let answer = answer.map_err(|_| None)?.map_err(|_| None)?;
        let code = answer.status().as_u16();
        if code == 200 { Ok(answer) } else { Err(Some(code)) }
    }
}

/// The version of an object or of a list.
pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}
