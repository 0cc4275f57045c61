//! Approves the requests of kubelets, if their sender has the right to have them approved.

use std::sync::Arc;

use bayplan_model::api::Resource;
use bayplan_model::work_queue::RetryLimits;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{CertificateSigningRequest, Condition, KUBELET_CLIENT, kubelet_client_error, retry_limits, wake};
use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup};
use crate::error::Error;
use crate::requests;

const REVIEWS: Resource = Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews");

/// The approving controller.
pub struct CertificateApprovingController {
    cache: Arc<Cache>,
}

impl CertificateApprovingController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        CertificateApprovingController { cache }
    }

    async fn reconcile(&self, name: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let Some(csr) = self.cache.certificate_signing_requests().get("", name) else { return Ok(Requeue::OnChange) };
        if !csr.status.certificate.is_empty() || csr.has("Approved") || csr.has("Denied") {
            return Ok(Requeue::OnChange);
        }
        let request = csr.request()?;
        if csr.spec.signer_name != KUBELET_CLIENT || kubelet_client_error(&request, &csr.spec.usages).is_some() {
            return Ok(Requeue::OnChange);
        }
        let mut tried = Vec::new();
        for (subresource, whose) in [("selfnodeclient", "self kubelet"), ("nodeclient", "kubelet")] {
            if subresource == "selfnodeclient" && csr.spec.username != request.common_name {
                continue;
            }
            tried.push(subresource);
            if is_allowed(&csr, subresource, context).await? {
                let message = format!("Auto approving {whose} client certificate after SubjectAccessReview.");
                let mut approved = CertificateSigningRequest::clone(&csr);
                approved.status.conditions.push(Condition {
                    kind: "Approved".into(),
                    status: "True".into(),
                    reason: "AutoApproved".into(),
                    message,
                    ..Condition::default()
                });
                approved.write(context.api, "approval").await?;
                return Ok(Requeue::OnChange);
            }
        }
        // The right may come later; nobody tells when.
        let tried = tried.join(" ");
        let why = format!("recognized csr {name:?} as [{tried}] but subject access review was not approved");
        Err(Error::Invalid(why))
    }
}

/// Whether the sender may have such a request approved.
async fn is_allowed(csr: &CertificateSigningRequest, subresource: &str, context: Context<'_>) -> Result<bool, Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Review {
        status: Verdict,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Verdict {
        allowed: bool,
    }
    let spec = &csr.spec;
    let review: Value = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": spec.extra,
            "resourceAttributes": {
                "group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create",
                "subresource": subresource, "version": "*",
            },
        },
    });
    let review: Review = requests::create(context.api, &REVIEWS, "", &review).await?;
    Ok(review.status.allowed)
}

impl Controller for CertificateApprovingController {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-approving-controller"
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
