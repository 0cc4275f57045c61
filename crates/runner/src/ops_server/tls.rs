//! TLS of the operations server: its certificate, its client CA, versions and cipher suites.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, SanType};
use rustls::RootCertStore;
use rustls::SupportedProtocolVersion;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use tokio::sync::watch;

/// Why no certificate can be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A file has no usable certificate or key.
    #[error("{what} cannot be used: {why}")]
    Unusable {
        /// File, or the flag that names it.
        what: String,
        /// Reason that the user reads.
        why: String,
    },
    /// A cipher suite or key exchange that is unknown or not supported.
    #[error(transparent)]
    Unsupported(#[from] bayplan_listener::Unsupported),
}

/// The TLS settings.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The name of self-signed certificates, and of their files.
    pub name: String,
    /// Certificate and key, when there are any.
    pub files: Option<(PathBuf, PathBuf)>,
    /// Where self-signed certificates are kept; nowhere when absent.
    pub folder: Option<PathBuf>,
    /// The CA of client certificates, as PEM.
    pub client_authorities: Vec<String>,
    /// Only TLS 1.3.
    pub tls13_only: bool,
    /// TLS 1.2 cipher suites in IANA's names; all when empty.
    pub cipher_suites: Vec<String>,
    /// Key exchanges by IANA's numbers; all when empty.
    pub curves: Vec<u16>,
    /// HTTP/1.1 only.
    pub without_http2: bool,
}

/// How often the files are looked at. They are small and two, and what is replaced counts a second later.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The server's TLS configuration, made again when the files of its certificate change. What cannot be used is logged,
/// and the last that could stays.
pub fn renewed(options: Options) -> Result<watch::Receiver<Arc<ServerConfig>>, Error> {
    let (sender, receiver) = watch::channel(server_config(&options)?);
    if let Some(files) = options.files.clone() {
        tokio::spawn(follow(files, options, sender));
    }
    Ok(receiver)
}

async fn follow(files: (PathBuf, PathBuf), options: Options, sender: watch::Sender<Arc<ServerConfig>>) {
    let read = || (std::fs::read(&files.0).ok(), std::fs::read(&files.1).ok());
    let mut seen = read();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
            () = sender.closed() => return,
        }
        let found = read();
        if found == seen {
            continue;
        }
        seen = found;
        match server_config(&options) {
            Ok(config) => {
                sender.send_replace(config);
                tracing::info!("the certificate of the secure port was replaced");
            }
            Err(error) => tracing::error!(%error, "a new certificate is not served, the old one stays"),
        }
    }
}

/// The server's TLS configuration.
pub fn server_config(options: &Options) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(bayplan_listener::crypto_provider(&options.cipher_suites, &options.curves)?);
    let versions: &[&SupportedProtocolVersion] =
        if options.tls13_only { &[&rustls::version::TLS13] } else { rustls::ALL_VERSIONS };
    let unusable = |what: &str| {
        let what = what.to_owned();
        move |why: &dyn std::fmt::Display| Error::Unusable { what, why: why.to_string() }
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| unusable("the TLS version")(&error))?;
    let roots = roots(&options.client_authorities)?;
    let builder = if roots.is_empty() {
        builder.with_no_client_auth()
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| unusable("the client authority")(&error))?;
        builder.with_client_cert_verifier(verifier)
    };
    let (chain, key) = identity(options)?;
    let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable("the certificate")(&error))?;
    config.alpn_protocols = match options.without_http2 {
        true => vec![b"http/1.1".to_vec()],
        false => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    // Every connection makes a full handshake: a resumed one would bring back a client certificate unverified. Probes
    // and scrapers are few and keep their connections.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn roots(authorities: &[String]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let refuse = |why: String| Error::Unusable { what: "the client authority".into(), why };
    for pem in authorities {
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
            roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
        }
    }
    Ok(roots)
}

type CertifiedKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The configured certificate, the one kept by an earlier run, or a new one.
fn identity(options: &Options) -> Result<CertifiedKey, Error> {
    if let Some((certificate, key)) = &options.files {
        return load(certificate, key);
    }
    let Some(folder) = &options.folder else {
        let (certificate, key) = self_signed(&options.name)?;
        return parse("the self-signed certificate", certificate.as_bytes(), key.as_bytes());
    };
    let files = [folder.join(format!("{}.crt", options.name)), folder.join(format!("{}.key", options.name))];
    let [certificate_file, key_file] = &files;
    if !certificate_file.exists() || !key_file.exists() {
        let (certificate, key) = self_signed(&options.name)?;
        std::fs::create_dir_all(folder).map_err(io("write", folder))?;
        write(key_file, &key, 0o600)?;
        write(certificate_file, &certificate, 0o644)?;
    }
    load(certificate_file, key_file)
}

fn load(certificate: &Path, key: &Path) -> Result<CertifiedKey, Error> {
    let read = |path: &Path| std::fs::read(path).map_err(io("read", path));
    parse(&certificate.display().to_string(), &read(certificate)?, &read(key)?)
}

fn parse(what: &str, certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, Error> {
    let refuse =
        |error: rustls::pki_types::pem::Error| Error::Unusable { what: what.to_owned(), why: error.to_string() };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>().map_err(refuse)?;
    Ok((chain, PrivateKeyDer::from_pem_slice(key).map_err(refuse)?))
}

/// A certificate for this machine alone, as PEM with its key.
fn self_signed(name: &str) -> Result<(String, String), Error> {
    let refuse =
        |error: rcgen::Error| Error::Unusable { what: "the self-signed certificate".into(), why: error.to_string() };
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(refuse)?;
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).map_err(refuse)?;
    params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    params.distinguished_name.push(DnType::CommonName, format!("{name}@localhost"));
    let certificate = params.self_signed(&key).map_err(refuse)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Writes a file of its own, whose name nobody could guess and make first, and puts it in the place of whatever is at
/// `path`: others may be able to write to the folder, and a link there is replaced, never followed.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = (|| {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.persist(path).map(drop).map_err(|error| error.error)
    })();
    written.map_err(io("write", path))
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { action, path, source }
}
