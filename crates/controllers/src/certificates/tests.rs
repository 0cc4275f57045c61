use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::cache::{Cache, Kind};
use crate::controller::{Controller, Requeue};
use crate::script::{ANY, Script, now};

/// A request for `system:node:n1` of `system:nodes`, made with openssl.
const REQUEST: &str = include_str!("request.pem");

fn csr(signer: &str, usages: &[&str], status: Value) -> Value {
    json!({
        "metadata": {"name": "c", "creationTimestamp": now()},
        "spec": {
            "request": STANDARD.encode(REQUEST), "signerName": signer, "usages": usages,
            "username": "system:bootstrap:x", "groups": ["system:bootstrappers"],
        },
        "status": status,
    })
}

fn cache(csr: &Value) -> Arc<Cache> {
    let cache = Arc::new(Cache::default());
    cache.set(Kind::CertificateSigningRequest, csr.to_string().as_bytes()).unwrap();
    cache
}

/// Signs everything of the kubelets' client signer with a word.
struct Pen;

impl SignCertificate for Pen {
    fn signs(&self, signer: &str) -> bool {
        signer != "example.com/other"
    }

    fn sign(&self, _signer: &str, request: &SigningRequest, now: Timestamp) -> Result<String, String> {
        let life = request.not_after.duration_since(now).as_secs();
        Ok(format!("{} for {life} s", request.request.common_name))
    }
}

const KUBELET_USAGES: [&str; 2] = ["digital signature", "client auth"];

#[test]
fn a_kubelets_request_is_approved_if_its_sender_has_the_right() {
    let reviewed = |allowed: bool| ("POST subjectaccessreviews", ANY, Ok(json!({"status": {"allowed": allowed}})));
    let approver = CertificateApprovingController::new(cache(&csr(KUBELET_CLIENT, &KUBELET_USAGES, json!({}))));
    let approval = ("PUT certificatesigningrequests/c/approval", ANY, Ok(json!({})));
    let outcome = Script::new("allowed", [reviewed(true), approval]).play(&approver, "c");
    assert_eq!(outcome.unwrap(), Requeue::OnChange);
    let refused = Script::new("refused", [reviewed(false)]).play(&approver, "c").unwrap_err().to_string();
    assert_eq!(refused, "recognized csr \"c\" as [nodeclient] but subject access review was not approved");
    for other in [
        csr(KUBELET_CLIENT, &["client auth"], json!({})),
        csr(CLIENT, &KUBELET_USAGES, json!({})),
        csr(KUBELET_CLIENT, &KUBELET_USAGES, json!({"conditions": [{"type": "Denied", "status": "True"}]})),
    ] {
        let approver = CertificateApprovingController::new(cache(&other));
        assert_eq!(Script::new("not its own", []).play(&approver, "c").unwrap(), Requeue::OnChange);
    }
}

#[test]
fn an_approved_request_is_signed_or_fails() {
    let approved = || json!({"conditions": [{"type": "Approved", "status": "True"}]});
    let written = |csr: &Value| {
        let life = std::time::Duration::from_secs(3600);
        let signer = CertificateSigningController::new(cache(csr), Arc::new(Pen), life);
        let api = bayplan_testkit::FakeApi::new(|_| Ok(json!({})));
        let context = crate::controller::Context { now: now(), api: &api, recorder: &api };
        futures::FutureExt::now_or_never(signer.sync("c", context)).unwrap().unwrap();
        let requests = api.calls();
        assert!(requests.len() < 2 && requests.iter().all(|request| request.subresource == Some("status")));
        requests.first().map(|request| match &request.verb {
            Verb::Update(body) => serde_json::from_slice::<Value>(body).unwrap()["status"].clone(),
            other => panic!("{other:?}"),
        })
    };
    let mut asks = csr(KUBELET_CLIENT, &KUBELET_USAGES, approved());
    let signed = written(&asks).unwrap();
    assert_eq!(signed["certificate"], STANDARD.encode("system:node:n1 for 3600 s"));
    asks["spec"]["expirationSeconds"] = json!(601);
    assert_eq!(written(&asks).unwrap()["certificate"], STANDARD.encode("system:node:n1 for 601 s"));
    for (signer, usages, why) in [
        (KUBELET_CLIENT, vec!["client auth"], "usages did not match [client auth digital signature key encipherment]"),
        (KUBELET_SERVING, vec!["digital signature", "server auth"], "DNS or IP subjectAltName is required"),
        (CLIENT, vec!["server auth", "client auth"], "invalid usage for client certificate: server auth"),
        (CLIENT, vec!["key encipherment"], "missing required usage for client certificate: client auth"),
    ] {
        let failed = written(&csr(signer, &usages, approved())).unwrap();
        assert_eq!(
            (&failed["conditions"][1]["type"], &failed["conditions"][1]["message"]),
            (&json!("Failed"), &json!(why))
        );
    }
    assert_eq!(written(&csr("example.com/other", &KUBELET_USAGES, approved())), None);
    assert_eq!(written(&csr(KUBELET_CLIENT, &KUBELET_USAGES, json!({}))), None);
}

#[test]
fn requests_are_removed_when_nobody_needs_them_any_more() {
    let condition = |kind: &str| json!([{"type": kind, "status": "True", "lastUpdateTime": now()}]);
    let hour = 3600;
    for (what, status, seconds) in [
        ("denied", json!({"conditions": condition("Denied")}), hour),
        ("failed", json!({"conditions": condition("Failed")}), hour),
        ("issued", json!({"conditions": condition("Approved"), "certificate": "eA=="}), hour),
        ("approved", json!({"conditions": condition("Approved")}), 24 * hour),
        ("pending", json!({}), 24 * hour),
    ] {
        let cleaner = CertificateCleanerController::new(cache(&csr(CLIENT, &["client auth"], status)));
        let again = Script::new(what, []).play_at(seconds, &cleaner, "all").unwrap();
        assert_eq!(again, Requeue::After(std::time::Duration::from_secs(3600)), "{what}");
        let delete = ("DELETE certificatesigningrequests/c", json!({}), Ok(json!({})));
        Script::new(what, [delete]).play_at(seconds + 1, &cleaner, "all").unwrap();
    }
}
