//! CertificateSigningRequests: those of kubelets are approved, approved ones signed, old ones removed.

mod approving;
mod cleaning;
mod signing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bayplan_model::api::{Api, Request, Verb, encode};
use bayplan_model::certificate_request::CertificateRequest;
use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::status::Status as Answer;
use bayplan_model::work_queue::RetryLimits;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::approving::CertificateApprovingController;
pub use self::cleaning::CertificateCleanerController;
pub use self::signing::{CertificateSigningController, SignCertificate, SigningRequest};
use crate::cache::AnyDelta;
use crate::controller::Wakeup;
use crate::error::Error;
use crate::requests::CERTIFICATE_SIGNING_REQUESTS;

/// The signer of the certificates by which kubelets are known to the API server.
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The signer of the certificates by which the API server knows kubelets.
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The signer of the certificates by which users are known to the API server.
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// The signer of requests that name none, from before `certificates.k8s.io/v1`.
const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// A CertificateSigningRequest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateSigningRequest {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: Spec,
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    request: String,
    signer_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_seconds: Option<i32>,
    usages: Vec<String>,
    username: String,
    uid: String,
    groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "String::is_empty")]
    certificate: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_update_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_transition_time: Option<Timestamp>,
}

impl HasMeta for CertificateSigningRequest {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl CertificateSigningRequest {
    fn conditions_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Condition> {
        self.status.conditions.iter().filter(move |condition| condition.kind == kind)
    }

    fn has(&self, kind: &str) -> bool {
        self.conditions_of(kind).next().is_some()
    }

    /// What somebody asks to be certified.
    fn request(&self) -> Result<CertificateRequest, Error> {
        let text = STANDARD.decode(&self.spec.request).unwrap_or_default();
        let read = CertificateRequest::parse(&text);
        read.map_err(|why| Error::Invalid(format!("unable to parse csr {:?}: {why}", self.metadata.name)))
    }

    fn certificate(&self) -> Vec<u8> {
        STANDARD.decode(&self.status.certificate).unwrap_or_default()
    }

    /// Writes it through a subresource.
    async fn write(&self, api: &dyn Api, subresource: &'static str) -> Result<(), Answer> {
        let object = CertificateSigningRequest {
            api_version: "certificates.k8s.io/v1".into(),
            kind: "CertificateSigningRequest".into(),
            ..self.clone()
        };
        let verb = Verb::Update(encode(&object));
        let request = Request::object(&CERTIFICATE_SIGNING_REQUESTS, "", &self.metadata.name, verb);
        api.call(request.subresource(subresource)).await.map(drop)
    }
}

/// Every change of a request wakes its loops.
fn wake(delta: &AnyDelta) -> Vec<Wakeup> {
    match delta {
        AnyDelta::CertificateSigningRequest(delta) => vec![Wakeup::now(delta.object().metadata.key())],
        _ => Vec::new(),
    }
}

/// Slower at first than other loops: a right that is missing will not be there a moment later.
fn retry_limits() -> RetryLimits {
    RetryLimits { delay_min: Duration::from_millis(200), ..RetryLimits::default() }
}

/// What is wrong with a request for the certificate of a kubelet as a client.
fn kubelet_client_error(request: &CertificateRequest, usages: &[String]) -> Option<String> {
    let text = match () {
        () if request.organizations != ["system:nodes"] => "subject organization is not system:nodes",
        () if !request.dns_names.is_empty() => "DNS subjectAltNames are not allowed",
        () if !request.emails.is_empty() => "Email subjectAltNames are not allowed",
        () if !request.addresses.is_empty() => "IP subjectAltNames are not allowed",
        () if !request.uris.is_empty() => "URI subjectAltNames are not allowed",
        () if !request.common_name.starts_with("system:node:") => {
            "subject common name does not begin with system:node:"
        }
        () if !are(usages, &["digital signature", "client auth"]) => {
            "usages did not match [client auth digital signature key encipherment]"
        }
        () => return None,
    };
    Some(text.to_owned())
}

/// Whether the usages are these, with or without `key encipherment`, which only RSA needs.
fn are(usages: &[String], wanted: &[&str]) -> bool {
    let known = |usage: &String| wanted.contains(&usage.as_str()) || usage == "key encipherment";
    usages.iter().all(known) && wanted.iter().all(|wanted| usages.iter().any(|usage| usage == wanted))
}
