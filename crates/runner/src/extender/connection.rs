//! The connection to an extender: its URL, the CA to trust and our client certificate.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bayplan_client::config::{self, Config, Identity};
use bayplan_scheduler::config::{ExtenderConfig, ExtenderTls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};

use super::Reason;

/// Reads certificates and keys, by upstream's rules: content beats files, and without a CA `enableHTTPS` trusts
/// any server.
pub(super) fn of(config: &ExtenderConfig) -> Result<Config, Reason> {
    let url: http::Uri = config.url_prefix.trim_end_matches('/').parse().map_err(|_| Reason::Url)?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(Reason::Url);
    }
    let mut connection = Config::new(url);
    // The whole call has a time limit, and the queue retries a pod that failed.
    connection.connect_timeout = None;
    let tls = config.tls_config.clone().unwrap_or_default();
    let ca = material("caData", &tls.ca_data, &tls.ca_file)?;
    connection.tls.insecure = tls.insecure || (config.enable_https && ca.is_none());
    if let Some(pem) = ca {
        if tls.insecure {
            return Err(Reason::InsecureWithCa);
        }
        connection.tls.authorities = Some(certificates(&pem)?);
    }
    if let Some((certificate, key)) = identity(&tls)? {
        let identity = Identity::from_pem("the client certificate", &certificate, &key);
        connection.tls.identity = Some(identity.map_err(|error| Reason::Tls(Box::new(error)))?);
    }
    if !tls.server_name.is_empty() {
        let name = tls.server_name;
        let invalid = |_| Reason::Tls(Box::new(config::Error::ServerName(name.clone())));
        connection.tls.server_name = Some(ServerName::try_from(name.clone()).map_err(invalid)?);
    }
    Ok(connection)
}

/// A certificate chain and its key, as PEM text.
type CertificateAndKey = (Vec<u8>, Vec<u8>);

/// Our certificate and key; half an identity is none.
fn identity(tls: &ExtenderTls) -> Result<Option<CertificateAndKey>, Reason> {
    let certificate = material("certData", &tls.cert_data, &tls.cert_file)?;
    Ok(certificate.zip(material("keyData", &tls.key_data, &tls.key_file)?))
}

fn material(field: &'static str, data: &str, file: &str) -> Result<Option<Vec<u8>>, Reason> {
    match (data, file) {
        ("", "") => Ok(None),
        ("", file) => std::fs::read(file).map(Some).map_err(|error| Reason::File { file: file.to_owned(), error }),
        (data, _) => BASE64_STANDARD.decode(data).map(Some).map_err(|error| Reason::Base64 { field, error }),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Reason> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = parsed.map_err(|_| Reason::Ca)?;
    if certificates.is_empty() { Err(Reason::Ca) } else { Ok(certificates) }
}
