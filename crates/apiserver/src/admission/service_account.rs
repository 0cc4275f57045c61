//! ServiceAccount: every pod runs as an account of its namespace, and mounts its token unless that is turned off.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::status::Status;
use rand::RngExt;
use serde_json::{Value, json};

use super::{AdmissionContext, elements_mut, list, list_mut, row, text};

const DEFAULT: &str = "default";
const MIRROR_ANNOTATION: &str = "/metadata/annotations/kubernetes.io~1config.mirror";
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
    // A mirror pod only represents a static pod that its node runs.
    if !context.is_new("", "pods") || pod.pointer(MIRROR_ANNOTATION).is_some() {
        return Ok(());
    }
    let name = match text(pod, "/spec/serviceAccountName") {
        "" => DEFAULT.to_owned(),
        name => name.to_owned(),
    };
    let Some(account) = find(context, &name).await? else {
        let namespace = context.namespace;
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(context.refuse(pod, why));
    };
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
    Ok(())
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
    let mut rng = rand::rng();
    (0..SUFFIX_LENGTH).map(|_| char::from(SUFFIX_LETTERS[rng.random_range(0..SUFFIX_LETTERS.len())])).collect()
}
