//! The connection to etcd: a few calls, each with a deadline, to whichever member answers.

mod errors;
pub(crate) mod proto;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::channel::mpsc;
use http::uri::PathAndQuery;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

pub(crate) use errors::{CallError, NO_SPACE};
use proto::{WatchRequest, WatchResponse};

use crate::options::{ConnectError, Tls};

/// How long a connection may take to come about.
const CONNECT_DEADLINE: Duration = Duration::from_secs(3);
/// How often an idle connection is tried, so that a dead one is noticed. etcd closes connections that ping more often
/// than every 5 s.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long the answer to such a try may take.
const KEEPALIVE_DEADLINE: Duration = Duration::from_secs(5);
/// How long one member may take to answer a call that another could answer.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// How long the first and any later repetition of a call waits.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// The largest answer. Pages are asked for so that they are far smaller; one value has at most a few MiB.
const ANSWER_BYTES_MAX: usize = 512 << 20;
/// What may be on its way without having been read: the product of 100 MB/s and 80 ms.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Commands to a watch that wait to be sent; there is at most a request for progress.
const WATCH_COMMANDS_MAX: usize = 4;

/// A call of etcd's interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    path: &'static str,
    /// What the caller does, for errors.
    step: &'static str,
    /// Whether it may be sent again although it may have been carried out.
    repeatable: bool,
    deadline: Duration,
}

impl Call {
    /// A call with another deadline.
    pub(crate) const fn within(self, deadline: Duration) -> Call {
        Call { deadline, ..self }
    }

    /// A call that says in errors what it is for.
    pub(crate) const fn to(self, step: &'static str) -> Call {
        Call { step, ..self }
    }
}

/// Longer than etcd itself waits for its members (5 s and two elections), so that usually its own words are heard.
const DEADLINE: Duration = Duration::from_secs(10);
/// Reads are answered by the leader or not at all.
const READ_DEADLINE: Duration = Duration::from_secs(5);

const fn call(path: &'static str, step: &'static str, repeatable: bool, deadline: Duration) -> Call {
    Call { path, step, repeatable, deadline }
}

pub(crate) const RANGE: Call = call("/etcdserverpb.KV/Range", "read", true, READ_DEADLINE);
pub(crate) const TXN: Call = call("/etcdserverpb.KV/Txn", "write", false, DEADLINE);
pub(crate) const COMPACT: Call = call("/etcdserverpb.KV/Compact", "compact", true, DEADLINE);
/// A lease that was granted without our hearing of it expires by itself.
pub(crate) const LEASE_GRANT: Call = call("/etcdserverpb.Lease/LeaseGrant", "grant a lease", true, READ_DEADLINE);
pub(crate) const ALARM: Call = call("/etcdserverpb.Maintenance/Alarm", "ask for alarms", true, READ_DEADLINE);
pub(crate) const STATUS: Call = call("/etcdserverpb.Maintenance/Status", "ask for the version", true, READ_DEADLINE);
const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// One member. Streams have a connection of their own, so that they are not held up by large answers.
struct Member {
    address: String,
    calls: Channel,
    streams: Channel,
}

/// The members, and which of them is asked first.
pub(crate) struct Client {
    members: Vec<Member>,
    preferred: AtomicUsize,
}

/// An open watch stream.
pub(crate) struct WatchStream {
    pub(crate) address: String,
    pub(crate) commands: mpsc::Sender<WatchRequest>,
    pub(crate) answers: Streaming<WatchResponse>,
}

impl Client {
    /// Prepares connections; none is made yet.
    pub(crate) fn new(addresses: &[String], tls: Option<&Tls>) -> Result<Client, ConnectError> {
        if addresses.is_empty() {
            return Err(ConnectError::NoAddress);
        }
        let members = addresses.iter().map(|address| member(address, tls)).collect::<Result<_, _>>()?;
        Ok(Client { members, preferred: AtomicUsize::new(0) })
    }

    /// Asks each member once.
    pub(crate) async fn call_each<Q, A>(&self, call: Call, request: Q) -> Vec<Result<A, CallError>>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let attempts = self.members.iter().map(|member| member.attempt(call, request.clone(), call.deadline));
        futures::future::join_all(attempts).await
    }

    /// Asks the member that answered last, then the others. What may be repeated is, until the deadline; what may not
    /// is only sent again if it never left.
    pub(crate) async fn call<Q, A>(&self, call: Call, request: Q) -> Result<A, CallError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let until = Instant::now() + call.deadline;
        let mut backoff = BACKOFF_FIRST;
        loop {
            for position in 0..self.members.len() {
                let preferred = self.preferred.load(Ordering::Relaxed);
                let left = until.saturating_duration_since(Instant::now());
                let alone = self.members.len() == 1 || !call.repeatable;
                let bound = if alone { left } else { left.min(ATTEMPT_MAX) };
                let error = match self.members[preferred].attempt(call, request.clone(), bound).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) if !error.passes() => return Err(error),
                    Err(error) => error,
                };
                self.fail_over(preferred);
                let may_repeat = call.repeatable || matches!(error, CallError::NotSent(_) | CallError::Untrusted(_));
                let last = position + 1 == self.members.len();
                if !may_repeat || Instant::now() + backoff >= until {
                    return Err(error);
                }
                if last {
                    tracing::debug!(%error, "a call to etcd is repeated");
                }
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Asks another member first from now on, unless somebody else has changed that already.
    fn fail_over(&self, failed: usize) {
        let next = (failed + 1) % self.members.len();
        let _ = self.preferred.compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Opens a watch stream at the `attempt`-th member from the preferred one on.
    pub(crate) async fn watch(&self, attempt: usize, first: WatchRequest) -> Result<WatchStream, CallError> {
        let at = (self.preferred.load(Ordering::Relaxed) + attempt) % self.members.len();
        let member = &self.members[at];
        let (mut commands, requests) = mpsc::channel(WATCH_COMMANDS_MAX);
        commands.try_send(first).expect("the channel is new and has room");
        let opened = tokio::time::timeout(READ_DEADLINE, member.open_watch(requests)).await;
        match opened.unwrap_or_else(|_| Err(no_answer(READ_DEADLINE))) {
            Ok(answers) => Ok(WatchStream { address: member.address.clone(), commands, answers }),
            Err(status) => Err(errors::classify("watch", &member.address, &status)),
        }
    }
}

fn no_answer(bound: Duration) -> Status {
    Status::deadline_exceeded(format!("no answer within {:.1} s", bound.as_secs_f64()))
}

impl Member {
    async fn attempt<Q, A>(&self, call: Call, request: Q, bound: Duration) -> Result<A, CallError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut request = Request::new(request);
        // etcd gives up at the same time.
        request.set_timeout(bound);
        let mut grpc = Grpc::new(self.calls.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        let answered = tokio::time::timeout(bound, async {
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            let codec = ProstCodec::<Q, A>::default();
            grpc.unary(request, PathAndQuery::from_static(call.path), codec).await
        });
        match answered.await.unwrap_or_else(|_| Err(no_answer(bound))) {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(errors::classify(call.step, &self.address, &status)),
        }
    }

    async fn open_watch(&self, requests: mpsc::Receiver<WatchRequest>) -> Result<Streaming<WatchResponse>, Status> {
        let mut request = Request::new(requests);
        // etcd ends the stream when the member loses its leader; otherwise it would fall silent.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let mut grpc = Grpc::new(self.streams.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        Ok(grpc.streaming(request, PathAndQuery::from_static(WATCH), codec).await?.into_inner())
    }
}

fn member(address: &str, tls: Option<&Tls>) -> Result<Member, ConnectError> {
    let invalid = |reason: String| ConnectError::Address { address: address.to_owned(), reason };
    let uri: http::Uri = address.parse().map_err(|error| invalid(format!("{error}")))?;
    let secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(invalid("it should begin with http:// or https://".to_owned())),
    };
    if uri.port().is_none() {
        return Err(invalid("it has no port; etcd's is usually 2379".to_owned()));
    }
    let mut endpoint = Endpoint::from(uri)
        .connect_timeout(CONNECT_DEADLINE)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_DEADLINE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    if secure {
        endpoint = endpoint.tls_config(tls_config(tls)).map_err(|error| {
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            ConnectError::Tls(cause)
        })?;
    }
    let (calls, streams) = (endpoint.connect_lazy(), endpoint.connect_lazy());
    Ok(Member { address: address.to_owned(), calls, streams })
}

fn tls_config(tls: Option<&Tls>) -> ClientTlsConfig {
    let mut config = ClientTlsConfig::new();
    match tls.and_then(|tls| tls.ca_pem.as_ref()) {
        Some(pem) => config = config.ca_certificate(Certificate::from_pem(pem)),
        None => config = config.with_native_roots(),
    }
    if let Some((certificate, key)) = tls.and_then(|tls| tls.identity_pem.as_ref()) {
        config = config.identity(Identity::from_pem(certificate, key));
    }
    config
}
