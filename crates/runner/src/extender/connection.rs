//! The connection to an extender: its URL, the CA to trust and our client certificate, as kube's client takes them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bayplan_scheduler::config::{ExtenderConfig, ExtenderTls};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::Reason;

/// Reads certificates and keys, by upstream's rules: content beats files, and without a CA `enableHTTPS` trusts
/// any server.
pub(super) fn of(config: &ExtenderConfig) -> Result<kube::Config, Reason> {
    let url: http::Uri = config.url_prefix.trim_end_matches('/').parse().map_err(|_| Reason::Url)?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err(Reason::Url);
    }
    let mut connection = kube::Config::new(url);
    // The whole call has a time limit, and the queue retries a pod that failed.
    connection.default_retry = false;
    connection.connect_timeout = None;
    connection.write_timeout = None;
    let tls = config.tls_config.clone().unwrap_or_default();
    let ca = material("caData", &tls.ca_data, &tls.ca_file)?;
    connection.accept_invalid_certs = tls.insecure || (config.enable_https && ca.is_none());
    if let Some(pem) = ca {
        if tls.insecure {
            return Err(Reason::InsecureWithCa);
        }
        connection.root_cert = Some(certificates(&pem)?);
    } else if connection.accept_invalid_certs || connection.cluster_url.scheme_str() == Some("http") {
        // No CA is needed, so a machine without a CA bundle will do.
        connection.root_cert = Some(Vec::new());
    }
    if let Some((certificate, key)) = identity(&tls)? {
        connection.auth_info.client_certificate_data = Some(BASE64_STANDARD.encode(certificate));
        connection.auth_info.client_key_data = Some(BASE64_STANDARD.encode(key).into());
    }
    connection.tls_server_name = Some(tls.server_name).filter(|name| !name.is_empty());
    Ok(connection)
}

/// A certificate chain and its key, as PEM text.
type Identity = (Vec<u8>, Vec<u8>);

/// Our certificate and key; half an identity is none.
fn identity(tls: &ExtenderTls) -> Result<Option<Identity>, Reason> {
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

fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, Reason> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates: Vec<Vec<u8>> = parsed.map_err(|_| Reason::Ca)?.iter().map(|der| der.to_vec()).collect();
    if certificates.is_empty() { Err(Reason::Ca) } else { Ok(certificates) }
}
