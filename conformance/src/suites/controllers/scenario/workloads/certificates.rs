//! Requests for certificates, as a user makes and approves them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bayplan_model::api::{Request, Verb, decode, encode};
use bayplan_model::status::Status;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::super::cluster::Cluster;

const PLURAL: &str = "certificatesigningrequests";

/// What a request asks for, besides its subject.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) signer: &'a str,
    pub(super) usages: &'a Value,
    pub(super) expiration_seconds: Option<i64>,
}

/// Creates a request with a fresh key for a subject of the form `/CN=joe/O=devs`.
pub(super) async fn create(cluster: &Cluster, subject: &str, wanted: Wanted<'_>) -> Result<Result<(), Status>, String> {
    let pem = signing_request(subject).map_err(|error| error.to_string())?;
    let mut object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": wanted.name, "labels": {"scenario": cluster.namespace}},
        "spec": {"request": STANDARD.encode(pem), "signerName": wanted.signer, "usages": wanted.usages},
    });
    if let Some(seconds) = wanted.expiration_seconds {
        object["spec"]["expirationSeconds"] = json!(seconds);
    }
    let request = Request::collection(&cluster.resource(PLURAL)?, "", Verb::Create(encode(&object)));
    Ok(cluster.call(request).await.map(drop))
}

/// Approves a request, or sets another condition.
pub(super) async fn approve(cluster: &Cluster, name: &str, condition: &str) -> Result<Result<(), Status>, String> {
    let resource = cluster.resource(PLURAL)?;
    let found = cluster.call(Request::object(&resource, "", name, Verb::Get)).await;
    let mut object: Value = match found.and_then(|answer| decode(&answer)) {
        Ok(object) => object,
        Err(status) => return Ok(Err(status)),
    };
    let condition = json!({"type": condition, "status": "True", "reason": "ByUser", "message": "by user"});
    match object["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => object["status"]["conditions"] = json!([condition]),
    }
    let update = Request::object(&resource, "", name, Verb::Update(encode(&object))).subresource("approval");
    Ok(cluster.call(update).await.map(drop))
}

fn signing_request(subject: &str) -> Result<String, rcgen::Error> {
    let mut name = DistinguishedName::new();
    for part in subject.split('/').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("CN", value)) => name.push(DnType::CommonName, value),
            Some(("O", value)) => name.push(DnType::OrganizationName, value),
            _ => {}
        }
    }
    let mut params = CertificateParams::new([])?;
    params.distinguished_name = name;
    params.serialize_request(&KeyPair::generate()?)?.pem()
}
