//! The client's connections to a server of TLS.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bayplan_client::Client;
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server whose certificate is for a name that does not lead to it.
struct Server {
    config: kube::Config,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start(protocols: &[&[u8]]) -> Self {
        let made = rcgen::generate_simple_self_signed(["cluster.example".to_owned()]).unwrap();
        let certificate = CertificateDer::from(made.cert.der().to_vec());
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = Arc::clone(&connections);
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(tls));
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = hyper::service::service_fn(answer);
                    let _ =
                        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
        config.root_cert = Some(vec![certificate.to_vec()]);
        config.tls_server_name = Some("cluster.example".into());
        Server { config, connections }
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let version = if request.version() == Version::HTTP_2 { "2" } else { "1" };
    Ok(Response::new(Full::new(version.into())))
}

/// Which protocol requests came by, first one and then twenty together.
async fn ask(client: &Client) -> Vec<Bytes> {
    let mut answers = vec![client.get("/version", "application/json").await.unwrap()];
    let together = (0..20).map(|_| client.get("/version", "application/json"));
    answers.extend(futures::future::try_join_all(together).await.unwrap());
    answers
}

#[tokio::test]
async fn requests_share_one_connection_when_the_server_can_do_that() {
    let server = Server::start(&[b"h2", b"http/1.1"]).await;
    let client = Client::from_config(server.config).unwrap();
    assert!(ask(&client).await.iter().all(|answer| answer == "2"));
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_without_http2_is_talked_to_all_the_same() {
    let server = Server::start(&[b"http/1.1"]).await;
    let client = Client::from_config(server.config).unwrap();
    assert!(ask(&client).await.iter().all(|answer| answer == "1"));
    assert!(server.connections.load(Ordering::SeqCst) > 1);
}

#[tokio::test]
async fn a_server_is_only_believed_under_its_name() {
    let mut server = Server::start(&[b"h2"]).await;
    server.config.tls_server_name = Some("other.example".into());
    let client = Client::from_config(server.config).unwrap();
    let refused = client.get("/version", "application/json").await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
}

#[tokio::test]
async fn what_cannot_be_connected_to_is_told_at_once() {
    let Server { config, .. } = Server::start(&[b"h2"]).await;
    let refusal = |config: kube::Config| Client::from_config(config).map(|_| ()).unwrap_err().to_string();
    let mut proxy = config.clone();
    proxy.proxy_url = Some("http://127.0.0.1:3128".parse().unwrap());
    assert_eq!(
        refusal(proxy),
        "the kubeconfig names the proxy http://127.0.0.1:3128/; connections through a proxy are not supported"
    );
    let mut unnamed = config;
    unnamed.tls_server_name = Some("not a name".into());
    assert_eq!(
        refusal(unnamed),
        r#"the kubeconfig's tls-server-name "not a name" is neither a DNS name nor an address"#
    );
}
