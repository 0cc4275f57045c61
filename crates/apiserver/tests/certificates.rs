//! Client certificates over TLS: they count as long as they are valid, however long a connection lasts.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bayplan_apiserver::certificates::{Identity, Names, Pki, tls};
use bayplan_apiserver::{ApiServer, Config};
use bayplan_store::LogStore;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, HandshakeKind, SupportedProtocolVersion};
use tokio::net::{TcpListener, TcpStream};

const YEAR_SECONDS: i64 = 366 * 24 * 60 * 60;

struct World {
    server: ApiServer,
    pki: Pki,
    address: std::net::SocketAddr,
    /// How far the server's clock is ahead, in seconds.
    ahead: Arc<AtomicI64>,
}

async fn world() -> World {
    let pki = Pki::in_memory(&Names::standard(None, [10, 96, 0, 1].into()), Timestamp::now()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = Config::new(&pki.service_account_key, address);
    config.static_tokens = bayplan_apiserver::StaticTokens::parse("t,tom,u,system:masters\n").unwrap();
    let ahead = Arc::new(AtomicI64::new(0));
    let seconds = ahead.clone();
    let clock = move || Timestamp::from_second(Timestamp::now().as_second() + seconds.load(Ordering::Relaxed));
    config.clock = Arc::new(move || clock().unwrap());
    let server = ApiServer::new(config, Arc::new(LogStore::in_memory().unwrap())).await.unwrap();
    let (serving, tls) = (server.clone(), tls::server_config(&pki).unwrap());
    tokio::spawn(async move { serving.serve(listener, tls).await });
    World { server, pki, address, ahead }
}

impl World {
    fn client(&self, identity: &Identity, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let builder = builder.with_root_certificates(tls::roots(&self.pki).unwrap());
        // Sessions are kept for resumption by default.
        Arc::new(builder.with_client_auth_cert(vec![certificate], key).unwrap())
    }

    async fn connect(&self, client: &Arc<ClientConfig>) -> (SendRequest<Full<Bytes>>, HandshakeKind) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(client.clone());
        let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        let kind = stream.get_ref().1.handshake_kind().unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        (sender, kind)
    }
}

async fn ask(sender: &mut SendRequest<Full<Bytes>>, path: &str, token: &str) -> (u16, String) {
    let mut request = Request::get(path).header("Host", "localhost");
    if !token.is_empty() {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let answer = sender.send_request(request.body(Full::default()).unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn an_expired_certificate_ends_with_its_last_second_and_no_session_brings_it_back() {
    let world = world().await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        world.ahead.store(0, Ordering::Relaxed);
        for identity in [&world.pki.admin, &world.pki.scheduler] {
            let client = world.client(identity, version);
            let (mut open, _) = world.connect(&client).await;
            assert_eq!(ask(&mut open, "/api/v1/nodes", "").await.0, 200);
            world.ahead.store(YEAR_SECONDS, Ordering::Relaxed);
            let (code, body) = ask(&mut open, "/api/v1/nodes", "").await;
            assert_eq!(code, 401, "{body}");
            assert!(body.contains(r#""message":"Unauthorized""#), "{body}");
            // Not even what anonymous users may read.
            assert_eq!(ask(&mut open, "/version", "").await.0, 401);
            assert_eq!(ask(&mut open, "/api/v1/nodes", "t").await.0, 200);
            let (mut again, kind) = world.connect(&client).await;
            assert_eq!(kind, HandshakeKind::Full);
            assert_eq!(ask(&mut again, "/api/v1/nodes", "").await.0, 401);
            world.ahead.store(0, Ordering::Relaxed);
            assert_eq!(ask(&mut again, "/api/v1/nodes", "").await.0, 200);
        }
    }
    world.server.shutdown().await;
}
