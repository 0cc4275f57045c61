//! The server's TLS configuration: HTTP/2 and HTTP/1.1, client certificates optional.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};

use super::{Error, Identity, Pki};

/// The protocols offered, preferred first: client-go multiplexes all its watches over one HTTP/2 connection.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The TLS configuration of a server with these certificates.
pub fn server_config(pki: &Pki) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pki)?), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| Error::Tls(error.to_string()))?;
    let (certificate, key) = parse(&pki.server)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(tls)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)
        .map_err(tls)?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    without_resumption(&mut config);
    Ok(Arc::new(config))
}

/// Every connection makes a full handshake: a resumed one would bring back a client certificate unverified. It costs
/// clients little, since they keep their connections, and those of Kubernetes (client-go) never resume.
fn without_resumption(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

/// The root certificates of a client that trusts only this cluster's authority.
pub fn roots(pki: &Pki) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(parse(&pki.authority)?.0).map_err(tls)?;
    Ok(roots)
}

fn parse(identity: &Identity) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), Error> {
    let pem = |error: rustls::pki_types::pem::Error| Error::Tls(error.to_string());
    Ok((
        CertificateDer::from_pem_slice(identity.certificate.as_bytes()).map_err(pem)?,
        PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(pem)?,
    ))
}

fn tls(error: rustls::Error) -> Error {
    Error::Tls(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::Peer;
    use crate::certificates::Names;
    use tokio::io::AsyncWriteExt;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    /// Connects with or without a client certificate; answers the user that the server sees.
    async fn handshake(server: &Pki, client: Option<&Identity>) -> Result<Option<crate::user::User>, String> {
        let acceptor = TlsAcceptor::from(server_config(server).unwrap());
        let builder = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots(server).unwrap());
        let mut config = match client {
            Some(identity) => {
                let (certificate, key) = parse(identity).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (near, far) = tokio::io::duplex(64 * 1024);
        let connect = async move {
            let name = "localhost".try_into().unwrap();
            let mut stream = TlsConnector::from(Arc::new(config)).connect(name, near).await?;
            stream.flush().await?;
            Ok::<_, std::io::Error>(stream)
        };
        let (client, server) = tokio::join!(connect, acceptor.accept(far));
        let server = server.map_err(|error| error.to_string())?;
        let _client = client.map_err(|error| error.to_string())?;
        let (_, session) = server.get_ref();
        assert_eq!(session.alpn_protocol(), Some(&b"h2"[..]));
        let now = jiff::Timestamp::now();
        let peer = session.peer_certificates().map(|chain| Peer::of_chain(chain, now));
        Ok(peer.map(|peer| peer.user(now).unwrap().unwrap().clone()))
    }

    fn pki() -> Pki {
        Pki::in_memory(&Names::standard(None, [10, 96, 0, 1].into()), jiff::Timestamp::now()).unwrap()
    }

    #[tokio::test]
    async fn a_client_certificate_names_its_user_and_is_optional() {
        let pki = pki();
        let admin = handshake(&pki, Some(&pki.admin)).await.unwrap().unwrap();
        assert_eq!((admin.name.as_str(), admin.groups[0].as_str()), ("kubernetes-admin", "system:masters"));
        let scheduler = handshake(&pki, Some(&pki.scheduler)).await.unwrap().unwrap();
        assert_eq!(scheduler.name, "system:kube-scheduler");
        assert_eq!(handshake(&pki, None).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_certificate_of_another_authority_is_refused() {
        let (pki, other) = (pki(), pki());
        assert!(handshake(&pki, Some(&other.admin)).await.is_err());
    }
}
