//! TLS towards servers: whom to trust, and which certificate to show.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::Error;

/// Whom to trust, and which certificate to show.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The certificate authorities of servers; the system's when absent.
    pub authorities: Option<Vec<CertificateDer<'static>>>,
    /// Trust any server.
    pub insecure: bool,
    /// The name in the server's certificate; the host of its address when absent.
    pub server_name: Option<ServerName<'static>>,
    /// Who we are.
    pub identity: Option<Identity>,
}

/// A client certificate with its key.
#[derive(Clone, Debug)]
pub struct Identity(Arc<CertifiedKey>);

impl Identity {
    /// Reads a certificate, followed by those of its issuers, and its key; `what` names them in errors.
    pub fn from_pem(what: &str, certificate: &[u8], key: &[u8]) -> Result<Self, Error> {
        let chain = certificates(what, certificate)?;
        let wrong = |reason: String| Error::Certificate { what: what.to_owned(), reason };
        let key =
            PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(format!("its key cannot be read: {error}")))?;
        let certified = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
        Ok(Identity(Arc::new(certified.map_err(|error| wrong(error.to_string()))?)))
    }

    /// Whether both were read at the same time.
    pub(crate) fn is(&self, other: &Identity) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The certificates of a PEM text, at least one.
pub(super) fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |reason: String| Error::Certificate { what: what.to_owned(), reason };
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = parsed.map_err(|error| wrong(error.to_string()))?;
    if certificates.is_empty() { Err(wrong("there is no certificate in it".into())) } else { Ok(certificates) }
}

impl Tls {
    /// The same as rustls understands it; `uses_tls` is false for plain HTTP, which needs no authorities.
    pub(crate) fn client_config(&self, identity: Option<&Identity>, uses_tls: bool) -> Result<ClientConfig, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let unusable = |error: rustls::Error| Error::Certificate { what: "TLS".into(), reason: error.to_string() };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
        let builder = if self.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(TrustAnybody(provider)))
        } else {
            builder.with_root_certificates(self.roots(uses_tls)?)
        };
        Ok(match identity {
            Some(Identity(certified)) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(certified))))
            }
            None => builder.with_no_client_auth(),
        })
    }

    fn roots(&self, uses_tls: bool) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        if let Some(authorities) = &self.authorities {
            for authority in authorities {
                let added = roots.add(authority.clone());
                added.map_err(|error| Error::Certificate {
                    what: "a certificate authority".into(),
                    reason: error.to_string(),
                })?;
            }
        } else if uses_tls {
            let system = rustls_native_certs::load_native_certs();
            if let (true, Some(error)) = (system.certs.is_empty(), system.errors.first()) {
                let what = "the system's list of certificate authorities";
                return Err(Error::Certificate { what: what.into(), reason: error.to_string() });
            }
            roots.add_parsable_certificates(system.certs);
        }
        Ok(roots)
    }
}

/// Verifies signatures, but not whose they are.
#[derive(Debug)]
struct TrustAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
