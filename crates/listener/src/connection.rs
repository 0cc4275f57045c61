//! One connection, from its handshake to its end.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::io::Watched;
use crate::streams::{self, SendBy, Streams};
use crate::table::{InFlight, Place, State};
use crate::upgrade::Becoming;
use crate::{Connect, Handler, Handshakes, Limits, RequestBody, ResponseBody, stopped};

/// How much of an HTTP/1.1 response waits in memory to be sent, and the longest head of a request.
const HTTP1_BUFFER: usize = 128 * 1024;
/// How much of the response of an HTTP/2 stream waits in memory to be sent, beyond the chunk that is being sent.
const HTTP2_BUFFER: usize = 64 * 1024;
/// How long a connection that is closed may take to say so.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Serves a connection without TLS to its end.
pub(crate) async fn serve_plain(
    stream: TcpStream,
    limits: Limits,
    stopping: watch::Receiver<bool>,
    handler: Handler,
    place: Place,
) {
    let _ = stream.set_nodelay(true);
    let state = &place.state;
    let stream = Watched { stream, state: state.clone() };
    // Browsers speak HTTP/2 over TLS alone.
    let builder = builder(&limits).http1_only();
    serve_http(stream, builder, true, limits, stopping, handler, state).await;
}

/// Serves a connection to its end.
pub(crate) async fn serve(
    stream: TcpStream,
    handshakes: Handshakes,
    limits: Limits,
    stopping: watch::Receiver<bool>,
    connect: Connect,
    place: Place,
) {
    // Small responses must not wait for more data (Nagle).
    let _ = stream.set_nodelay(true);
    let state = &place.state;
    let handshake = async {
        // Until the client says something it costs no more than its socket.
        stream.readable().await?;
        state.spoke();
        handshakes.turns.step_by_step(handshakes.acceptor().accept(stream)).await
    };
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(limits.handshake, handshake) => handshake,
        () = state.close.notified() => return tracing::debug!("a handshake made room for another connection"),
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let session = stream.get_ref().1;
    let http1 = session.alpn_protocol() != Some(b"h2");
    let handler = connect(session);
    state.connected();
    let stream = Watched { stream, state: state.clone() };
    serve_http(stream, builder(&limits), http1, limits, stopping, handler, state).await;
}

async fn serve_http<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: Watched<S>,
    builder: Builder<Streams>,
    http1: bool,
    limits: Limits,
    mut stopping: watch::Receiver<bool>,
    handler: Handler,
    state: &Arc<State>,
) {
    let becoming = Becoming::default();
    let service = {
        let (state, becoming) = (state.clone(), becoming.clone());
        hyper::service::service_fn(move |request| answer(&handler, &state, &becoming, request))
    };
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let grace = tokio::select! {
        ended = connection.as_mut() => {
            log(ended);
            tokio::select! {
                () = becoming.run() => {}
                () = stopped(&mut stopping) => {}
                () = too_long(state, &limits, http1) => {}
            }
            return;
        }
        () = stopped(&mut stopping) => None,
        () = state.close.notified() => Some("it made room for another connection"),
        () = too_long(state, &limits, http1) => Some("it lasted too long without progress"),
    };
    connection.as_mut().graceful_shutdown();
    let Some(why) = grace else { return log(connection.await) };
    tracing::debug!("a connection is closed: {why}");
    loop {
        match tokio::time::timeout(CLOSE_GRACE, connection.as_mut()).await {
            Ok(ended) => return log(ended),
            // A request that came at the last moment is answered, unless its client does not read the answer.
            Err(_) if !state.idle() && !passed(state.deadline(&limits, http1)) => {}
            Err(_) => return,
        }
    }
}

fn builder(limits: &Limits) -> Builder<Streams> {
    let mut builder = Builder::new(Streams);
    // The time limits of heads are this crate's: hyper's would begin with the end of the last request.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HTTP1_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_send_buf_size(HTTP2_BUFFER)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout);
    builder
}

fn log<E: std::fmt::Display>(ended: Result<(), E>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

fn passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| at <= Instant::now())
}

/// Waits until the connection has passed a limit.
async fn too_long(state: &State, limits: &Limits, http1: bool) {
    loop {
        let deadline = state.deadline(limits, http1);
        if passed(deadline) {
            return;
        }
        let look_again = Instant::now() + limits.shortest();
        tokio::time::sleep_until(deadline.map_or(look_again, |at| at.min(look_again))).await;
    }
}

fn answer(
    handler: &Handler,
    state: &Arc<State>,
    becoming: &Becoming,
    mut request: Request<RequestBody>,
) -> impl Future<Output = Result<Response<Tracked>, Infallible>> + Send + use<> {
    let (in_flight, state) = (state.begin(), state.clone());
    let upgraded = becoming.prepare(&mut request);
    let response = handler(request);
    async move {
        let mut response = response.await;
        upgraded.when_accepted(&mut response, &state);
        let send_by = response.extensions_mut().remove::<SendBy>();
        if let Some(deadline) = &send_by
            && !streams::send_by(deadline)
        {
            state.send_by(deadline.clone());
        }
        Ok(response.map(|body| Tracked { body, send_by, _in_flight: in_flight }))
    }
}

/// A body whose request is in flight until its last byte is taken.
struct Tracked {
    body: ResponseBody,
    send_by: Option<SendBy>,
    _in_flight: InFlight,
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready()
            && let Some(deadline) = &self.send_by
        {
            deadline.taken();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
