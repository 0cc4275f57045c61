//! `TokenRequest`: `POST …/serviceaccounts/{name}/token`.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, reason = "clients choose the numbers"))]

use std::sync::Arc;

use bayplan_kinds::Kind;
use bayplan_model::status::Status;
use bayplan_model::timestamp;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Claims, PrivateClaims, Reference, Tokens, user_name};
use crate::registry::Objects;
use crate::status_errors::{FieldError, bad_request, conflict, internal, invalid, not_found};

const DEFAULT_SECONDS: i64 = 3600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;
/// The lifetime that admission requests for the tokens of pods. These tokens live for [`EXTENDED_SECONDS`], for
/// clients that never reload them; upstream's `WarnOnlyBoundTokenExpirationSeconds`.
const POD_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

/// Answers a `TokenRequest` with a token for the account.
pub(crate) async fn create_token(
    tokens: &Tokens,
    objects: &dyn Objects,
    namespace: &str,
    name: &str,
    request: &Value,
    now: Timestamp,
) -> Result<Value, Status> {
    let account = fetch(objects, "serviceaccounts", namespace, name).await?;
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT_SECONDS);
    check_seconds(seconds)?;
    let seconds = tokens.lifetime_seconds_max.map_or(seconds, |most| seconds.min(most));
    let audiences: Vec<String> = match request.pointer("/spec/audiences").and_then(Value::as_array) {
        Some(given) if !given.is_empty() => given.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => tokens.audiences().to_vec(),
    };
    let reference = request.pointer("/spec/boundObjectRef").filter(|reference| !reference.is_null());
    let mut kubernetes = PrivateClaims {
        namespace: namespace.to_owned(),
        serviceaccount: Reference::to(&account),
        ..PrivateClaims::default()
    };
    if let Some(reference) = reference {
        bind(&mut kubernetes, reference, objects, namespace, name).await?;
    }

    let issued = now.as_second();
    let own_audience = audiences.iter().all(|audience| tokens.audiences().contains(audience));
    let mut lifetime = seconds;
    if tokens.extend_lifetimes && seconds == POD_SECONDS && kubernetes.pod.is_some() && own_audience {
        kubernetes.warnafter = Some(issued.saturating_add(seconds));
        lifetime = EXTENDED_SECONDS;
    }
    let token = tokens
        .sign(&Claims {
            aud: audiences.clone(),
            exp: issued.saturating_add(lifetime),
            iat: issued,
            iss: tokens.issuer().to_owned(),
            jti: Uuid::new_v4().to_string(),
            kubernetes,
            nbf: issued,
            sub: user_name(namespace, name),
        })
        .map_err(internal)?;

    let expires = Timestamp::from_second(issued.saturating_add(seconds)).map_err(internal)?;
    let mut spec = json!({"audiences": audiences, "expirationSeconds": seconds});
    if let Some(reference) = reference {
        spec["boundObjectRef"] = reference.clone();
    }
    Ok(json!({
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": timestamp::seconds(now)},
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": timestamp::seconds(expires)},
    }))
}

fn check_seconds(seconds: i64) -> Result<(), Status> {
    let detail = match seconds {
        ..SECONDS_MIN => "may not specify a duration less than 10 minutes",
        SECONDS_MIN..=SECONDS_MAX => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let error = FieldError::invalid("spec.expirationSeconds", seconds, detail);
    Err(invalid("authentication.k8s.io", "TokenRequest", "", &[error]))
}

/// Binds the token to another object.
async fn bind(
    claims: &mut PrivateClaims,
    reference: &Value,
    objects: &dyn Objects,
    namespace: &str,
    account: &str,
) -> Result<(), Status> {
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
    let (plural, object_namespace) = match (text("apiVersion"), kind) {
        ("v1", "Pod") => ("pods", namespace),
        ("v1", "Secret") => ("secrets", namespace),
        ("v1", "Node") => ("nodes", ""),
        (version, _) => {
            let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
            return Err(bad_request(format!("cannot bind token to object of type {group}/{version}, Kind={kind}")));
        }
    };
    let object = fetch(objects, plural, object_namespace, name).await?;
    let found = Reference::to(&object);
    if !uid.is_empty() && uid != found.uid {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. \
             The object might have been deleted and then recreated"
        );
        return Err(conflict(row(plural)?, name, why));
    }
    match kind {
        "Pod" => {
            let spec = &object["spec"];
            if spec["serviceAccountName"].as_str().unwrap_or_default() != account {
                return Err(bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount \
                     name."
                )));
            }
            claims.node = node_of(objects, spec["nodeName"].as_str().unwrap_or_default()).await?;
            claims.pod = Some(found);
        }
        "Secret" => claims.secret = Some(found),
        _ => claims.node = Some(found),
    }
    Ok(())
}

/// The node of a pod; without a uid if it does not exist.
async fn node_of(objects: &dyn Objects, name: &str) -> Result<Option<Reference>, Status> {
    if name.is_empty() {
        return Ok(None);
    }
    let node = objects.get(row("nodes")?, "", name).await?;
    Ok(Some(match node {
        Some(node) => Reference::to(&node),
        None => Reference { name: name.to_owned(), uid: String::new() },
    }))
}

fn row(plural: &str) -> Result<&'static Kind, Status> {
    bayplan_kinds::find("", "v1", plural).ok_or_else(|| internal(format!("{plural} are not served")))
}

async fn fetch(objects: &dyn Objects, plural: &str, namespace: &str, name: &str) -> Result<Arc<Value>, Status> {
    let resource = row(plural)?;
    objects.get(resource, namespace, name).await?.ok_or_else(|| not_found(resource, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serviceaccounts::ISSUER;
    use crate::serviceaccounts::tests::{Fixture, signer};

    fn world() -> Fixture {
        Fixture::with(&[
            ("serviceaccounts", json!({"metadata": {"name": "x", "namespace": "ns", "uid": "su"}})),
            (
                "pods",
                json!({
                    "metadata": {"name": "p", "namespace": "ns", "uid": "pu"},
                    "spec": {"serviceAccountName": "x", "nodeName": "n"},
                }),
            ),
            ("pods", json!({"metadata": {"name": "q", "namespace": "ns", "uid": "qu"}, "spec": {}})),
        ])
    }

    async fn ask(spec: Value) -> Result<(Value, Claims), String> {
        let (tokens, now) = (signer(), Timestamp::from_second(1_000_000).unwrap());
        let answer = create_token(&tokens, &world(), "ns", "x", &json!({"spec": spec}), now)
            .await
            .map_err(|status| format!("{} {}", status.code, status.message))?;
        let claims = tokens.verify(answer["status"]["token"].as_str().unwrap(), now).unwrap();
        Ok((answer, claims))
    }

    #[tokio::test]
    async fn a_request_gets_a_token_with_the_default_lifetime() {
        let (answer, claims) = ask(json!({})).await.unwrap();
        assert_eq!(answer["spec"], json!({"audiences": [ISSUER], "expirationSeconds": 3600}));
        assert_eq!(answer["status"]["expirationTimestamp"], "1970-01-12T14:46:40Z");
        assert_eq!((claims.exp - claims.iat, claims.kubernetes.warnafter), (3600, None));
    }

    #[tokio::test]
    async fn a_pods_own_token_lives_for_a_year() {
        let reference = json!({"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "pu"});
        let (_, claims) = ask(json!({"expirationSeconds": 3607, "boundObjectRef": reference})).await.unwrap();
        assert_eq!(claims.exp - claims.iat, EXTENDED_SECONDS);
        assert_eq!(claims.kubernetes.warnafter, Some(1_003_607));
        assert_eq!(claims.kubernetes.node, Some(Reference { name: "n".into(), uid: String::new() }));
    }

    #[tokio::test]
    async fn bad_requests_are_refused() {
        let bound = |reference: Value| json!({"boundObjectRef": reference});
        let pod = |name: &str, uid: &str| bound(json!({"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}));
        for (spec, expected) in [
            (
                json!({"expirationSeconds": 5}),
                "422 TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 5: may \
                 not specify a duration less than 10 minutes",
            ),
            (pod("absent", ""), "404 pods \"absent\" not found"),
            (
                pod("q", ""),
                "400 cannot bind token for serviceaccount \"x\" to pod running with different serviceaccount name.",
            ),
            (
                bound(json!({"kind": "Job", "apiVersion": "batch/v1"})),
                "400 cannot bind token to object of type batch/v1, Kind=Job",
            ),
        ] {
            assert_eq!(ask(spec).await.unwrap_err(), expected);
        }
        assert!(
            ask(pod("p", "other")).await.unwrap_err().starts_with("409 Operation cannot be fulfilled on pods \"p\"")
        );
    }
}
