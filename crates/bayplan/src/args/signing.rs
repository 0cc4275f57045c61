//! The flags of `bayplan controller-manager` about the certificates it signs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bayplan_runner::controllers::{SIGNERS, SIGNING_DURATION, SigningKeyPair, check_authority};
use bayplan_scheduler::config::GoDuration;
use clap::Args;

use super::go;

/// Which authority signs for whom.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Signing certificates")]
pub(crate) struct Signing {
    /// The authority that signs certificates of the cluster; nothing is signed without one.
    #[arg(long, value_name = "PATH")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// The key of that authority.
    #[arg(long, value_name = "PATH")]
    cluster_signing_key_file: Option<PathBuf>,
    /// How long signed certificates live at most [default: 8760h0m0s].
    #[arg(long, value_name = "DURATION", value_parser = go::duration)]
    cluster_signing_duration: Option<GoDuration>,
    /// The authority of kubernetes.io/kubelet-serving alone.
    #[arg(long, value_name = "PATH")]
    cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// The key of that authority.
    #[arg(long, value_name = "PATH")]
    cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// The authority of kubernetes.io/kube-apiserver-client-kubelet alone.
    #[arg(long, value_name = "PATH")]
    cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// The key of that authority.
    #[arg(long, value_name = "PATH")]
    cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// The authority of kubernetes.io/kube-apiserver-client alone.
    #[arg(long, value_name = "PATH")]
    cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// The key of that authority.
    #[arg(long, value_name = "PATH")]
    cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// The authority of kubernetes.io/legacy-unknown alone.
    #[arg(long, value_name = "PATH")]
    cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// The key of that authority.
    #[arg(long, value_name = "PATH")]
    cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
}

impl Signing {
    /// How long signed certificates live at most.
    pub(crate) fn duration(&self) -> Duration {
        self.cluster_signing_duration.map_or(SIGNING_DURATION, GoDuration::unsigned)
    }

    /// Reads the authorities; one of its own takes the place of the common one, and then all need one of their own,
    /// as upstream.
    pub(crate) fn authorities(&self) -> Result<BTreeMap<String, SigningKeyPair>> {
        let own = [
            (&self.cluster_signing_kubelet_serving_cert_file, &self.cluster_signing_kubelet_serving_key_file),
            (&self.cluster_signing_kubelet_client_cert_file, &self.cluster_signing_kubelet_client_key_file),
            (
                &self.cluster_signing_kube_apiserver_client_cert_file,
                &self.cluster_signing_kube_apiserver_client_key_file,
            ),
            (&self.cluster_signing_legacy_unknown_cert_file, &self.cluster_signing_legacy_unknown_key_file),
        ];
        let common = (&self.cluster_signing_cert_file, &self.cluster_signing_key_file);
        let any_own = own.iter().any(|(certificate, key)| certificate.is_some() || key.is_some());
        if any_own && (common.0.is_some() || common.1.is_some()) {
            bail!(
                "cannot specify --cluster-signing-{{cert,key}}-file and other --cluster-signing-*-file flags at the \
                 same time"
            );
        }
        let mut authorities = BTreeMap::new();
        for (signer, own) in SIGNERS.into_iter().zip(own) {
            let files = if any_own { own } else { common };
            match files {
                (Some(certificate), Some(key)) => {
                    authorities.insert(signer.to_owned(), read(certificate, key)?);
                }
                (None, None) => {}
                _ => bail!("{signer}: the file of the certificate and that of the key must be given together"),
            }
        }
        Ok(authorities)
    }
}

fn read(certificate: &Path, key: &Path) -> Result<SigningKeyPair> {
    let text = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let pair = SigningKeyPair { certificate: text(certificate)?, key: text(key)? };
    check_authority(&pair)
        .map_err(|why| anyhow::anyhow!("{} cannot sign certificates: {why}", certificate.display()))?;
    Ok(pair)
}
