use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

type Tls = TlsStream<TcpStream>;

/// A server whose handler answers `/`, holds `/held` until told, and sends `/endless` bodies.
struct World {
    address: SocketAddr,
    certificate: CertificateDer<'static>,
    release: Arc<tokio::sync::Notify>,
    /// One message for each body of `/endless` that the server gave up.
    given_up: mpsc::UnboundedReceiver<()>,
    _stop: watch::Sender<bool>,
}

struct GivenUp(mpsc::UnboundedSender<()>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

async fn world(limits: Limits) -> World {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
    let certificate = certificate.der().clone();
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    let release = Arc::new(tokio::sync::Notify::new());
    let (tell, given_up) = mpsc::unbounded_channel();
    let held = release.clone();
    let connect: Connect = Arc::new(move |_| {
        let (held, tell) = (held.clone(), tell.clone());
        Arc::new(move |request: Request<RequestBody>| {
            let (held, tell) = (held.clone(), tell.clone());
            Box::pin(async move { answer(request.uri().path(), &held, tell).await })
        })
    });
    tokio::spawn(serve(listener, Arc::new(tls), limits, stopping, connect));
    World { address, certificate, release, given_up, _stop: stop }
}

async fn answer(path: &str, held: &tokio::sync::Notify, tell: mpsc::UnboundedSender<()>) -> Response<ResponseBody> {
    if path == "/held" {
        held.notified().await;
    }
    if !path.starts_with("/endless") {
        return Response::new(Full::new(Bytes::from_static(b"ok")).boxed_unsync());
    }
    let guard = GivenUp(tell);
    let chunks = futures::stream::repeat_with(move || {
        let _held_by_the_body = &guard;
        Ok(http_body::Frame::data(Bytes::from_static(&[b'x'; 16 * 1024])))
    });
    let mut response = Response::new(StreamBody::new(chunks).boxed_unsync());
    if path == "/endless/soon" {
        response.extensions_mut().insert(SendBy::new(Instant::now() + Duration::from_millis(100)));
    }
    response
}

impl World {
    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn tls(&self, protocol: &[u8]) -> Tls {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect("localhost".try_into().unwrap(), self.tcp().await).await.unwrap()
    }

    async fn http1(&self) -> http1::SendRequest<Empty<Bytes>> {
        let (sender, connection) = http1::handshake(TokioIo::new(self.tls(b"http/1.1").await)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// A client that takes nothing of any response's body.
    async fn http2_that_reads_nothing(&self) -> http2::SendRequest<Empty<Bytes>> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).initial_stream_window_size(0);
        let (sender, connection) = builder.handshake(TokioIo::new(self.tls(b"h2").await)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    async fn get(&self) -> String {
        text(self.http1().await.send_request(request("/")).await.unwrap()).await
    }
}

fn request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("https://localhost{path}")).header("host", "localhost").body(Empty::new()).unwrap()
}

async fn text(response: Response<RequestBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Waits until the server closes a connection.
async fn closed(mut stream: impl tokio::io::AsyncRead + Unpin) {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
}

const SOON: Duration = Duration::from_millis(100);
const NEVER: Duration = Duration::from_secs(3600);

/// Limits that are never reached.
fn lasting(connections_max: usize) -> Limits {
    Limits {
        handshake: NEVER,
        first_request: NEVER,
        head: NEVER,
        idle: NEVER,
        write_stall: NEVER,
        ping_interval: NEVER,
        ..Limits::new(connections_max)
    }
}

#[tokio::test]
async fn silent_connections_make_room_for_clients_that_work() {
    let world = world(lasting(20)).await;
    let (mut silent, mut connected) = (Vec::new(), Vec::new());
    for number in 0..60 {
        // Some stop before the handshake, some after it.
        silent.push(world.tcp().await);
        if number % 2 == 0 {
            let (tcp, _) = world.tls(b"h2").await.into_inner();
            connected.push(tcp);
            assert_eq!(world.get().await, "ok");
        }
    }
    assert_eq!(world.get().await, "ok");
    // Those before their handshake had to go first, the oldest before the others.
    for stream in silent.drain(..50) {
        closed(stream).await;
    }
}

#[tokio::test]
async fn a_request_in_flight_is_never_cut_to_make_room() {
    let world = world(lasting(2)).await;
    let mut working = world.http1().await;
    let held = tokio::spawn(working.send_request(request("/held")));
    let silent = world.tls(b"http/1.1").await;
    assert_eq!(world.get().await, "ok");
    closed(silent).await;
    world.release.notify_one();
    assert_eq!(text(held.await.unwrap().unwrap()).await, "ok");
}

#[tokio::test]
async fn a_client_that_was_used_is_closed_after_those_that_never_were() {
    let world = world(lasting(3)).await;
    let mut used = world.http1().await;
    assert_eq!(text(used.send_request(request("/")).await.unwrap()).await, "ok");
    let silent = [world.tls(b"h2").await, world.tls(b"h2").await];
    assert_eq!(world.get().await, "ok");
    assert_eq!(world.get().await, "ok");
    for stream in silent {
        closed(stream).await;
    }
    assert_eq!(text(used.send_request(request("/")).await.unwrap()).await, "ok");
}

#[tokio::test]
async fn a_client_that_does_not_handshake_is_closed() {
    let world = world(Limits { handshake: SOON, ..lasting(10) }).await;
    closed(world.tcp().await).await;
}

#[tokio::test]
async fn a_client_that_asks_for_nothing_after_the_handshake_is_closed() {
    let world = world(Limits { first_request: SOON, ..lasting(10) }).await;
    for (protocol, sent) in [
        ("http/1.1", ""),
        ("http/1.1", "GET / HT"),
        ("h2", ""),
        ("h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
    ] {
        let mut stream = world.tls(protocol.as_bytes()).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        closed(stream).await;
    }
}

#[tokio::test]
async fn a_second_request_has_its_own_limits() {
    for (limits, sent) in
        [(Limits { idle: SOON, ..lasting(10) }, ""), (Limits { head: SOON, ..lasting(10) }, "GET / HTTP/1.1\r\nHo")]
    {
        let world = world(limits).await;
        let mut stream = world.tls(b"http/1.1").await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "closed before the answer");
        }
        stream.write_all(sent.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        closed(stream).await;
    }
}

#[tokio::test]
async fn a_client_that_stops_reading_is_closed() {
    let mut world = world(Limits { write_stall: SOON, ..lasting(10) }).await;
    let mut stream = world.tls(b"http/1.1").await;
    stream.write_all(b"GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    stream.flush().await.unwrap();
    world.given_up.recv().await.unwrap();
}

#[tokio::test]
async fn a_response_that_is_not_read_by_its_deadline_is_given_up() {
    let mut world = world(Limits { first_request: SOON, ..lasting(10) }).await;
    let mut stream = world.tls(b"http/1.1").await;
    stream.write_all(b"GET /endless/soon HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    stream.flush().await.unwrap();
    world.given_up.recv().await.unwrap();

    let mut client = world.http2_that_reads_nothing().await;
    let unread = client.send_request(request("/endless/soon")).await.unwrap();
    let forgotten = client.send_request(request("/endless")).await.unwrap();
    world.given_up.recv().await.unwrap();
    assert!(unread.into_body().collect().await.is_err(), "the stream was reset");
    // The connection and its other streams go on.
    assert_eq!(client.send_request(request("/")).await.unwrap().status(), 200);
    drop(forgotten);
    world.given_up.recv().await.unwrap();
}

/// How many seconds a stream lasts that is never finished, and of whose response something is taken each second at
/// first.
async fn stream_lasts(deadline: SendBy, taken_for: u64) -> Option<u64> {
    let (done, mut ended) = mpsc::unbounded_channel::<()>();
    let started = Instant::now();
    hyper::rt::Executor::execute(&streams::Streams, async move {
        let _done = done;
        assert!(streams::send_by(&deadline));
        for _ in 0..taken_for {
            tokio::time::sleep(Duration::from_secs(1)).await;
            deadline.taken();
        }
        pending::<()>().await;
    });
    tokio::time::timeout(NEVER, ended.recv()).await.ok().map(|_| started.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_stream_lasts_until_its_deadline_or_until_nothing_is_taken_for_ten_seconds() {
    let after = |seconds| SendBy::new(Instant::now() + Duration::from_secs(seconds));
    assert_eq!(stream_lasts(after(60), 0).await, Some(10));
    assert_eq!(stream_lasts(after(60), 25).await, Some(35));
    assert_eq!(stream_lasts(after(60), 100).await, Some(60));
    assert_eq!(stream_lasts(after(2), 0).await, Some(2));
    let lifted = after(60);
    lifted.lift();
    assert_eq!(stream_lasts(lifted, 0).await, None);
}

#[tokio::test]
async fn a_plain_listener_answers_without_tls_and_closes_silent_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopping) = watch::channel(false);
    let handler: Handler =
        Arc::new(|_| Box::pin(async { Response::new(Full::new(Bytes::from_static(b"plain")).boxed_unsync()) }));
    let limits = Limits { first_request: Duration::from_millis(50), ..Limits::new(10) };
    tokio::spawn(serve_plain(listener, limits, stopping, handler));

    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let answer = sender.send_request(Request::get("/").body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "plain");

    let mut silent = TcpStream::connect(address).await.unwrap();
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0, "it is closed");
}
