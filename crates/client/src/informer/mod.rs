//! The informer: lists and watches a resource, keeps compact views of its objects, and reports deltas to subscribers.
//!
//! ```text
//!   machine::NextRequest ─▶ driver ─▶ HTTP ─▶ lines ─▶ machine (no IO) ─▶ Delta ─▶ cache, then subscribers
//! ```
//!
//! Each object is decoded once, from the bytes of the answer straight into the caller's view.

mod backoff;
mod lines;
mod machine;
mod wire;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{ListOptions, Resource};
use bayplan_model::delta::Delta;
use bayplan_model::meta::HasMeta;
use bayplan_model::status::Status;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cache::{Cache, IndexFn};
use crate::client::Client;
use crate::request::{self, Parts};
use lines::Lines;
use machine::{Machine, NextRequest, RequestEnd};

/// What an informer sends to a channel.
#[derive(Debug)]
pub enum Event<V> {
    /// An object changed.
    Delta(Delta<Arc<V>>),
    /// Every object of the first complete state has been sent; sent once.
    Synced,
}

impl<V> Clone for Event<V> {
    fn clone(&self) -> Self {
        match self {
            Event::Delta(delta) => Event::Delta(delta.clone()),
            Event::Synced => Event::Synced,
        }
    }
}

/// Which objects an informer follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    resource: Resource,
    namespace: String,
    selectors: ListOptions,
    metadata_only: bool,
}

impl Scope {
    /// Every object of a resource, in all namespaces.
    pub fn all(resource: &Resource) -> Self {
        Scope {
            resource: resource.clone(),
            namespace: String::new(),
            selectors: ListOptions::default(),
            metadata_only: false,
        }
    }

    /// Only those of a namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Only those with these labels, in query form.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.selectors.label_selector = selector.into();
        self
    }

    /// Only those with these fields, in query form.
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        self.selectors.field_selector = selector.into();
        self
    }

    /// Asks for `PartialObjectMetadata` instead of whole objects.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// The request the machine asks for; `timeout` bounds a watch on the server's side.
    fn parts(&self, next: &NextRequest, timeout: Duration) -> Parts {
        let mut path = request::path(&self.resource, &self.namespace, "");
        let mut query = request::selectors(&self.selectors);
        match next {
            NextRequest::List { limit, continue_token } => {
                if *limit > 0 {
                    query.push(("limit", Cow::Owned(limit.to_string())));
                }
                if !continue_token.is_empty() {
                    query.push(("continue", Cow::Borrowed(continue_token)));
                }
            }
            NextRequest::Stream => {
                query.extend(WATCH.map(|(name, value)| (name, Cow::Borrowed(value))));
                query.push(("sendInitialEvents", Cow::Borrowed("true")));
                query.push(("resourceVersionMatch", Cow::Borrowed("NotOlderThan")));
                query.push(("timeoutSeconds", Cow::Owned(timeout.as_secs().to_string())));
            }
            NextRequest::Watch { resource_version } => {
                query.extend(WATCH.map(|(name, value)| (name, Cow::Borrowed(value))));
                query.push(("resourceVersion", Cow::Borrowed(resource_version)));
                query.push(("timeoutSeconds", Cow::Owned(timeout.as_secs().to_string())));
            }
        }
        request::push_query(&mut path, &query);
        Parts::get(path, request::accept(self.metadata_only, matches!(next, NextRequest::List { .. })))
    }
}

const WATCH: [(&str, &str); 2] = [("watch", "true"), ("allowWatchBookmarks", "true")];

/// Watches last between this and twice this, so that the watches of a process do not end together.
const WATCH_TIMEOUT_MIN: Duration = Duration::from_secs(300);

/// How much longer than agreed the driver waits for the server to end a watch; after that the connection is dead.
const WATCH_OVERTIME: Duration = Duration::from_secs(15);

type Subscriber<V> = Box<dyn FnMut(&Delta<Arc<V>>) + Send>;
type VersionSubscriber = Box<dyn FnMut(&str) + Send>;

/// A channel of another type that deltas are sent to.
trait Forward<V>: Send {
    /// Sends a delta; when the channel is full, the answer is the wait for it.
    fn send<'a>(&'a mut self, delta: &Delta<Arc<V>>) -> Option<BoxFuture<'a, ()>>;
}

struct Forwarding<T, F> {
    channel: mpsc::Sender<T>,
    wrap: F,
}

impl<V, T: Send, F: Fn(Delta<Arc<V>>) -> T + Send> Forward<V> for Forwarding<T, F> {
    fn send<'a>(&'a mut self, delta: &Delta<Arc<V>>) -> Option<BoxFuture<'a, ()>> {
        match self.channel.try_send((self.wrap)(delta.clone())) {
            // A closed channel needs nothing any more.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => None,
            Err(mpsc::error::TrySendError::Full(item)) => Some(Box::pin(async {
                let _ = self.channel.send(item).await;
            })),
        }
    }
}

/// The configuration of an informer; [`spawn`](Informer::spawn) starts it.
pub struct Informer<V> {
    client: Client,
    scope: Scope,
    cache: Option<Cache<V>>,
    subscribers: Vec<Subscriber<V>>,
    versions: Vec<VersionSubscriber>,
    channels: Vec<mpsc::Sender<Event<V>>>,
    forwards: Vec<Box<dyn Forward<V>>>,
    resync_min: Option<Duration>,
    jitter: Box<dyn FnMut() -> f64 + Send>,
}

impl<V: DeserializeOwned + HasMeta + Send + Sync + 'static> Informer<V> {
    /// An informer without subscribers.
    pub fn new(client: &Client, scope: Scope) -> Self {
        Informer {
            client: client.clone(),
            scope,
            cache: None,
            subscribers: Vec::new(),
            versions: Vec::new(),
            channels: Vec::new(),
            forwards: Vec::new(),
            resync_min: None,
            jitter: Box::new(crate::clock::fraction),
        }
    }

    /// Keeps a shared cache with these indexes; a second call replaces the first one's cache.
    pub fn cache(&mut self, indexes: &[(&'static str, IndexFn<V>)]) -> Cache<V> {
        let cache = Cache::new(indexes);
        self.cache = Some(cache.clone());
        cache
    }

    /// Calls the function with every delta, in order; it must not block.
    pub fn on_delta(&mut self, subscriber: impl FnMut(&Delta<Arc<V>>) + Send + 'static) {
        self.subscribers.push(Box::new(subscriber));
    }

    /// Calls the function with the version up to which every delta has been reported. It moves without a delta too:
    /// after a list, a bookmark, or an object that could not be decoded.
    pub fn on_version(&mut self, subscriber: impl FnMut(&str) + Send + 'static) {
        self.versions.push(Box::new(subscriber));
    }

    /// Sends every delta to a channel, in order. A full channel slows the watch down; a closed one is dropped.
    pub fn subscribe(&mut self, capacity: usize) -> mpsc::Receiver<Event<V>> {
        let (sender, receiver) = mpsc::channel(capacity);
        self.channels.push(sender);
        receiver
    }

    /// Sends every delta to a channel that may be shared with other informers, in order. A full channel slows the watch
    /// down; a closed one is no concern of the informer.
    pub fn forward<T: Send + 'static>(
        &mut self,
        channel: mpsc::Sender<T>,
        wrap: impl Fn(Delta<Arc<V>>) -> T + Send + 'static,
    ) {
        self.forwards.push(Box::new(Forwarding { channel, wrap }));
    }

    /// Reports every object again, as a delta from itself to itself, at a period of at least this and less than twice
    /// this: what a subscriber missed by a mistake of its own does not stay missed for ever.
    pub fn resync(&mut self, period_min: Duration) {
        self.resync_min = Some(period_min).filter(|period| !period.is_zero());
    }

    /// Takes the randomness of back-off, timeouts and resyncs (in `0.0..1.0`) from elsewhere, for repeatable runs.
    pub fn jitter(&mut self, jitter: impl FnMut() -> f64 + Send + 'static) {
        self.jitter = Box::new(jitter);
    }

    /// Starts the informer; it runs until the handle is dropped.
    pub fn spawn(self) -> RunningInformer {
        let (synced_sender, synced) = watch::channel(false);
        let task = tokio::spawn(self.run(synced_sender));
        RunningInformer { synced, task }
    }

    async fn run(self, synced: watch::Sender<bool>) {
        let Informer { client, scope, cache, subscribers, versions, channels, forwards, resync_min, mut jitter } = self;
        let mut out = Output { cache, subscribers, versions, channels, forwards, synced };
        let mut machine = Machine::<V>::new();
        let mut resync = resync_min.map(|min| Resync::every(min.mul_f64(1.0 + jitter())));
        loop {
            let next = machine.next_request();
            let timeout = WATCH_TIMEOUT_MIN.mul_f64(1.0 + jitter());
            let request = scope.parts(&next, timeout);
            let step = match next {
                NextRequest::List { .. } => list(&client, request, &mut machine, &mut out).await,
                NextRequest::Stream | NextRequest::Watch { .. } => {
                    watch(&client, request, timeout, &mut machine, &mut resync, &mut out).await
                }
            };
            let (delay, error) = machine.end(step, &mut jitter);
            if let Some(error) = error {
                // An informer that is stopped together with its server ends here, without a warning.
                tokio::task::yield_now().await;
                tracing::warn!(resource = %scope.resource.plural, ?delay, "{error}");
            }
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
        }
    }
}

/// Reads one page of a list into the machine.
async fn list<V: DeserializeOwned + HasMeta>(
    client: &Client,
    request: Parts,
    machine: &mut Machine<V>,
    out: &mut Output<V>,
) -> RequestEnd {
    let page = async {
        let answer = client.send(request).await?;
        Ok(answer.into_body().collect().await.map_err(|e| request::unreachable(&*e))?.to_bytes())
    };
    match page.await {
        Ok(page) => {
            let (events, step) = machine.page(&page);
            out.publish(events, machine.version()).await;
            step
        }
        Err(status) => RequestEnd::Refused(status),
    }
}

/// Feeds a watch to the machine until either side ends it.
async fn watch<V: DeserializeOwned + HasMeta>(
    client: &Client,
    request: Parts,
    timeout: Duration,
    machine: &mut Machine<V>,
    resync: &mut Option<Resync>,
    out: &mut Output<V>,
) -> RequestEnd {
    let opening = tokio::time::timeout(timeout, client.send(request)).await;
    let mut body = match opening {
        Ok(Ok(answer)) => answer.into_body(),
        Ok(Err(status)) => return RequestEnd::Refused(status),
        Err(_) => return RequestEnd::Closed { lived: Duration::ZERO },
    };
    let opened = Instant::now();
    let deadline = opened + timeout + WATCH_OVERTIME;
    let mut lines = Lines::default();
    loop {
        let wake = resync.as_ref().map_or(deadline, |resync| resync.due.min(deadline));
        let frame = match tokio::time::timeout_at(wake, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Err(_) if wake < deadline => {
                resync.as_mut().map(Resync::again);
                out.publish(machine.resync(), machine.version()).await;
                continue;
            }
            Ok(Some(Err(error))) => return RequestEnd::Broken(request::unreachable(&*error)),
            Ok(None) | Err(_) => return RequestEnd::Closed { lived: opened.elapsed() },
        };
        let Some(data) = frame.data_ref() else { continue };
        let mut ended = lines.push(data).err().map(RequestEnd::Broken);
        let mut events = Vec::new();
        while let Some(line) = lines.next() {
            if let Err(step) = machine.line(line, &mut events) {
                ended = Some(step);
                break;
            }
        }
        out.publish(events, machine.version()).await;
        if let Some(step) = ended {
            return step;
        }
    }
}

/// When every object is reported again.
struct Resync {
    period: Duration,
    due: Instant,
}

impl Resync {
    fn every(period: Duration) -> Self {
        Resync { period, due: Instant::now() + period }
    }

    fn again(&mut self) {
        self.due = Instant::now() + self.period;
    }
}

/// Where deltas go.
struct Output<V> {
    cache: Option<Cache<V>>,
    subscribers: Vec<Subscriber<V>>,
    versions: Vec<VersionSubscriber>,
    channels: Vec<mpsc::Sender<Event<V>>>,
    forwards: Vec<Box<dyn Forward<V>>>,
    synced: watch::Sender<bool>,
}

impl<V: HasMeta> Output<V> {
    async fn publish(&mut self, events: Vec<Event<V>>, version: Option<&str>) {
        for event in events {
            match &event {
                Event::Delta(delta) => {
                    if let Some(cache) = &self.cache {
                        cache.apply(delta);
                    }
                    self.subscribers.iter_mut().for_each(|subscriber| subscriber(delta));
                    for forward in &mut self.forwards {
                        if let Some(wait) = forward.send(delta) {
                            wait.await;
                        }
                    }
                }
                Event::Synced => {
                    if let Some(cache) = &self.cache {
                        cache.set_synced();
                    }
                }
            }
            let mut closed = false;
            for channel in &self.channels {
                closed |= channel.send(event.clone()).await.is_err();
            }
            if closed {
                self.channels.retain(|channel| !channel.is_closed());
            }
            if matches!(event, Event::Synced) {
                self.synced.send_replace(true);
            }
        }
        if let Some(version) = version {
            self.versions.iter_mut().for_each(|subscriber| subscriber(version));
        }
    }
}

/// A running informer; dropping it stops the informer.
#[must_use = "dropping the handle stops the informer"]
pub struct RunningInformer {
    synced: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl RunningInformer {
    /// Waits until the first complete state has been reported to every subscriber.
    pub async fn synced(&self) {
        // The sender lives as long as the task; when that is gone nothing will ever be synced.
        if self.synced.clone().wait_for(|synced| *synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// True once the first complete state has been reported.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }
}

impl Drop for RunningInformer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why a request failed; the driver logs it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The server refused.
    #[error("{}: {}", failed(.0.code), .0.message)]
    Refused(Status),
    /// The connection broke.
    #[error("the watch broke: {0}")]
    Broken(Status),
    /// The server closed a watch as soon as it was opened.
    #[error("the server closed the watch at once, without any event")]
    ClosedAtOnce,
    /// The history the watch needed is gone.
    #[error("the history after {0} is gone, listing again")]
    Expired(String),
    /// Something was not what the API promises.
    #[error("unreadable {what}: {error}")]
    Unreadable {
        /// A page or a line.
        what: &'static str,
        /// What the decoder said.
        error: serde_json::Error,
    },
}

/// What happened to a request; one that did not reach the server has no code.
fn failed(code: u16) -> String {
    match code {
        0 => "cannot reach the server".to_owned(),
        code => format!("the server refused ({code})"),
    }
}
