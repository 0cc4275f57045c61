//! The server's certificates while it runs: files are read again when they change, and the data folder's own are
//! renewed before they expire.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use bayplan_apiserver::certificates::tls::{NamedPem, Serving, ServingOptions};
use bayplan_apiserver::certificates::{Names, Pki, kubeconfig};
use jiff::Timestamp;
use tokio::sync::watch;

use super::options::text;
use crate::args::apiserver::Authentication;
use crate::args::component::Tls;

/// How often the files are looked at. They are small and few, and what is replaced counts a second later.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How often the data folder's own certificates are looked at, which are renewed a month before they expire.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The files of keys and certificates, and what else TLS is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServingFiles {
    certificate: Option<(PathBuf, PathBuf)>,
    client_authority: Option<PathBuf>,
    front_proxy_authority: Option<PathBuf>,
    /// Without certificates.
    options: ServingOptions,
}

impl ServingFiles {
    pub(crate) fn new(tls: &Tls, authentication: &Authentication) -> Self {
        ServingFiles {
            certificate: tls.files(),
            client_authority: authentication.client_ca_file.clone(),
            front_proxy_authority: authentication.requestheader_client_ca_file.clone(),
            options: ServingOptions {
                tls13_only: tls.is_tls13_only(),
                cipher_suites: tls.tls_cipher_suites.clone(),
                curves: tls.tls_curve_preferences.clone(),
                without_http2: tls.disable_http2_serving,
                ..ServingOptions::default()
            },
        }
    }

    /// True if the data folder's authority issues the certificates of users.
    pub(crate) fn issues_users(&self) -> bool {
        self.client_authority.is_none()
    }

    /// Reads the files; what is not given is the data folder's own.
    pub(crate) fn read(&self, pki: &Pki) -> Result<ServingOptions> {
        let named = |flag: &str, path: &Path| -> Result<NamedPem> {
            Ok(NamedPem::new(format!("{flag} {}", path.display()), text(flag, path)?))
        };
        let own = ServingOptions::own(pki);
        let mut options = ServingOptions {
            certificate: own.certificate,
            key: own.key,
            client_authority: own.client_authority,
            ..self.options.clone()
        };
        if let Some((certificate, key)) = &self.certificate {
            options.certificate = named("--tls-cert-file", certificate)?;
            options.key = named("--tls-private-key-file", key)?;
        }
        if let Some(path) = &self.client_authority {
            options.client_authority = Some(named("--client-ca-file", path)?);
        }
        if let Some(path) = &self.front_proxy_authority {
            options.front_proxy_authority = Some(named("--requestheader-client-ca-file", path)?);
        }
        Ok(options)
    }
}

/// The data folder's own certificates, and where they go.
pub(crate) struct OwnCertificates {
    pub(crate) pki: Pki,
    /// Where they are kept; none in memory.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) names: Names,
    /// The administrator's kubeconfigs.
    pub(crate) kubeconfigs: Vec<PathBuf>,
    pub(crate) url: String,
}

impl OwnCertificates {
    /// Replaces what expires soon; true if anything was.
    fn renew(&mut self, now: Timestamp) -> Result<bool> {
        let renewed = match &self.folder {
            Some(folder) => {
                let pki = Pki::open(folder, &self.names, now)?;
                (pki.server != self.pki.server || pki.admin != self.pki.admin).then_some(pki)
            }
            None => self.pki.renewed(&self.names, now)?,
        };
        let Some(pki) = renewed else { return Ok(false) };
        self.pki = pki;
        Ok(true)
    }

    /// Writes the administrator's kubeconfigs; `authority` is what vouches for the server.
    pub(crate) fn write_kubeconfigs(&self, authority: &str) -> Result<()> {
        for path in &self.kubeconfigs {
            kubeconfig::write(path, &self.url, authority, &self.pki.admin)
                .map_err(|error| anyhow!("cannot write the kubeconfig: {error}"))?;
        }
        Ok(())
    }
}

/// Keeps the certificates of a running server up to date.
pub(crate) struct Renewal {
    files: ServingFiles,
    own: OwnCertificates,
    /// What is served now.
    read: ServingOptions,
    serving: watch::Sender<Arc<Serving>>,
    /// What was wrong at the last look, so that it is told once.
    told: Option<String>,
}

impl Renewal {
    /// Reads the files for the first time; what is wrong with them ends the start.
    pub(crate) fn start(files: ServingFiles, own: OwnCertificates) -> Result<Self> {
        let read = files.read(&own.pki)?;
        let serving = Serving::new(&read, Timestamp::now())?;
        Ok(Renewal { files, own, read, serving: watch::Sender::new(Arc::new(serving)), told: None })
    }

    pub(crate) fn own(&self) -> &OwnCertificates {
        &self.own
    }

    pub(crate) fn serving(&self) -> watch::Receiver<Arc<Serving>> {
        self.serving.subscribe()
    }

    /// The certificates of the authorities, as PEM: of users and of front proxies.
    pub(crate) fn authorities(&self) -> (Option<&str>, Option<&str>) {
        let ServingOptions { client_authority, front_proxy_authority, .. } = &self.read;
        let [users, front_proxies] =
            [client_authority, front_proxy_authority].map(|pem| pem.as_ref().map(|pem| pem.text.as_str()));
        (users, front_proxies)
    }

    /// What clients believe the server by: its authority's certificate, or the one it was given.
    pub(crate) fn server_authority(&self) -> &str {
        match self.files.certificate {
            Some(_) => &self.read.certificate.text,
            None => &self.own.pki.authority.certificate,
        }
    }

    /// Looks at the files and at the own certificates until the task is dropped.
    pub(crate) async fn run(mut self) {
        let mut renewal = tokio::time::Instant::now() + RENEWAL_INTERVAL;
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let own = tokio::time::Instant::now() >= renewal;
            if own {
                renewal += RENEWAL_INTERVAL;
            }
            self.look(own, Timestamp::now());
        }
    }

    /// Serves what has changed. What cannot be used is told once, and the last that could stays.
    fn look(&mut self, own: bool, now: Timestamp) {
        match self.take(own, now) {
            Ok(false) => self.told = None,
            Ok(true) => {
                self.told = None;
                tracing::info!("the server's certificates or authorities were replaced");
            }
            Err(error) => {
                let why = format!("{error:#}");
                if self.told.as_ref() != Some(&why) {
                    tracing::error!("new certificates are not served, the old ones stay: {why}");
                }
                self.told = Some(why);
            }
        }
    }

    fn take(&mut self, own: bool, now: Timestamp) -> Result<bool> {
        let renewed = own && self.own.renew(now)?;
        let read = self.files.read(&self.own.pki)?;
        if renewed {
            let authority = match self.files.certificate {
                Some(_) => read.certificate.text.clone(),
                None => self.own.pki.authority.certificate.clone(),
            };
            self.own.write_kubeconfigs(&authority)?;
        }
        if read == self.read {
            return Ok(renewed);
        }
        self.serving.send_replace(Arc::new(Serving::new(&read, now)?));
        self.read = read;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pki(now: Timestamp) -> Pki {
        Pki::in_memory(&names(), now).unwrap()
    }

    fn names() -> Names {
        Names::standard(None, [10, 96, 0, 1].into())
    }

    fn own(folder: &Path, now: Timestamp) -> OwnCertificates {
        let kubeconfigs = vec![folder.join("kubeconfig")];
        OwnCertificates { pki: pki(now), folder: None, names: names(), kubeconfigs, url: "https://x:1".into() }
    }

    #[test]
    fn replaced_files_are_served_and_wrong_ones_leave_what_was() {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp::now();
        let path = |name: &str| folder.path().join(name);
        let put = |identity: &Pki| {
            std::fs::write(path("tls.key"), &identity.server.key).unwrap();
            std::fs::write(path("tls.crt"), &identity.server.certificate).unwrap();
        };
        put(&pki(now));
        let files = ServingFiles { certificate: Some((path("tls.crt"), path("tls.key"))), ..ServingFiles::default() };
        let mut renewal = Renewal::start(files, own(folder.path(), now)).unwrap();
        let mut serving = renewal.serving();
        renewal.look(false, now);
        assert!(!serving.has_changed().unwrap());
        put(&pki(now));
        renewal.look(false, now);
        assert!(serving.has_changed().unwrap());
        serving.mark_unchanged();
        // A certificate whose key has not been written yet is not served.
        std::fs::write(path("tls.crt"), &pki(now).server.certificate).unwrap();
        renewal.look(false, now);
        assert!(!serving.has_changed().unwrap());
        assert!(renewal.told.as_ref().unwrap().contains("it is not the key of --tls-cert-file"), "{:?}", renewal.told);
        std::fs::remove_file(path("tls.crt")).unwrap();
        renewal.look(false, now);
        assert!(renewal.told.as_ref().unwrap().starts_with("--tls-cert-file "), "{:?}", renewal.told);
        put(&pki(now));
        renewal.look(false, now);
        assert!(serving.has_changed().unwrap() && renewal.told.is_none());
    }

    #[test]
    fn own_certificates_are_renewed_before_they_expire_with_their_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp::now();
        let later = Timestamp::from_second(now.as_second() + 340 * 86_400).unwrap();
        let mut renewal = Renewal::start(ServingFiles::default(), own(folder.path(), now)).unwrap();
        let serving = renewal.serving();
        renewal.look(true, now);
        assert!(!serving.has_changed().unwrap() && !folder.path().join("kubeconfig").exists());
        renewal.look(true, later);
        assert!(serving.has_changed().unwrap() && folder.path().join("kubeconfig").exists());
    }
}
