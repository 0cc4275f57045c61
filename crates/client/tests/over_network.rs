//! The client's connections to a server of TLS.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bayplan_client::config::{Credentials, ExecPlugin, Proxy};
use bayplan_client::{Client, Config};
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
    config: Config,
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
        let mut config = Config::new(format!("https://{address}").parse().unwrap());
        config.tls.authorities = Some(vec![certificate]);
        config.tls.server_name = Some("cluster.example".try_into().unwrap());
        Server { config, connections }
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let header = |name: &str| request.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let text = match request.uri().path() {
        path if path.ends_with("/seen") => format!("{path} {} {}", header("authorization"), header("impersonate-user")),
        "/second-token-only" if header("authorization") == "Bearer 2" => "welcome".to_owned(),
        "/second-token-only" => {
            return Ok(Response::builder().status(401).body(Full::default()).unwrap());
        }
        _ => if request.version() == Version::HTTP_2 { "2" } else { "1" }.to_owned(),
    };
    Ok(Response::new(Full::new(text.into())))
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
    let client = Client::from_config(&server.config).unwrap();
    assert!(ask(&client).await.iter().all(|answer| answer == "2"));
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_without_http2_is_talked_to_all_the_same() {
    let server = Server::start(&[b"http/1.1"]).await;
    let client = Client::from_config(&server.config).unwrap();
    assert!(ask(&client).await.iter().all(|answer| answer == "1"));
    assert!(server.connections.load(Ordering::SeqCst) > 1);
}

#[tokio::test]
async fn a_server_is_only_believed_under_its_name() {
    let mut server = Server::start(&[b"h2"]).await;
    server.config.tls.server_name = Some("other.example".try_into().unwrap());
    let client = Client::from_config(&server.config).unwrap();
    let refused = client.get("/version", "application/json").await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
}

#[tokio::test]
async fn credentials_and_the_servers_path_are_in_every_request() {
    let mut server = Server::start(&[b"h2"]).await;
    server.config.server = format!("{}clusters/c", server.config.server).parse().unwrap();
    server.config.credentials = Credentials::Token("secret".into());
    server.config.impersonate.user = "jane".into();
    let client = Client::from_config(&server.config).unwrap();
    let seen = client.get("/seen", "application/json").await.unwrap();
    assert_eq!(seen, "/clusters/c/seen Bearer secret jane");
}

#[tokio::test]
async fn a_plugin_is_asked_again_after_its_token_was_refused() {
    let mut server = Server::start(&[b"h2"]).await;
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        r#"echo x >> {0}
        printf '{{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
        printf '"status":{{"token":"%s"}}}}' $(wc -l < {0})"#,
        folder.path().join("runs").display()
    );
    server.config.credentials = Credentials::Exec(Box::new(ExecPlugin {
        command: "sh".into(),
        args: Some(vec!["-c".into(), script]),
        api_version: "client.authentication.k8s.io/v1".into(),
        ..ExecPlugin::default()
    }));
    let client = Client::from_config(&server.config).unwrap();
    let refused = client.get("/second-token-only", "application/json").await.unwrap_err();
    assert_eq!(refused.code, 401);
    assert_eq!(client.get("/second-token-only", "application/json").await.unwrap(), "welcome");
    assert_eq!(client.get("/seen", "application/json").await.unwrap(), "/seen Bearer 2 ");
}

#[tokio::test]
async fn a_plugin_that_fails_is_named() {
    let mut server = Server::start(&[b"h2"]).await;
    let plugin = ExecPlugin { command: "/nonexistent/login".into(), ..ExecPlugin::default() };
    server.config.credentials = Credentials::Exec(Box::new(plugin));
    let client = Client::from_config(&server.config).unwrap();
    let failed = client.get("/version", "application/json").await.unwrap_err();
    assert_eq!(failed.message, "the exec plugin \"/nonexistent/login\" failed: No such file or directory (os error 2)");
}

/// A proxy that answers `CONNECT` and remembers what it was asked; it wants to know users if told so.
async fn connect_proxy(wanted: Option<&'static str>) -> (String, Arc<std::sync::Mutex<Vec<String>>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let target = head.split(' ').nth(1).unwrap().to_owned();
                seen.lock().unwrap().push(head.lines().next().unwrap().to_owned());
                let known = wanted.is_none_or(|wanted| head.to_lowercase().contains(&wanted.to_lowercase()));
                if !known {
                    client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
                    return;
                }
                let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, asked)
}

#[tokio::test]
async fn requests_go_through_a_proxy_under_the_servers_own_tls() {
    let mut server = Server::start(&[b"h2"]).await;
    let (proxy, asked) = connect_proxy(Some("proxy-authorization: Basic amFuZTpzZWNyZXQ=")).await;
    server.config.proxy = Some(Proxy::parse("a test", &format!("http://jane:secret@{proxy}")).unwrap());
    let client = Client::from_config(&server.config).unwrap();
    assert!(ask(&client).await.iter().all(|answer| answer == "2"));
    let target = server.config.server.authority().unwrap().to_string();
    assert_eq!(*asked.lock().unwrap(), [format!("CONNECT {target} HTTP/1.1")]);
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_as_the_one_who_does() {
    let mut server = Server::start(&[b"h2"]).await;
    let (proxy, _) = connect_proxy(Some("proxy-authorization: Basic other")).await;
    server.config.proxy = Some(Proxy::parse("a test", &format!("http://jane:secret@{proxy}")).unwrap());
    let client = Client::from_config(&server.config).unwrap();
    let refused = client.get("/version", "application/json").await.unwrap_err().to_string();
    assert!(refused.contains("the proxy does not lead to the server"), "{refused}");
    assert!(!refused.contains("secret"), "{refused}");
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn requests_go_through_a_socks_proxy() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut server = Server::start(&[b"h2"]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut greeting = [0; 3];
        client.read_exact(&mut greeting).await.unwrap();
        assert_eq!(greeting, [5, 1, 0]);
        client.write_all(&[5, 0]).await.unwrap();
        let mut request = [0; 10];
        client.read_exact(&mut request).await.unwrap();
        assert_eq!(request[..8], [5, 1, 0, 1, 127, 0, 0, 1]);
        let port = u16::from_be_bytes([request[8], request[9]]);
        let mut server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0]).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    });
    server.config.proxy = Some(Proxy::parse("a test", &format!("socks5://{address}")).unwrap());
    let client = Client::from_config(&server.config).unwrap();
    assert!(ask(&client).await.iter().all(|answer| answer == "2"));
}
