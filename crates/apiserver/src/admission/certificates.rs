//! CertificateSigningRequests: who asks is written by the server (upstream's strategy), who approves and signs needs a
//! right to the signer (CertificateApproval, CertificateSigning), and nobody gets a certificate of `system:masters`
//! from the cluster's own authority (CertificateSubjectRestriction).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bayplan_model::certificate_request::CertificateRequest;
use bayplan_model::status::Status;
use serde_json::{Value, json};

use super::{AdmissionContext, Operation, text};
use crate::authz::{Action, Attributes};
use crate::request::Verb;
use crate::user::GROUP_MASTERS;

const GROUP: &str = "certificates.k8s.io";
const PLURAL: &str = "certificatesigningrequests";

/// The signer of certificates that this server knows users by.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The fields that say who asks, whatever the client wrote there.
const REQUESTER: [&str; 4] = ["username", "uid", "groups", "extra"];

pub(super) fn admit(context: &AdmissionContext<'_>, object: &mut Value) {
    if !context.is_new(GROUP, PLURAL) {
        return;
    }
    let Some(spec) = super::map_mut(object, "spec") else { return };
    spec.retain(|field, _| !REQUESTER.contains(&field.as_str()));
    let user = context.user;
    let who = json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
    let is_empty = |value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    for (field, value) in who.as_object().into_iter().flatten().filter(|(_, value)| !is_empty(value)) {
        spec.insert(field.clone(), value.clone());
    }
}

/// Upstream's plugin that looks at this write, if it is about a request for a certificate.
pub(super) fn plugin(context: &AdmissionContext<'_>) -> Option<&'static str> {
    if context.resource.group != GROUP || context.resource.plural != PLURAL {
        return None;
    }
    match context.subresource {
        "approval" => Some("CertificateApproval"),
        "status" => Some("CertificateSigning"),
        _ => Some("CertificateSubjectRestriction"),
    }
}

pub(super) fn validate(context: &AdmissionContext<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    match (context.operation, context.subresource, old) {
        (Operation::Create, "", _) => restrict_subject(context, object),
        (Operation::Update, "approval", Some(old)) => check_signer(context, object, old, "approve"),
        (Operation::Update, "status", Some(old)) => {
            let changed = |pointer| object.pointer(pointer) != old.pointer(pointer);
            if changed("/status/certificate") || changed("/status/conditions") {
                return check_signer(context, object, old, "sign");
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The right to approve or sign: for this signer, or for all of its domain.
fn check_signer(context: &AdmissionContext<'_>, object: &Value, old: &Value, verb: &str) -> Result<(), Status> {
    let signer = text(old, "/spec/signerName");
    let all_of_domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let word = Verb::from(verb);
    let may = |name: &str| {
        let action = Action::Resource { group: GROUP, resource: "signers", subresource: "", name, namespace: "" };
        let request = Attributes { user: context.user, verb: &word, action, field_selector: "" };
        context.authorizer.authorize(&request).allowed
    };
    if may(signer) || may(&all_of_domain) {
        return Ok(());
    }
    Err(context.refuse(object, format!("user not permitted to {verb} requests with signerName {signer:?}")))
}

fn restrict_subject(context: &AdmissionContext<'_>, object: &Value) -> Result<(), Status> {
    if text(object, "/spec/signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let request = STANDARD.decode(text(object, "/spec/request")).unwrap_or_default();
    let request = CertificateRequest::parse(&request)
        .map_err(|why| context.refuse(object, format!("failed to parse CSR: {why}")))?;
    if request.organizations.iter().any(|group| group == GROUP_MASTERS) {
        let why = format!("use of {CLIENT_SIGNER} signer with {GROUP_MASTERS} group is not allowed");
        return Err(context.refuse(object, why));
    }
    Ok(())
}
