//! Signs approved requests for the signers of Kubernetes itself. Keys are the shell's: it signs, this decides what.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bayplan_model::certificate_request::CertificateRequest;
use bayplan_model::work_queue::RetryLimits;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::{
    CLIENT, CertificateSigningRequest, Condition, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, are, kubelet_client_error,
    retry_limits, wake,
};
use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup};
use crate::error::Error;

/// Certificates are valid from a little before now, for clocks that are slow.
const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// Certificates that live less long than this are not shortened by as much.
const SHORT: Duration = Duration::from_secs(8 * 3600);
/// The shortest life of a certificate.
const LIFE_MIN: Duration = Duration::from_secs(10 * 60);

/// A certificate that is to be made.
#[derive(Clone, Debug)]
pub struct SigningRequest {
    /// The subject, the names and the key.
    pub request: CertificateRequest,
    /// What the key may be used for, in Kubernetes' words.
    pub usages: Vec<String>,
    /// From when it is valid.
    pub not_before: Timestamp,
    /// Until when, unless the authority ends before.
    pub not_after: Timestamp,
}

/// The authorities of the signers.
pub trait SignCertificate: Send + Sync {
    /// Whether there is an authority for this signer.
    fn signs(&self, signer: &str) -> bool;

    /// Signs; the certificate as PEM, or why there is none.
    fn sign(&self, signer: &str, request: &SigningRequest, now: Timestamp) -> Result<String, String>;
}

/// The signing controller.
pub struct CertificateSigningController {
    cache: Arc<Cache>,
    authorities: Arc<dyn SignCertificate>,
    life_max: Duration,
}

impl CertificateSigningController {
    /// A controller over this cache; `life_max` is upstream's `--cluster-signing-duration`.
    pub fn new(cache: Arc<Cache>, authorities: Arc<dyn SignCertificate>, life_max: Duration) -> Self {
        CertificateSigningController { cache, authorities, life_max }
    }

    async fn reconcile(&self, name: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let Some(csr) = self.cache.certificate_signing_requests().get("", name) else { return Ok(Requeue::OnChange) };
        let is_failed = csr.conditions_of("Failed").any(|condition| condition.status == "True");
        let is_due = csr.has("Approved") && !csr.has("Denied") && !is_failed && csr.status.certificate.is_empty();
        let signer = csr.spec.signer_name.as_str();
        if !is_due || !self.authorities.signs(signer) {
            return Ok(Requeue::OnChange);
        }
        let request = csr.request()?;
        let mut signed = CertificateSigningRequest::clone(&csr);
        match refusal(signer, &request, &csr.spec.usages) {
            Some(message) => signed.status.conditions.push(Condition {
                kind: "Failed".into(),
                status: "True".into(),
                reason: "SignerValidationFailure".into(),
                message,
                last_update_time: Some(context.second()),
                ..Condition::default()
            }),
            None => {
                let asked = self.asked(&csr, request, context.now);
                let certificate = self.authorities.sign(signer, &asked, context.now);
                let certificate =
                    certificate.map_err(|why| Error::Invalid(format!("error auto signing csr: {why}")))?;
                signed.status.certificate = STANDARD.encode(certificate);
            }
        }
        signed.write(context.api, "status").await?;
        Ok(Requeue::OnChange)
    }

    /// The certificate to make: it lives as long as was asked for, and no longer than the flag says.
    fn asked(&self, csr: &CertificateSigningRequest, request: CertificateRequest, now: Timestamp) -> SigningRequest {
        let asked = csr.spec.expiration_seconds.map(|seconds| u64::try_from(seconds).unwrap_or(0));
        let life = asked.map(|seconds| Duration::from_secs(seconds).max(LIFE_MIN));
        let life = life.map_or(self.life_max, |life| life.min(self.life_max));
        let end = if life < SHORT { life } else { life.saturating_sub(BACKDATE) };
        SigningRequest {
            request,
            usages: csr.spec.usages.clone(),
            not_before: now.checked_sub(BACKDATE).unwrap_or(now),
            not_after: now.checked_add(end).unwrap_or(Timestamp::MAX),
        }
    }
}

/// Why a signer does not sign this.
fn refusal(signer: &str, request: &CertificateRequest, usages: &[String]) -> Option<String> {
    match signer {
        KUBELET_CLIENT => kubelet_client_error(request, usages),
        KUBELET_SERVING => kubelet_serving_error(request, usages),
        CLIENT => client_error(usages),
        LEGACY => None,
        other => Some(format!("unrecognized signerName: {other:?}")),
    }
}

fn kubelet_serving_error(request: &CertificateRequest, usages: &[String]) -> Option<String> {
    let text = match () {
        () if request.organizations != ["system:nodes"] => "subject organization is not system:nodes",
        () if request.dns_names.is_empty() && request.addresses.is_empty() => "DNS or IP subjectAltName is required",
        () if !request.emails.is_empty() => "Email subjectAltNames are not allowed",
        () if !request.uris.is_empty() => "URI subjectAltNames are not allowed",
        () if !are(usages, &["digital signature", "server auth"]) => {
            "usages did not match [digital signature key encipherment server auth]"
        }
        () if !request.common_name.starts_with("system:node:") => {
            "subject common name does not begin with system:node:"
        }
        () => return None,
    };
    Some(text.to_owned())
}

fn client_error(usages: &[String]) -> Option<String> {
    let known = |usage: &&String| matches!(usage.as_str(), "digital signature" | "key encipherment" | "client auth");
    if let Some(usage) = usages.iter().find(|usage| !known(usage)) {
        return Some(format!("invalid usage for client certificate: {usage}"));
    }
    let has_client_auth = usages.iter().any(|usage| usage == "client auth");
    (!has_client_auth).then(|| "missing required usage for client certificate: client auth".to_owned())
}

impl Controller for CertificateSigningController {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-signing-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::CertificateSigningRequest]
    }

    fn retry_limits(&self) -> RetryLimits {
        retry_limits()
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        wake(delta)
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
