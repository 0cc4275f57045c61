//! The server's TLS configuration: HTTP/2 and HTTP/1.1, client certificates optional.

use std::sync::Arc;
use std::time::Duration;

use bayplan_listener::crypto_provider;
use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use x509_parser::parse_x509_certificate;

use super::{Error, Identity, Pki};

/// The protocols offered, preferred first: client-go multiplexes all its watches over one HTTP/2 connection.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// PEM, and where it comes from: the flag and the file, for whoever has to correct it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedPem {
    /// `--tls-cert-file /etc/kubernetes/pki/apiserver.crt`, for example.
    pub origin: String,
    /// The text of the file.
    pub text: String,
}

impl NamedPem {
    /// PEM of this origin.
    pub fn new(origin: impl Into<String>, text: impl Into<String>) -> Self {
        NamedPem { origin: origin.into(), text: text.into() }
    }

    fn unusable(&self, why: impl std::fmt::Display) -> Error {
        Error::Unusable { what: self.origin.clone(), why: why.to_string() }
    }

    /// The certificates, of which the first must be valid.
    fn certificates(&self, now: Timestamp) -> Result<Vec<CertificateDer<'static>>, Error> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.text.as_bytes()).collect();
        let certificates = read.map_err(|error| self.unusable(format!("it is not PEM ({error})")))?;
        let Some(first) = certificates.first() else { return Err(self.unusable("it holds no certificate in PEM")) };
        let (_, parsed) = parse_x509_certificate(first)
            .map_err(|error| self.unusable(format!("its certificate cannot be read ({error})")))?;
        let until = parsed.validity().not_after;
        if until.timestamp() < now.as_second() {
            return Err(self.unusable(format!("its certificate has expired ({until})")));
        }
        Ok(certificates)
    }
}

/// What a server's TLS is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServingOptions {
    /// The server's certificate, followed by those of its issuers.
    pub certificate: NamedPem,
    /// The key of that certificate.
    pub key: NamedPem,
    /// Whose certificates are users'.
    pub client_authority: Option<NamedPem>,
    /// Whose certificates are front proxies'.
    pub front_proxy_authority: Option<NamedPem>,
    /// Only TLS 1.3.
    pub tls13_only: bool,
    /// TLS 1.2 cipher suites in IANA's names; all when empty.
    pub cipher_suites: Vec<String>,
    /// Key exchanges by IANA's numbers; all when empty.
    pub curves: Vec<u16>,
    /// HTTP/1.1 only.
    pub without_http2: bool,
}

impl ServingOptions {
    /// A server with the cluster's own certificates.
    pub fn own(pki: &Pki) -> Self {
        ServingOptions {
            certificate: NamedPem::new("the server's certificate", &*pki.server.certificate),
            key: NamedPem::new("the server's key", &*pki.server.key),
            client_authority: Some(NamedPem::new("the cluster's authority", &*pki.authority.certificate)),
            ..ServingOptions::default()
        }
    }
}

/// The keys and certificates of a server at one moment: its own, and those of the authorities it trusts.
pub struct Serving {
    config: Arc<ServerConfig>,
    asking: Arc<ServerConfig>,
    users: Option<Arc<dyn ClientCertVerifier>>,
    front_proxies: Option<Arc<dyn ClientCertVerifier>>,
}

impl Serving {
    /// Reads and checks all of it; a failure names what is wrong and where it comes from.
    pub fn new(options: &ServingOptions, now: Timestamp) -> Result<Self, Error> {
        let provider = crypto_provider(&options.cipher_suites, &options.curves);
        let provider = Arc::new(provider.map_err(|error| Error::Tls(error.to_string()))?);
        let versions = if options.tls13_only { &[&rustls::version::TLS13][..] } else { rustls::ALL_VERSIONS };
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions).map_err(tls)?;
        let chain = options.certificate.certificates(now)?;
        let key = PrivateKeyDer::from_pem_slice(options.key.text.as_bytes())
            .map_err(|error| options.key.unusable(format!("it holds no private key in PEM ({error})")))?;
        let (users, front_proxies) = (&options.client_authority, &options.front_proxy_authority);
        let all: Vec<&NamedPem> = users.iter().chain(front_proxies).collect();
        let with = |verifier: Option<Arc<dyn ClientCertVerifier>>| {
            let builder = match verifier {
                None => builder.clone().with_no_client_auth(),
                Some(verifier) => builder.clone().with_client_cert_verifier(verifier),
            };
            let mut config = builder.with_single_cert(chain.clone(), key.clone_key()).map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    options.key.unusable(format!("it is not the key of {}", options.certificate.origin))
                }
                error => options.certificate.unusable(error),
            })?;
            let protocols = if options.without_http2 { &PROTOCOLS[1..] } else { &PROTOCOLS[..] };
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            without_resumption(&mut config);
            Ok::<_, Error>(Arc::new(config))
        };
        let verifying = if all.is_empty() { None } else { Some(verifier(&all, &provider, now)?) };
        let asking = verifying.clone().map(|verifier| Arc::new(Asking(verifier)) as Arc<dyn ClientCertVerifier>);
        let (config, asking) = (with(verifying)?, with(asking)?);
        let alone = |authority: &Option<NamedPem>| {
            authority.as_ref().map(|authority| verifier(&[authority], &provider, now)).transpose()
        };
        Ok(Serving { config, asking, users: alone(users)?, front_proxies: alone(front_proxies)? })
    }

    /// The configuration of connections on which every certificate has been verified.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// The configuration of connections whose clients prove that they hold the key of a certificate, but not whose it
    /// is: that must be asked of each request, with [`is_user`](Self::is_user).
    pub(crate) fn asking(&self) -> Arc<ServerConfig> {
        self.asking.clone()
    }

    /// True if the chain leads to the authority of users.
    pub(crate) fn is_user(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> bool {
        leads_to(self.users.as_ref(), chain, now)
    }

    /// True if the chain leads to the authority of front proxies.
    pub(crate) fn is_front_proxy(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> bool {
        leads_to(self.front_proxies.as_ref(), chain, now)
    }
}

/// Lets every chain of certificates into a connection, as upstream does: what a foreign or expired one gets is a 401
/// for its requests, which says more than a broken handshake. The key of the certificate is proven all the same.
#[derive(Debug)]
struct Asking(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Asking {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn leads_to(verifier: Option<&Arc<dyn ClientCertVerifier>>, chain: &[CertificateDer<'_>], now: Timestamp) -> bool {
    let (Some(verifier), Some((own, issuers))) = (verifier, chain.split_first()) else { return false };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0)));
    verifier.verify_client_cert(own, issuers, now).is_ok()
}

/// Verifies certificates of these authorities; clients may come without one.
fn verifier(
    authorities: &[&NamedPem],
    provider: &Arc<CryptoProvider>,
    now: Timestamp,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        for certificate in authority.certificates(now)? {
            roots.add(certificate).map_err(|error| authority.unusable(error))?;
        }
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| Error::Tls(error.to_string()))
}

/// The TLS configuration of a server with these certificates.
pub fn server_config(pki: &Pki) -> Result<Arc<ServerConfig>, Error> {
    Ok(Serving::new(&ServingOptions::own(pki), Timestamp::now())?.config())
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
    use rustls::crypto::aws_lc_rs;

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
        Ok(peer.map(|peer| peer.user(now).unwrap().unwrap()))
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

    #[test]
    fn each_wrong_file_is_named_with_what_is_wrong_with_it() {
        let (pki, other) = (pki(), pki());
        let good = ServingOptions::own(&pki);
        let pem = |text: &str| NamedPem::new("--flag /file", text);
        let with = |change: &dyn Fn(&mut ServingOptions)| {
            let mut options = good.clone();
            change(&mut options);
            Serving::new(&options, Timestamp::now()).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(with(&|_| {}), Ok(()));
        type Change<'a> = Box<dyn Fn(&mut ServingOptions) + 'a>;
        let changes: [(Change<'_>, &str); 6] = [
            (Box::new(|options| options.certificate = pem("")), "no certificate"),
            (Box::new(|options| options.certificate = pem(&pki.server.key)), "no certificate"),
            (Box::new(|options| options.key = pem("garbage")), "no private key"),
            (Box::new(|options| options.key = pem(&other.server.key)), "it is not the key of the server's certificate"),
            (Box::new(|options| options.client_authority = Some(pem("garbage"))), "no certificate"),
            (Box::new(|options| options.front_proxy_authority = Some(pem("garbage"))), "no certificate"),
        ];
        for (change, why) in changes {
            let error = with(&*change).unwrap_err();
            assert!(error.starts_with("--flag /file cannot be used: ") && error.contains(why), "{error}");
        }
        let later = Timestamp::from_second(Timestamp::now().as_second() + 400 * 86_400).unwrap();
        let error = Serving::new(&good, later).map(drop).unwrap_err().to_string();
        assert!(error.contains("has expired"), "{error}");
        let error = with(&|options| options.cipher_suites = vec!["TLS_NULL".into()]).unwrap_err();
        assert!(error.contains("TLS_NULL is not supported"), "{error}");
    }

    #[tokio::test]
    async fn a_front_proxys_certificate_makes_no_user_and_a_replaced_authority_is_forgotten_at_once() {
        let (users, proxies) = (pki(), pki());
        let chain = |identity: &Identity| [parse(identity).unwrap().0];
        let serving = |authority: &Pki| {
            let mut options = ServingOptions::own(&users);
            options.client_authority = Some(NamedPem::new("users", &*authority.authority.certificate));
            options.front_proxy_authority = Some(NamedPem::new("proxies", &*proxies.authority.certificate));
            Arc::new(Serving::new(&options, Timestamp::now()).unwrap())
        };
        let (sender, receiver) = tokio::sync::watch::channel(serving(&users));
        let now = Timestamp::now();
        let proxy = Peer::presenting(&chain(&proxies.scheduler), receiver.clone());
        assert!(proxy.user(now).is_err());
        assert_eq!(proxy.front_proxy(now).as_deref(), Some("system:kube-scheduler"));
        let admin = Peer::presenting(&chain(&users.admin), receiver);
        assert_eq!(admin.user(now).unwrap().unwrap().name, "kubernetes-admin");
        assert_eq!(admin.front_proxy(now), None);
        sender.send_replace(serving(&pki()));
        assert!(admin.user(now).is_err());
        assert!(proxy.front_proxy(now).is_some());
    }
}
