//! ServiceAccount: every pod runs as an account of its namespace, and mounts its token unless that is turned off.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::status::Status;
use rand::RngExt;
use serde_json::{Value, json};

use super::{AdmissionContext, Operation, elements_mut, list, list_mut, row, text};
use crate::{chance, status_errors};

const DEFAULT: &str = "default";
const LIMIT_ANNOTATION: &str = "/metadata/annotations/kubernetes.io~1enforce-mountable-secrets";
const MIRROR_ANNOTATION: &str = "/metadata/annotations/kubernetes.io~1config.mirror";
/// Where the kinds of volumes name a secret.
const VOLUME_SECRETS: [&str; 10] = [
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/secret/secretName",
    "/storageos/secretRef/name",
];
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
/// Upstream's `WarnOnlyBoundTokenExpirationSeconds`, by which the token endpoint recognises the tokens of pods.
const TOKEN_SECONDS: u32 = 3607;
/// Characters that spell no words, as in generated names.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// The waits between lookups of the account `default`, which a controller creates just after its namespace: about a
/// second in all.
const DEFAULT_RETRY_MS: [u64; 8] = [5, 10, 25, 60, 150, 250, 250, 250];

pub(super) async fn admit(context: &AdmissionContext<'_>, pod: &mut Value) -> Result<(), Status> {
    if context.operation == Operation::Update && context.is_of_pods("ephemeralcontainers") {
        return admit_ephemeral(context, pod).await;
    }
    if !context.is_new("", "pods") {
        return Ok(());
    }
    // A mirror pod only represents a static pod that its node runs, and no account vouches for it.
    if pod.pointer(MIRROR_ANNOTATION).is_some() {
        return check_mirror(pod).map_err(|why| context.refuse(pod, why));
    }
    let name = match text(pod, "/spec/serviceAccountName") {
        "" => DEFAULT.to_owned(),
        name => name.to_owned(),
    };
    let account = existing(context, pod, &name).await?;
    let spec = &mut pod["spec"];
    spec["serviceAccountName"] = name.as_str().into();
    spec["serviceAccount"] = name.into();
    let flag = |value: &Value| value["automountServiceAccountToken"].as_bool();
    if flag(spec).or_else(|| flag(&account)).unwrap_or(true) {
        mount_token(spec);
    }
    if list(spec, "/imagePullSecrets").next().is_none() && list(&account, "/imagePullSecrets").next().is_some() {
        spec["imagePullSecrets"] = account["imagePullSecrets"].clone();
    }
    if limits_secrets(&account) {
        check_secrets(&account, &pod["spec"]).map_err(|why| context.refuse(pod, why))?;
    }
    Ok(())
}

async fn admit_ephemeral(context: &AdmissionContext<'_>, pod: &Value) -> Result<(), Status> {
    let name = text(pod, "/spec/serviceAccountName");
    if name.is_empty() {
        let (namespace, name) = (context.namespace, context.name);
        return Err(context.refuse(pod, format!("no service account specified for pod {namespace}/{name}")));
    }
    let account = existing(context, pod, name).await?;
    if limits_secrets(&account) {
        // Upstream does not call this one forbidden.
        check_environment(&account, &pod["spec"], "/ephemeralContainers", "ephemeral container")
            .map_err(status_errors::plain)?;
    }
    Ok(())
}

async fn existing(context: &AdmissionContext<'_>, pod: &Value, name: &str) -> Result<Arc<Value>, Status> {
    find(context, name).await?.ok_or_else(|| {
        let namespace = context.namespace;
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        context.refuse(pod, why)
    })
}

/// Whether pods of the account may use only the secrets that it lists; the words for true are Go's.
fn limits_secrets(account: &Value) -> bool {
    matches!(text(account, LIMIT_ANNOTATION), "1" | "t" | "T" | "TRUE" | "true" | "True")
}

fn lists(account: &Value, pointer: &str, secret: &str) -> bool {
    list(account, pointer).any(|listed| text(listed, "/name") == secret)
}

fn check_secrets(account: &Value, spec: &Value) -> Result<(), String> {
    let name = text(account, "/metadata/name");
    for volume in list(spec, "/volumes").filter(|volume| volume["secret"].is_object()) {
        let secret = text(volume, "/secret/secretName");
        if !lists(account, "/secrets", secret) {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does not \
                 reference that secret"
            ));
        }
    }
    check_environment(account, spec, "/initContainers", "init container")?;
    check_environment(account, spec, "/containers", "container")?;
    for (at, secret) in list(spec, "/imagePullSecrets").enumerate() {
        let secret = text(secret, "/name");
        if !lists(account, "/imagePullSecrets", secret) {
            return Err(format!(
                "imagePullSecrets[{at}].name=\"{secret}\" is not allowed because service account {name} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn check_environment(account: &Value, spec: &Value, containers: &str, what: &str) -> Result<(), String> {
    let account_name = text(account, "/metadata/name");
    for container in list(spec, containers) {
        let of_variables = list(container, "/env").filter_map(|variable| {
            let secret = variable.pointer("/valueFrom/secretKeyRef")?;
            Some((format!("envVar {}", text(variable, "/name")), text(secret, "/name")))
        });
        let whole = list(container, "/envFrom")
            .filter_map(|from| Some(("envFrom".to_owned(), text(from.get("secretRef")?, "/name"))));
        for (by, secret) in of_variables.chain(whole) {
            if !lists(account, "/secrets", secret) {
                return Err(format!(
                    "{what} {} with {by} referencing secret.secretName=\"{secret}\" is not allowed because service \
                     account {account_name} does not reference that secret",
                    text(container, "/name")
                ));
            }
        }
    }
    Ok(())
}

fn check_mirror(pod: &Value) -> Result<(), &'static str> {
    if !text(pod, "/spec/serviceAccountName").is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if secret_names(&pod["spec"]).any(|name| !name.is_empty()) {
        return Err("a mirror pod may not reference secrets");
    }
    let mut projected = list(pod, "/spec/volumes").flat_map(|volume| list(volume, "/projected/sources"));
    if projected.any(|source| source.get("serviceAccountToken").is_some_and(|token| !token.is_null())) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// The secrets that a pod names: to pull images, in the environment of its containers, in its volumes.
fn secret_names(spec: &Value) -> impl Iterator<Item = &str> {
    let pulling = list(spec, "/imagePullSecrets").map(|secret| text(secret, "/name"));
    let containers = ["/initContainers", "/containers", "/ephemeralContainers"].into_iter();
    let environment = containers.flat_map(|key| list(spec, key)).flat_map(|container| {
        let whole = list(container, "/envFrom").map(|from| text(from, "/secretRef/name"));
        whole.chain(list(container, "/env").map(|variable| text(variable, "/valueFrom/secretKeyRef/name")))
    });
    let volumes = list(spec, "/volumes").flat_map(|volume| {
        let direct = VOLUME_SECRETS.iter().map(|pointer| text(volume, pointer));
        direct.chain(list(volume, "/projected/sources").map(|source| text(source, "/secret/name")))
    });
    pulling.chain(environment).chain(volumes)
}

async fn find(context: &AdmissionContext<'_>, name: &str) -> Result<Option<Arc<Value>>, Status> {
    let resource = row("", "serviceaccounts")?;
    let waits: &[u64] = if name == DEFAULT { &DEFAULT_RETRY_MS } else { &[] };
    for wait in waits {
        if let Some(account) = context.objects.get(resource, context.namespace, name).await? {
            return Ok(Some(account));
        }
        tokio::time::sleep(Duration::from_millis(*wait)).await;
    }
    context.objects.get(resource, context.namespace, name).await
}

fn mount_token(spec: &mut Value) {
    let existing = list(spec, "/volumes").map(|volume| text(volume, "/name")).find(|n| n.starts_with(VOLUME_PREFIX));
    let volume = existing.map(str::to_owned);
    let has_volume = volume.is_some();
    let volume = volume.unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", random_suffix()));
    let mut mounted = false;
    for key in ["initContainers", "containers"] {
        for container in elements_mut(spec, key) {
            if list(container, "/volumeMounts").any(|mount| mount["mountPath"] == MOUNT_PATH) {
                continue;
            }
            if let Some(mounts) = list_mut(container, "volumeMounts") {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
                mounted = true;
            }
        }
    }
    if mounted
        && !has_volume
        && let Some(volumes) = list_mut(spec, "volumes")
    {
        volumes.push(token_volume(&volume));
    }
}

fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}})
}

fn random_suffix() -> String {
    let mut rng = chance::rng();
    (0..SUFFIX_LENGTH).map(|_| char::from(SUFFIX_LETTERS[rng.random_range(0..SUFFIX_LETTERS.len())])).collect()
}
