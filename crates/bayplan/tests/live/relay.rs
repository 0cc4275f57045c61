//! Servers on loopback between the binary and an API server: they pass bytes on and remember what was asked.

use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, copy_bidirectional, split};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The methods that would be seen if they were sent.
const METHODS: [&str; 7] = ["GET ", "POST ", "PUT ", "PATCH ", "DELETE ", "CONNECT ", "OPTIONS "];

/// A server that passes bytes on.
pub(crate) struct Relay {
    url: String,
    /// Everything that clients sent, as far as it can be read.
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    /// Takes plain HTTP, remembers it, and speaks TLS to the server behind it.
    pub(crate) async fn recording(tls: TlsConnector, server: (&'static str, u16)) -> Relay {
        let (listener, relay) = Relay::bind("127.0.0.1", "http").await;
        let seen = relay.seen.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (tls, seen) = (tls.clone(), seen.clone());
                tokio::spawn(async move {
                    let stream = TcpStream::connect(server).await?;
                    let stream = tls.connect(ServerName::try_from("localhost").unwrap(), stream).await?;
                    record(client, stream, &seen).await
                });
            }
        });
        relay
    }

    /// A proxy that is asked to CONNECT, over TLS when it has an identity: a certificate and its key.
    pub(crate) async fn http_proxy(identity: Option<Vec<u8>>) -> Relay {
        let scheme = if identity.is_some() { "https" } else { "http" };
        let (listener, relay) = Relay::bind("127.0.0.1", scheme).await;
        let (seen, acceptor) = (relay.seen.clone(), identity.map(|identity| acceptor(&identity)));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (seen, acceptor) = (seen.clone(), acceptor.clone());
                tokio::spawn(async move {
                    match acceptor {
                        Some(acceptor) => tunnel(acceptor.accept(client).await?, &seen).await,
                        None => tunnel(client, &seen).await,
                    }
                });
            }
        });
        relay
    }

    /// Passes everything on, at another address.
    pub(crate) async fn plain(address: &str, server: (&'static str, u16)) -> Relay {
        let (listener, relay) = Relay::bind(address, "https").await;
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(
                    async move { copy_bidirectional(&mut client, &mut TcpStream::connect(server).await?).await },
                );
            }
        });
        relay
    }

    async fn bind(address: &str, scheme: &str) -> (TcpListener, Relay) {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        (listener, Relay { url, seen: Arc::default() })
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The first lines of all requests.
    pub(crate) fn requests(&self) -> Vec<String> {
        let seen = String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned();
        let is_request =
            |line: &&str| METHODS.iter().any(|method| line.starts_with(method)) && line.contains(" HTTP/1");
        seen.lines().filter(is_request).map(str::to_owned).collect()
    }
}

/// Passes bytes on in both directions and remembers those of the client.
async fn record(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    seen: &Mutex<Vec<u8>>,
) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = split(server);
    tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 1 << 14];
    loop {
        let count = from_client.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        seen.lock().unwrap().extend_from_slice(&buffer[..count]);
        to_server.write_all(&buffer[..count]).await?;
        to_server.flush().await?;
    }
}

/// Reads a CONNECT, and leads there.
async fn tunnel(mut client: impl AsyncRead + AsyncWrite + Unpin, seen: &Mutex<Vec<u8>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    seen.lock().unwrap().extend_from_slice(&head);
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut server = TcpStream::connect(target).await?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    client.flush().await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

fn acceptor(identity: &[u8]) -> TlsAcceptor {
    let certificates = CertificateDer::pem_slice_iter(identity).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(identity).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
